//! The [`Driver`] of one datagram [`Socket`] and all of its connections.
//!
//! A turn reads all datagrams, resumes woken handshakes, lets the applications use their connections, and sends. Operations
//! that handshakes have gathered are performed by `brisk_tls::gather` after the turn; they wake the driver again.

mod handshakes;
mod transmit;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use brisk_net::Drain;
use brisk_quic_socket::{Batch, Datagram, Socket};
use quinn_proto::{ConnectionId, DatagramEvent, Endpoint, EndpointConfig, Transmit};
use tokio::sync::mpsc::Receiver;
use tokio::time::Sleep;

use crate::application::Service;
use crate::group::Group;
use crate::ids::{self, Header, Ids, Place};
use crate::paths::Paths;
use crate::settings::{Current, Endpoints};
use crate::slot::{LastPacket, Slot, State};
use crate::timers::Timers;
use crate::wake::Woken;

/// Batches of datagrams in one [`Driver::poll_turn`], before other tasks of the worker get a turn.
const ROUNDS: usize = 4;

/// Time between two calls of [`Socket::poll_receive`] while the socket has an error: for example, the system has no memory.
const RETRY: Duration = Duration::from_secs(1);

/// Serves the connections of one datagram socket. Stays on the thread that created it.
pub struct Driver<S: Service> {
    service: S,
    endpoints: Endpoints,
    /// The settings of new connections.
    current: Arc<Current>,
    config: Arc<EndpointConfig>,
    drain: Drain,
    place: Place,
    group: Group,
    passed: Receiver<Datagram>,
    ids: Ids,
    /// Connection IDs that clients chose, by [`Slot::first_id`]. With a secret hash, because clients can insert any ID.
    first_ids: HashMap<ConnectionId, u32>,
    /// The [`Endpoint`] for packets with a short header and an unknown ID: it builds stateless resets.
    front: Endpoint,
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
    /// Slots that may have something to send, in turn; each occurs once ([`Slot::is_dirty`]).
    dirty: VecDeque<u32>,
    timers: Timers,
    sleep: Pin<Box<Sleep>>,
    woken: Arc<Woken>,
    woken_slots: Vec<u32>,
    socket: Socket,
    /// `None` only while [`Self::receive`] routes its datagrams.
    batch: Option<Box<Batch>>,
    /// Buffer for the contents of an outgoing [`Transmit`].
    out: Vec<u8>,
    unvalidated: Rate,
    /// Time of the next attempt to receive, after an error; see [`RETRY`].
    retry: Option<Instant>,
}

impl<S: Service> Driver<S> {
    /// A driver for `socket`, which is number `index` of `group`. Connections are refused once `drain` has started. Must be
    /// called inside a runtime of one thread. `Err` if the socket has a driver already or refuses an option, or
    /// unless `group` has 1 to 256 sockets.
    pub fn new(
        socket: std::net::UdpSocket,
        (index, group): (usize, &Group),
        endpoints: &Endpoints,
        service: S,
        drain: Drain,
    ) -> io::Result<Self> {
        let place = place(index, group)?;
        let taken = || io::Error::other("the socket has a driver already");
        let passed = group.take(index).ok_or_else(taken)?;
        let socket = Socket::new(socket)?;
        let ids = Ids::new(place);
        let config = endpoints.endpoint(&ids);
        let current = endpoints.current.load_full();
        let front = Endpoint::new(Arc::clone(&config), Some(Arc::clone(&current.server)), false, None);
        Ok(Self {
            service,
            endpoints: endpoints.clone(),
            current,
            config,
            drain,
            place,
            group: group.clone(),
            passed,
            ids,
            first_ids: HashMap::new(),
            front,
            slots: Vec::new(),
            free: Vec::new(),
            dirty: VecDeque::new(),
            timers: Timers::new(Instant::now()),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            woken: Arc::default(),
            woken_slots: Vec::new(),
            socket,
            batch: Some(Box::default()),
            out: Vec::new(),
            unvalidated: Rate::default(),
            retry: None,
        })
    }

