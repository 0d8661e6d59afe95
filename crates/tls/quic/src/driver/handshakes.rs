//! Connections from their first packet on: beginning, suspended calls, events, and the time limit.

use std::task::{Context, Poll};
use std::time::Instant;

use brisk_quic_socket::Datagram;
use brisk_tls::quic::SuspendedCall;
use quinn_proto::{ConnectionError, ConnectionId, DatagramEvent, EndpointEvent, Incoming};

use super::{Driver, Step};
use crate::application::{AddressProof, Application, Failed, Failure, Service};
use crate::ids;
use crate::paths::Arrival;
use crate::slot::{Accepted, State};

impl<S: Service> Driver<S> {
    /// A packet with a [`Long`](ids::Header::Long) header and an unknown ID: a free slot's endpoint judges it, and keeps it if
    /// it begins a connection.
    pub(super) fn begin(&mut self, datagram: Datagram) {
        let slot = self.free_slot();
        let first_id = ids::destination(&datagram.data).map(|(_, id)| ConnectionId::new(id));
        let Datagram { at, remote, local, ecn, data } = datagram;
        let entry = &mut self.slots[slot as usize];
        let endpoint = entry.endpoint.as_mut().expect("a free slot has its endpoint");
        self.out.clear();
        let incoming = match endpoint.handle(at, remote, local, ecn, data, &mut self.out) {
            Some(DatagramEvent::NewConnection(incoming)) => incoming,
            Some(DatagramEvent::Response(transmit)) => {
                // Version negotiation, or a refusal, with an ID that is not needed again.
                self.respond(transmit);
                return self.ids.forget(slot);
            }
            _ => return self.ids.forget(slot),
        };
        let Some(incoming) = self.admit(slot, incoming, at) else { return self.ids.forget(slot) };
        // Only now, so that a packet that is refused or ignored costs no slot.
        self.free.pop();
        let entry = &mut self.slots[slot as usize];
        entry.client = remote;
        entry.first_id = first_id;
        entry.deadline = Some(at + self.current.handshake_timeout);
        if let Some(first_id) = first_id {
            self.first_ids.insert(first_id, slot);
        }
        let mut endpoint = entry.endpoint.take().expect("a free slot has its endpoint");
        let accept = move || -> Accepted {
            let mut response = Vec::new();
            let accepted = endpoint.accept(*incoming, at, &mut response, None);
            let accepted = accepted.map(|(handle, connection)| (handle, Box::new(connection)));
            (endpoint, accepted.map_err(|error| Box::new((error, response))))
        };
        match SuspendedCall::new(Some(remote.ip()), accept) {
            Ok(call) => {
                entry.state = State::Accepting(call);
                self.step(slot, Step::Woken);
            }
            Err(error) => {
                tracing::warn!(%error, "no memory for the stack of a handshake");
                self.slots[slot as usize].endpoint = Some(self.endpoint(slot));
                self.fail(slot, Failure::NoStack);
                self.release(slot);
            }
        }
    }

    /// Decides whether a connection may begin: with a permit for the handshakes in progress, a validated address if many
    /// begin or its own address has begun several, and a permit of the service.
    fn admit(&mut self, slot: u32, incoming: Incoming, now: Instant) -> Option<Box<Incoming>> {
        let client = incoming.remote_address();
        let is_validated = incoming.remote_address_validated();
        let limit = self.endpoints.settings.unvalidated_rate;
        let entry = &mut self.slots[slot as usize];
        let endpoint = entry.endpoint.as_mut().expect("a free slot has its endpoint");
        self.out.clear();
        if self.drain.started() && self.group.has_successor() {
            // The client repeats its hello, which the successor receives.
            endpoint.ignore(incoming);
            return None;
        }
        if self.drain.started() {
            let refusal = endpoint.refuse(incoming, &mut self.out);
            self.respond(refusal);
            return None;
        }
        // A client without a permit gets a Retry in any case, so `exceeds` does not count it: one address
        // with many handshakes does not use up the rate of all others.
        let unproven = self.endpoints.unproven(client.ip(), now).filter(|_| !is_validated);
        let is_over = unproven.is_none() || self.unvalidated.exceeds(limit, now);
        if !is_validated && incoming.may_retry() && is_over {
            self.endpoints.counters.retries.add();
            if let Ok(retry) = endpoint.retry(incoming, &mut self.out) {
                self.respond(retry);
            }
            return None;
        }
        let Some(pending) = self.endpoints.pending.try_acquire(client.ip()) else {
            // Without an answer: the client repeats its hello when others may have finished.
            self.endpoints.counters.handshakes_over_limit.add();
            endpoint.ignore(incoming);
            return None;
        };
        // A token of an earlier connection may be a day old, and the address may be of another client now.
        let is_proven = is_validated && !incoming.may_retry();
        let Some(permit) = self.service.admit(client, AddressProof::of(is_proven)) else {
            let refusal = endpoint.refuse(incoming, &mut self.out);
            self.respond(refusal);
            return None;
        };
        (entry.pending, entry.permit, entry.unproven) = (Some(pending), Some(permit), unproven);
        Some(Box::new(incoming))
    }

