//! The address of a client after a change, until it is validated (RFC 9000 sections 8 and 9).
//!
//! A NAT that forgets a client gives it another port, and a client that only receives does not know: the server has to reach
//! it. quinn-proto spends all that it may send to the new address immediately, in datagrams of full size. If these are lost,
//! it has nothing to send until it returns to the old address, which no longer exists.
//!
//! So small copies of a `PATH_CHALLENGE`, of about 36 bytes, are sent first, and again with growing intervals, also after
//! quinn-proto has returned to the old address. The `PATH_RESPONSE` of the client has 1,200 bytes: it begins the validation
//! again, with enough bytes to complete it. Until then, the address gets at most three times the bytes that came from it.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use quinn_proto::{Connection, Transmit};

use crate::ids::Id;

/// Time after which a `PATH_CHALLENGE` is sent again, and maximum of this time, which doubles each time: copies are sent in the
/// first 8 s.
const INTERVAL: Duration = Duration::from_millis(250);
const LONGEST_INTERVAL: Duration = Duration::from_secs(4);

/// Largest datagram that quinn-proto sends, in bytes.
const DATAGRAM: u64 = 1452;
/// Bytes of [`NewPath::budget`] that remain for copies of the `PATH_CHALLENGE`.
const RESERVE: u64 = 120;

/// The addresses of a connection after its handshake.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// The [`Id`] that the client used last at its present address.
    id: Option<Id>,
    new: Option<Box<NewPath>>,
}

/// An address that is not validated (RFC 9000 section 8.2).
#[derive(Debug)]
struct NewPath {
    address: SocketAddr,
    /// The last address that was validated.
    validated: SocketAddr,
    /// Bytes of all datagrams from and to `address`.
    received: u64,
    sent: u64,
    /// The `PATH_CHALLENGE` that quinn-proto sends to the former address, as a whole datagram; empty without one.
    challenge: Vec<u8>,
    source: Option<IpAddr>,
    /// Whether `challenge` is still to be taken from quinn-proto.
    is_fresh: bool,
    /// `PATH_CHALLENGE` frames that were sent, and `PATH_RESPONSE` frames that were received, until now.
    challenges: u64,
    responses: u64,
    /// `PATH_RESPONSE` frames that had been received at the change of the address.
    responses_before: u64,
    /// Time and interval of the next copy of `challenge`; see [`INTERVAL`].
    next: Option<Instant>,
    interval: Duration,
}

/// A datagram that quinn-proto has processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) from: SocketAddr,
    /// The ID to which the datagram was sent; `None` for a long header.
    pub(crate) id: Option<Id>,
    pub(crate) length: usize,
    /// The address and the round-trip time of the [`Connection`] before.
    pub(crate) before: SocketAddr,
    pub(crate) rtt: Duration,
}

impl Paths {
    /// Notes an [`Arrival`], after [`Connection::handle_event`] has processed the datagram.
    pub(crate) fn arrived(&mut self, arrival: &Arrival, connection: &Connection) {
        let address = connection.remote_address();
        if address != arrival.before && address == arrival.from {
            self.moved(arrival, connection);
        }
        if address == arrival.from {
            self.id = arrival.id;
        }
        if let Some(new) = self.new.as_mut().filter(|new| new.address == arrival.from) {
            new.received += arrival.length as u64;
            if new.interval <= LONGEST_INTERVAL && !new.challenge.is_empty() {
                new.next.get_or_insert(arrival.at + new.interval);
            }
        }
    }

    /// Notes that quinn-proto validates another address.
    fn moved(&mut self, arrival: &Arrival, connection: &Connection) {
        let former = self.new.take();
        // RFC 9000 section 9.5: a client that changes its address itself uses another ID, and must get one. It knows of the
        // change, and sends again by itself.
        let is_rebinding = self.id.is_none() || self.id == arrival.id;
        let validated = former.as_ref().map_or(arrival.before, |former| former.validated);
        if !is_rebinding || arrival.from == validated {
            return;
        }
        // quinn-proto challenges the former address if that was validated.
        let is_fresh = former.as_ref().is_none_or(|former| former.address != arrival.before);
        let known = former.as_ref().filter(|former| former.address == arrival.from);
        let (received, sent) = known.map_or((0, 0), |known| (known.received, known.sent));
        let source = former.as_ref().and_then(|former| former.source);
        let frames = connection.stats();
        self.new = Some(Box::new(NewPath {
            address: arrival.from,
            validated,
            received,
            sent,
            challenge: former.map(|former| former.challenge).unwrap_or_default(),
            source,
            is_fresh,
            challenges: frames.frame_tx.path_challenge,
            responses: frames.frame_rx.path_response,
            responses_before: frames.frame_rx.path_response,
            next: Some(arrival.at),
            // A shorter interval would send a copy before a response could have arrived.
            interval: INTERVAL.max(2 * arrival.rtt),
        }));
    }