    /// Serves until the future is dropped. Ends only when the runtime does. After an error of receiving, which
    /// [`Service::reception`] reports to the service, further attempts follow.
    pub async fn run(mut self) -> io::Error {
        poll_fn(|cx| self.poll_turn(cx)).await
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.woken.register(cx.waker());
        // After the rounds the driver wakes itself: a flood of datagrams must not keep the other tasks of the worker from
        // running.
        for _ in 0..ROUNDS {
            let now = Instant::now();
            let has_more = self.receive(cx, now);
            while let Some(slot) = self.timers.expire(now) {
                self.expired(slot, now);
            }
            self.resume();
            if let Poll::Ready(Err(error)) = self.socket.poll_unblock(cx) {
                return Poll::Ready(error);
            }
            self.flush(now);
            if !has_more {
                return self.arm(cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes one [`Batch`] from the socket, and all datagrams that other drivers have passed. Returns whether there may be
    /// more.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        while let Poll::Ready(Some(datagram)) = self.passed.poll_recv(cx) {
            self.route(datagram, Passing::Arrived);
        }
        if self.retry.is_some_and(|retry| now < retry) {
            return false;
        }
        let mut batch = self.batch.take().unwrap_or_default();
        let received = self.socket.poll_receive(cx, &mut batch);
        if let Poll::Ready(Ok(())) = received {
            for datagram in batch.datagrams(now) {
                self.route(datagram, Passing::Possible);
            }
        }
        self.batch = Some(batch);
        if let Poll::Ready(Err(error)) = &received {
            self.retry = Some(now + RETRY);
            self.service.reception(Some(error));
        } else if self.retry.take().is_some() {
            self.service.reception(None);
        }
        matches!(received, Poll::Ready(Ok(())))
    }

    /// Registers the waker for the next timer, for [`RETRY`], and for room in the kernel's buffer if [`Socket::is_blocked`].
    fn arm(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match self.socket.poll_unblock(cx) {
            Poll::Ready(Err(error)) => return Poll::Ready(error),
            // Room has appeared since `flush` stopped: without this wake-up, the remaining slots would wait
            // for a packet.
            Poll::Ready(Ok(())) if !self.dirty.is_empty() => cx.waker().wake_by_ref(),
            _ => {}
        }
        if let Some(at) = self.timers.next().into_iter().chain(self.retry).min() {
            let at = at.into();
            if self.sleep.deadline() != at {
                self.sleep.as_mut().reset(at);
            }
            if self.sleep.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    /// Routes a [`Datagram`] to its connection. One with an unknown ID begins a connection ([`Self::begin`]) or is answered
    /// without state ([`Self::reset`]).
    fn route(&mut self, datagram: Datagram, passing: Passing) {
        let Some((header, id)) = ids::destination(&datagram.data) else { return };
        let chosen = || self.first_ids.get(&ConnectionId::new(id)).copied();
        let slot = self.ids.find(id).or_else(|| (header == Header::Long).then(chosen)?);
        if let Some(slot) = slot {
            return self.deliver(slot, datagram);
        }
        let owner = id.first().map_or(usize::from(self.place.index), |first| self.place.index_of(*first));
        if owner != usize::from(self.place.index) && passing == Passing::Possible {
            self.endpoints.counters.datagrams_passed.add();
            return self.group.pass(owner, datagram);
        }
        match header {
            Header::Long => self.begin(datagram),
            Header::Short => self.reset(datagram),
        }
    }

    /// Answers a packet for a connection that does not exist with a stateless reset, at a limited rate.
    fn reset(&mut self, datagram: Datagram) {
        self.out.clear();
        let Datagram { at, remote, local, ecn, data } = datagram;
        let event = self.front.handle(at, remote, local, ecn, data, &mut self.out);
        if let Some(DatagramEvent::Response(transmit)) = event {
            self.respond(transmit);
        }
    }

    /// Sends the response in `out`. While the socket is blocked, it is dropped: the client asks again.
    fn respond(&mut self, transmit: Transmit) {
        if !self.socket.is_blocked() {
            self.socket.send(transmit, &self.out);
        }
    }

    /// Lets the connections of [`Woken`] continue.
    fn resume(&mut self) {
        let mut woken = std::mem::take(&mut self.woken_slots);
        self.woken.take(&mut woken);
        for slot in woken.drain(..) {
            // Reset before the connection is polled, so that a wake-up during the poll is not lost.
            if self.slots[slot as usize].signal.take() {
                self.step(slot, Step::Woken);
            }
        }
        self.woken_slots = woken;
    }

    fn mark(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if !std::mem::replace(&mut entry.is_dirty, true) {
            self.dirty.push_back(slot);
        }
    }

    /// An [`Endpoint`] whose IDs lead to `slot`.
    fn endpoint(&self, slot: u32) -> Box<Endpoint> {
        let (config, server) = (Arc::clone(&self.config), Some(Arc::clone(&self.current.server)));
        let tries_sizes = self.socket.forbids_fragments();
        self.ids.with_slot(slot, || Box::new(Endpoint::new(config, server, tries_sizes, None)))
    }

    /// A [`State::Free`] slot with the [`Current`] settings, which stays in `free` until [`Self::begin`] admits a connection.
    fn free_slot(&mut self) -> u32 {
        if self.endpoints.current.load().number != self.current.number {
            self.current = self.endpoints.current.load_full();
        }
        if let Some(slot) = self.free.last() {
            let entry = &mut self.slots[*slot as usize];
            if entry.settings != self.current.number {
                entry.settings = self.current.number;
                let endpoint = entry.endpoint.as_mut().expect("a free slot has its endpoint");
                endpoint.set_server_config(Some(Arc::clone(&self.current.server)));
            }
            return *slot;
        }
        let slot = u32::try_from(self.slots.len()).expect("connections are limited by their permits");
        let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut entry = Slot::new(self.endpoint(slot), self.woken.signal(slot), unspecified);
        entry.settings = self.current.number;
        self.slots.push(entry);
        self.free.push(slot);
        slot
    }

    /// Frees a slot whose connection has ended. Its [`Endpoint`], which has no connection any more, stays for the next one.
    fn release(&mut self, slot: u32) {
        self.ids.forget(slot);
        self.timers.set(slot, None);
        let entry = &mut self.slots[slot as usize];
        if let Some(first) = entry.first_id.take() {
            self.first_ids.remove(&first);
        }
        entry.state = State::Free;
        entry.application = None;
        entry.ending = None;
        entry.last = LastPacket::default();
        entry.permit = None;
        entry.paths = Paths::default();
        entry.pending = None;
        entry.unproven = None;
        entry.refusal = None;
        entry.greeting = None;
        entry.deadline = None;
        // Without its capacity, since few handshakes have datagrams that wait.
        entry.waiting = Vec::new();
        self.free.push(slot);
    }
}

/// Whether a datagram may be passed to the driver that its ID names. One that was passed is not passed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passing {
    Possible,
    Arrived,
}

/// The reason for a [`Driver::step`] of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A datagram was queued: a suspended call does not continue by it, so it is not polled.
    Datagram,
    Woken,
}

/// Counts handshakes without validated address by the second in which they begin.
#[derive(Debug, Default)]
struct Rate {
    second: Option<Instant>,
    count: u32,
}

impl Rate {
    /// Counts a handshake, and returns whether more than `limit` of this second are not complete.
    fn exceeds(&mut self, limit: u32, now: Instant) -> bool {
        let is_over = |start: Instant| now.saturating_duration_since(start) >= Duration::from_secs(1);
        if self.second.is_none_or(is_over) {
            (self.second, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
        self.count > limit
    }

    /// Counts a handshake no longer, because it is complete: its client has proven its address.
    fn complete(&mut self, begun: Instant) {
        // One of an earlier second is not in the count.
        if self.second.is_some_and(|start| begun >= start) {
            self.count = self.count.saturating_sub(1);
        }
    }
}

fn place(index: usize, group: &Group) -> io::Result<Place> {
    // `Place` encodes the socket in the first byte of each ID.
    let count = u16::try_from(group.len()).ok().filter(|count| (1..=256).contains(count));
    let (Some(count), Ok(index)) = (count, u8::try_from(index)) else {
        return Err(io::Error::other("a group of datagram sockets has 1 to 256 sockets"));
    };
    Ok(Place { index, group: count, generation: group.is_second() })
}

#[cfg(test)]
mod tests;
