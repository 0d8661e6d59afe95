//! The end of a turn: events for the applications, their use of the connections, and sending.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use brisk_tls::quic::Handshaken;
use bytes::{Bytes, BytesMut};
use quinn_proto::{Connection, DatagramEvent, Event, VarInt};

use super::Driver;
use crate::application::{Application, Established, Service};
use crate::slot::State;

/// Time for which a closed connection answers late packets. RFC 9000 section 10.2 permits an end before three times the
/// probe timeout, to which a client may add 16 s of acknowledgement delay, while the buffers of the connection remain.
const CLOSING: Duration = Duration::from_millis(500);

/// IDs of a connection above which the retired ones are looked for. quinn-proto keeps 8 in use.
const IDS: usize = 12;

impl<S: Service> Driver<S> {
    /// Serves all connections with something to do, until the socket is blocked.
    pub(super) fn flush(&mut self, now: Instant) {
        while !self.socket.is_blocked()
            && let Some(slot) = self.dirty.pop_front()
        {
            self.slots[slot as usize].is_dirty = false;
            self.serve(slot, now);
        }
    }

    fn serve(&mut self, slot: u32, now: Instant) {
        self.take_events(slot, now);
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        if let Some(application) = &mut entry.application {
            if connection.remote_address() != entry.client {
                entry.client = connection.remote_address();
                self.endpoints.counters.migrations.add();
                application.moved();
            }
            let cx = &mut Context::from_waker(&entry.waker);
            if let Poll::Ready(code) = application.poll(connection, cx) {
                let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
                connection.close(now, code, Bytes::new());
                entry.application = None;
                entry.deadline = Some(now + CLOSING);
            }
        }
        self.transmit(slot, now);
        if self.socket.is_blocked() {
            return self.mark(slot);
        }
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        if connection.is_drained() {
            self.fail(slot, None);
            return self.release(slot);
        }
        let timeout = connection.poll_timeout();
        self.timers.set(slot, timeout.into_iter().chain(entry.deadline).min());
        if self.ids.issued(slot) > IDS {
            self.forget_retired(slot, now);
        }
    }

    /// Passes the events of a connection to its application, which is created by the one that shows the outcome.
    fn take_events(&mut self, slot: u32, now: Instant) {
        loop {
            let entry = &mut self.slots[slot as usize];
            let State::Idle(connection) = &mut entry.state else { return };
            match connection.poll() {
                None => return,
                Some(Event::HandshakeDataReady) => {
                    if let Some(handshake) = outcome(connection).filter(|handshake| handshake.early_data) {
                        self.establish(slot, handshake);
                    }
                }
                Some(Event::Connected) => {
                    entry.deadline = None;
                    entry.pending = None;
                    entry.unproven = None;
                    match (&mut entry.application, outcome(connection)) {
                        (Some(application), _) => application.confirmed(),
                        (None, Some(handshake)) => self.establish(slot, handshake),
                        (None, None) => {}
                    }
                }
                Some(Event::Stream(event)) => {
                    if let Some(application) = &mut entry.application {
                        application.event(event);
                    }
                }
                Some(Event::ConnectionLost { reason }) => {
                    if let Some(mut application) = entry.application.take() {
                        application.lost(connection, &reason);
                    }
                    entry.deadline = Some(now + CLOSING);
                    entry.pending = None;
                    self.fail(slot, Some(reason));
                }
                Some(Event::DatagramReceived | Event::DatagramsUnblocked) => {}
            }
        }
    }

    fn establish(&mut self, slot: u32, handshake: Handshaken) {
        let entry = &mut self.slots[slot as usize];
        if let Some(permit) = entry.permit.take() {
            let established = Established { client: entry.client, handshake, permit };
            entry.application = Some(self.service.established(established));
        }
    }

    /// Sends until the connection has nothing to send, or the socket is blocked.
    fn transmit(&mut self, slot: u32, now: Instant) {
        let segments = self.socket.segments();
        let entry = &mut self.slots[slot as usize];
        let State::Idle(connection) = &mut entry.state else { return };
        let endpoint = entry.endpoint.as_mut().expect("an idle connection has its endpoint");
        // Twice: new IDs, which the endpoint issues, go with the data that follows.
        for _ in 0..2 {
            while !self.socket.is_blocked() {
                self.out.clear();
                let Some(transmit) = connection.poll_transmit(now, segments, &mut self.out) else { break };
                self.socket.send(transmit, &self.out);
            }
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = endpoint.handle_event(entry.handle, event) {
                    connection.handle_event(event);
                }
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
