//! The end of a turn: events for the applications, their use of the connections, and sending.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use brisk_tls::quic::{self, Handshaken};
use bytes::{Bytes, BytesMut};
use quinn_proto::{Connection, ConnectionError, DatagramEvent, Dir, EndpointEvent, Event, VarInt};

use super::Driver;
use crate::application::{Application, Established, Failure, Service};
use crate::slot::{Ending, LastPacket, State};

/// Time for which the [`LastPacket`] of a connection answers late ones. RFC 9000 section 10.2 permits an end before three times
/// the probe timeout, to which a client may add 16 s of acknowledgement delay.
const CLOSING: Duration = Duration::from_millis(500);

/// IDs of a connection above which [`Driver::forget_retired`] looks for retired ones. quinn-proto keeps 8 in use.
const IDS: usize = 12;

impl<S: Service> Driver<S> {
    /// Serves all connections in `dirty`, until the socket [`is_blocked`](brisk_quic_socket::Socket::is_blocked).
    pub(super) fn flush(&mut self, now: Instant) {
        while !self.socket.is_blocked()
            && let Some(slot) = self.dirty.pop_front()
        {
            self.slots[slot as usize].is_dirty = false;
            self.serve(slot, now);
        }
    }

    fn serve(&mut self, slot: u32, now: Instant) {
        self.take_events(slot);
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        if let Some(application) = &mut entry.application
            && entry.ending.is_none()
        {
            if connection.remote_address() != entry.client {
                entry.client = connection.remote_address();
                self.endpoints.counters.migrations.add();
                application.moved();
            }
            let cx = &mut Context::from_waker(&entry.waker);
            if let Poll::Ready(code) = application.poll(connection, cx) {
                let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
                connection.close(now, code, Bytes::new());
                entry.ending = Some(Ending::Closed);
            }
        }
        self.transmit(slot, now);
        if self.socket.is_blocked() {
            // At the end of the queue, so that a full socket does not starve other slots.
            return self.mark(slot);
        }
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        if entry.ending.is_some() || connection.is_drained() {
            return self.end(slot, now);
        }
        let timeout = connection.poll_timeout();
        let times = timeout.into_iter().chain(entry.deadline).chain(entry.paths.next());
        self.timers.set(slot, times.min());
        if self.ids.issued(slot) > IDS {
            self.forget_retired(slot, now);
        }
    }

    /// Frees the memory of a connection whose last packet is sent, and its permit with it. The slot answers late packets for a
    /// while.
    fn end(&mut self, slot: u32, now: Instant) {
        let entry = &mut self.slots[slot as usize];
        let last = State::Ended(std::mem::take(&mut entry.last));
        let State::Idle(connection) = std::mem::replace(&mut entry.state, last) else { return };
        let mut application = entry.application.take();
        let ending = entry.ending.take().unwrap_or(Ending::Lost(ConnectionError::LocallyClosed));
        if let (Ending::Lost(error), Some(application)) = (&ending, &mut application) {
            application.lost(Some(&connection), error);
        }
        // A connection that has drained has reported it to its endpoint.
        if let Some(endpoint) = entry.endpoint.as_mut().filter(|_| !connection.is_drained()) {
            endpoint.handle_event(entry.handle, EndpointEvent::drained());
        }
        drop(connection);
        entry.deadline = Some(now + CLOSING);
        self.timers.set(slot, entry.deadline);
        if let Ending::Lost(error) = ending {
            self.fail(slot, Failure::Lost(error));
        }
    }

    /// Handles the events of a connection and passes stream events to its [`Application`], which is created when the
    /// handshake is complete, or earlier for early data from a validated address.
    fn take_events(&mut self, slot: u32) {
        loop {
            let entry = &mut self.slots[slot as usize];
            let State::Idle(connection) = &mut entry.state else { return };
            match connection.poll() {
                None => return,
                Some(Event::HandshakeDataReady) => match outcome(connection) {
                    // Any host can send a flight with the address of another one. So the early data of an address
                    // without proof waits, within the windows of QUIC, for the end of the handshake.
                    Some(handshake) if handshake.early_data && entry.unproven.is_none() => {
                        self.establish(slot, handshake);
                    }
                    Some(_) => self.greet(slot),
                    None => {}
                },
                Some(Event::Connected) => {
                    entry.deadline = None;
                    entry.pending = None;
                    if let Some(unproven) = entry.unproven.take() {
                        self.unvalidated.complete(unproven.begun);
                    }
                    match (&entry.application, outcome(connection)) {
                        (Some(_), _) => self.confirm(slot),
                        (None, Some(handshake)) => {
                            let is_early = handshake.early_data;
                            self.establish(slot, handshake);
                            if is_early {
                                self.confirm(slot);
                            }
                        }
                        (None, None) => {}
                    }
                }
                Some(Event::Stream(event)) => {
                    if let Some(application) = &mut entry.application {
                        application.event(event);
                    }
                }
                Some(Event::ConnectionLost { reason }) => {
                    // The first reason is kept: an application that has closed the connection is not
                    // informed of a loss.
                    entry.ending.get_or_insert(Ending::Lost(reason));
                    entry.pending = None;
                }
                Some(Event::DatagramReceived | Event::DatagramsUnblocked) => {}
            }
        }
    }