    /// Gives a [`Datagram`] to its connection, or keeps it in `Slot::waiting` while a [`SuspendedCall`] has the connection.
    pub(super) fn deliver(&mut self, slot: u32, datagram: Datagram) {
        let entry = &mut self.slots[slot as usize];
        if entry.is_busy() {
            if entry.has_room_for(&datagram)
                && let Some(permit) = self.endpoints.waiting.try_acquire(entry.client.ip())
            {
                entry.waiting.push((datagram, permit));
            } else {
                self.endpoints.counters.datagrams_over_limit.add();
            }
            return;
        }
        if let State::Ended(last) = &mut entry.state {
            if let Some((transmit, contents)) = last.answer(&datagram)
                && !self.socket.is_blocked()
            {
                self.socket.send(transmit, contents);
            }
            return;
        }
        self.feed(slot, std::iter::once(datagram));
        self.step(slot, Step::Datagram);
    }

    /// Lets a [`State::Idle`] connection process datagrams: on a coroutine during the handshake, in which the session may wait.
    fn feed(&mut self, slot: u32, datagrams: impl Iterator<Item = Datagram>) {
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        let endpoint = entry.endpoint.as_mut().expect("an idle connection has its endpoint");
        let mut events = Vec::new();
        let mut responses = Vec::new();
        for Datagram { at, remote, local, ecn, data } in datagrams {
            self.out.clear();
            let (id, length) = (ids::issued(&data), data.len());
            match endpoint.handle(at, remote, local, ecn, data, &mut self.out) {
                Some(DatagramEvent::ConnectionEvent(_, event)) if connection.is_handshaking() => {
                    events.push(event);
                }
                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                    let (before, rtt) = (connection.remote_address(), connection.rtt());
                    connection.handle_event(event);
                    let arrival = Arrival { at, from: remote, id, length, before, rtt };
                    entry.paths.arrived(&arrival, connection);
                }
                Some(DatagramEvent::Response(transmit)) => responses.push((transmit, self.out.clone())),
                // An Initial with an ID that was retired.
                Some(DatagramEvent::NewConnection(incoming)) => endpoint.ignore(incoming),
                None => {}
            }
        }
        for (transmit, contents) in responses {
            self.out = contents;
            self.respond(transmit);
        }
        if !events.is_empty() {
            self.process(slot, events);
        }
    }

    /// Begins a [`SuspendedCall`] that processes the events of a handshake.
    fn process(&mut self, slot: u32, events: Vec<quinn_proto::ConnectionEvent>) {
        let entry = &mut self.slots[slot as usize];
        let State::Idle(mut connection) = std::mem::replace(&mut entry.state, State::Free) else { return };
        let process = move || {
            for event in events {
                connection.handle_event(event);
            }
            connection
        };
        match SuspendedCall::new(Some(entry.client.ip()), process) {
            Ok(call) => {
                entry.state = State::Busy(call);
                self.step(slot, Step::Woken);
            }
            Err(error) => {
                tracing::warn!(%error, "no memory for the stack of a handshake");
                self.abandon(slot, Failure::NoStack);
            }
        }
    }

    /// Continues a connection: its [`SuspendedCall`] if `step` is [`Step::Woken`], then the datagrams that waited for it.
    pub(super) fn step(&mut self, slot: u32, step: Step) {
        let entry = &mut self.slots[slot as usize];
        if matches!(entry.state, State::Free | State::Ended(_)) {
            return;
        }
        if entry.is_busy() {
            if step == Step::Woken {
                self.continue_call(slot);
            }
            return;
        }
        self.mark(slot);
    }

    fn continue_call(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let waker = entry.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        match &mut entry.state {
            State::Accepting(call) => {
                let Poll::Ready(((endpoint, accepted), refusal)) = call.poll(cx) else {
                    // The call has the connection, whose own timers can only run when the call returns it.
                    return self.timers.set(slot, entry.deadline);
                };
                entry.endpoint = Some(endpoint);
                entry.refusal = refusal;
                match accepted {
                    Ok((handle, connection)) => {
                        entry.handle = handle;
                        entry.state = State::Idle(connection);
                    }
                    Err(refused) => {
                        let (error, response) = *refused;
                        if let Some(transmit) = error.response {
                            self.out = response;
                            self.respond(transmit);
                        }
                        self.fail(slot, Failure::Lost(error.cause));
                        return self.release(slot);
                    }
                }
            }
            State::Busy(call) => {
                let Poll::Ready((connection, refusal)) = call.poll(cx) else {
                    return self.timers.set(slot, entry.deadline);
                };
                entry.refusal = refusal.or(entry.refusal.take());
                entry.state = State::Idle(connection);
            }
            State::Free | State::Idle(_) | State::Ended(_) => return,
        }
        self.mark(slot);
        let waiting = std::mem::take(&mut self.slots[slot as usize].waiting);
        if !waiting.is_empty() {
            self.feed(slot, waiting.into_iter().map(|(datagram, _)| datagram));
        }
    }

    /// The timer of a connection has expired: its own, or `Slot::deadline`.
    pub(super) fn expired(&mut self, slot: u32, now: Instant) {
        let entry = &mut self.slots[slot as usize];
        let is_late = entry.deadline.is_some_and(|deadline| deadline <= now);
        match &mut entry.state {
            State::Free => {}
            State::Ended(_) if is_late => self.release(slot),
            State::Accepting(_) | State::Busy(_) if is_late => self.abandon(slot, Failure::LateSession),
            State::Idle(_) if is_late => self.abandon(slot, Failure::Late),
            State::Idle(connection) => {
                connection.handle_timeout(now);
                self.mark(slot);
            }
            State::Accepting(_) | State::Busy(_) | State::Ended(_) => self.timers.set(slot, entry.deadline),
        }
    }

    /// Ends a handshake without a packet to its client. A [`SuspendedCall`] is unwound.
    fn abandon(&mut self, slot: u32, failure: Failure) {
        let entry = &mut self.slots[slot as usize];
        let state = std::mem::replace(&mut entry.state, State::Free);
        if let Some(mut application) = entry.application.take() {
            let connection = if let State::Idle(connection) = &state { Some(&**connection) } else { None };
            application.lost(connection, &ConnectionError::TimedOut);
        }
        if matches!(state, State::Accepting(_)) {
            // The endpoint goes with the call.
            self.slots[slot as usize].endpoint = Some(self.endpoint(slot));
        } else if let Some(endpoint) = &mut entry.endpoint {
            endpoint.handle_event(entry.handle, EndpointEvent::drained());
        }
        drop(state);
        self.fail(slot, failure);
        self.release(slot);
    }

    /// Calls [`Service::failed`] for a handshake that failed, if the connection was not [`established`](Service::established).
    pub(super) fn fail(&mut self, slot: u32, failure: Failure) {
        let entry = &mut self.slots[slot as usize];
        if let Some(permit) = entry.permit.take() {
            let refusal = entry.refusal.take();
            self.service.failed(Failed { client: entry.client, refusal, failure, permit });
        }
    }
}