    /// Whether the next [`Transmit`] of quinn-proto is its `PATH_CHALLENGE` for the former address.
    pub(crate) fn expect_challenge(&self) -> bool {
        self.new.as_ref().is_some_and(|new| new.is_fresh)
    }

    /// Number of datagrams, `most` at most, that quinn-proto may send in one [`Connection::poll_transmit`].
    pub(crate) fn allowance(&self, connection: &Connection, most: usize) -> usize {
        let Some(new) = &self.new else { return most };
        let has_challenge = new.is_fresh || !new.challenge.is_empty();
        if new.address != connection.remote_address() || connection.is_closed() || !has_challenge {
            return most;
        }
        let affordable = new.affordable().min(most);
        // Each PATH_RESPONSE permits a datagram, within quinn-proto's own limit, to clients that do not expand theirs.
        let is_answered = connection.stats().frame_rx.path_response > new.responses;
        affordable.max(usize::from(new.is_fresh || is_answered))
    }

    /// Notes a datagram, or several, that quinn-proto has built with the [`allowance`](Self::allowance). `is_bare` if it is the
    /// challenge of the former address, without padding.
    pub(crate) fn sent(
        &mut self,
        transmit: &Transmit,
        contents: &[u8],
        is_bare: bool,
        connection: &Connection,
    ) {
        let Some(new) = &mut self.new else { return };
        let frames = connection.stats();
        if std::mem::take(&mut new.is_fresh) && is_bare {
            new.challenge = contents.to_vec();
            new.source = transmit.src_ip;
        }
        let is_challenged = frames.frame_tx.path_challenge > new.challenges;
        new.challenges = frames.frame_tx.path_challenge;
        if transmit.destination != new.address {
            return;
        }
        if new.affordable() == 0 {
            new.responses = frames.frame_rx.path_response;
        }
        new.sent += contents.len() as u64;
        // quinn-proto adds its challenge to each packet until it has the response.
        if !is_challenged && frames.frame_rx.path_response > new.responses_before {
            self.new = None;
        }
    }

    /// Time of the next [`probe`](Self::probe).
    pub(crate) fn next(&self) -> Option<Instant> {
        self.new.as_ref().and_then(|new| new.next)
    }

    /// The copy of the `PATH_CHALLENGE` that is due at `now`, which the caller sends. `None` if it would exceed
    /// [`NewPath::budget`].
    pub(crate) fn probe(&mut self, connection: &Connection, now: Instant) -> Option<(Transmit, &[u8])> {
        let new = self.new.as_mut()?;
        let is_due = new.next.is_some_and(|next| next <= now);
        let is_answered = || connection.stats().frame_rx.path_response > new.responses_before;
        if !is_due || connection.is_closed() || is_answered() {
            new.next = new.next.filter(|_| !is_due);
            return None;
        }
        let size = new.challenge.len();
        new.next = None;
        // Without enough bytes, the next datagram from the address continues.
        if new.challenge.is_empty() || new.budget() < size as u64 {
            return None;
        }
        new.sent += size as u64;
        new.next = (new.interval <= LONGEST_INTERVAL).then(|| now + new.interval);
        new.interval *= 2;
        let (destination, src_ip) = (new.address, new.source);
        Some((Transmit { destination, ecn: None, size, segment_size: None, src_ip }, &new.challenge))
    }
}

impl NewPath {
    /// Bytes that may still be sent to the address (RFC 9000 section 8).
    fn budget(&self) -> u64 {
        (3 * self.received).saturating_sub(self.sent)
    }

    /// Datagrams of [`DATAGRAM`] bytes within [`Self::budget`], without [`RESERVE`].
    fn affordable(&self) -> usize {
        usize::try_from(self.budget().saturating_sub(RESERVE) / DATAGRAM).unwrap_or(usize::MAX)
    }
}