    /// Sends [`Service::greeting`] with the handshake. Firefox discards a token with a ticket that arrives before the settings
    /// of HTTP/3, and those would otherwise come in the same packet, behind it.
    fn greet(&mut self, slot: u32) {
        let greeting = self.service.greeting();
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        // Without a stream, which this client permits later, the application sends it.
        let Some(stream) = connection.streams().open(Dir::Uni) else { return };
        let mut sending = connection.send_stream(stream);
        let _ = sending.set_priority(i32::MAX);
        let mut rest = [greeting];
        // A part that the limits of the client do not permit yet is left to the application.
        let _ = sending.write_chunks(&mut rest);
        let [rest] = rest;
        entry.greeting = Some((stream, rest));
    }

    fn establish(&mut self, slot: u32, handshake: Handshaken) {
        let entry = &mut self.slots[slot as usize];
        if let Some(permit) = entry.permit.take() {
            let greeting = entry.greeting.take();
            let established = Established { client: entry.client, handshake, greeting, permit };
            entry.application = Some(self.service.established(established));
        }
    }

    fn confirm(&mut self, slot: u32) {
        if let Some(application) = &mut self.slots[slot as usize].application {
            application.confirmed();
        }
    }

    /// Sends until [`Connection::poll_transmit`] has nothing, or the socket
    /// [`is_blocked`](brisk_quic_socket::Socket::is_blocked).
    fn transmit(&mut self, slot: u32, now: Instant) {
        let segments = self.socket.segments();
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        let endpoint = entry.endpoint.as_mut().expect("an idle connection has its endpoint");
        // Twice, in case that sending causes events.
        for _ in 0..2 {
            // First, so that new IDs, which the endpoint issues, go with the data.
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = endpoint.handle_event(entry.handle, event) {
                    connection.handle_event(event);
                }
            }
            let is_silent = entry.ending.as_ref().is_some_and(Ending::is_of_client);
            while !is_silent && !self.socket.is_blocked() {
                self.out.clear();
                let most = entry.paths.allowance(connection, segments);
                if most == 0 {
                    // RFC 9000 section 8: nothing may be sent to this address until more bytes have arrived
                    // from there.
                    break;
                }
                let mut poll = || connection.poll_transmit(now, most, &mut self.out);
                let (transmit, bare) =
                    if entry.paths.expect_challenge() { quic::bare_challenge(poll) } else { (poll(), None) };
                let Some(mut transmit) = transmit else { break };
                transmit.size = bare.unwrap_or(transmit.size);
                entry.paths.sent(&transmit, &self.out[..transmit.size], bare.is_some(), connection);
                if entry.ending.is_some() {
                    entry.last = LastPacket::new(&transmit, &self.out[..transmit.size]);
                }
                self.socket.send(transmit, &self.out);
            }
            if !is_silent
                && !self.socket.is_blocked()
                && let Some((transmit, contents)) = entry.paths.probe(connection, now)
            {
                self.socket.send(transmit, contents);
            }
        }
    }

    /// Forgets the retired IDs of a connection. Events do not name them, but its endpoint knows an ID that lives: a datagram
    /// for it is an event, and one for another is nothing, because it is too short for a reset.
    fn forget_retired(&mut self, slot: u32, now: Instant) {
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &entry.state else { return };
        let remote = connection.remote_address();
        let endpoint = entry.endpoint.as_mut().expect("an idle connection has its endpoint");
        let out = &mut self.out;
        self.ids.retain(slot, |id| {
            let mut probe = BytesMut::with_capacity(1 + id.len());
            probe.extend_from_slice(&[0x40]);
            probe.extend_from_slice(id);
            let event = endpoint.handle(now, remote, None, None, probe, out);
            matches!(event, Some(DatagramEvent::ConnectionEvent(..)))
        });
    }
}

fn outcome(connection: &Connection) -> Option<Handshaken> {
    connection.crypto_session().handshake_data()?.downcast().ok().map(|outcome| *outcome)
}
