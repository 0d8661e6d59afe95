//! Division of a connection's time into causes.
//!
//! The time between two steps of a connection has a [`Cause`]. Steps are `SYN`, `FIN`, `RST` and new data; acknowledgements and
//! probes only explain the time before the next step.

use std::time::Duration;

use brisk_handshake_view::Party;
use serde::Serialize;

use crate::decode::Control;
use crate::time::Nanos;

/// Maximum number of [`Span`]s kept for each connection: the longest ones.
const SPANS: usize = 48;

/// Shortest time that is kept as a [`Span`].
const SHORTEST: Duration = Duration::from_micros(200);

/// Whole segments in a flight before a congestion window can have been full.
const WINDOW: u64 = 4;

/// Segments before it can have been full if some are short, as at the end of a buffer: the initial window of RFC 2581 is 3.
const SEGMENTS: u64 = 3;

/// Bytes of a segment that timestamps take from the payload.
const TIMESTAMPS: u32 = 12;

/// Usual delay of an acknowledgement (Linux: 40 ms), less the tolerance of timers.
const DELAYED: Duration = Duration::from_millis(35);

/// Cause of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The round trip between a message and the response to it, without the time of the other side.
    RoundTrip,
    /// Work of the server before a message.
    Server,
    /// Work of the client before a message of the handshake, or between two parts of a request.
    Client,
    /// The client had no request.
    Waiting,
    /// A `SYN` was not answered.
    LostSyn,
    /// A retransmission after a timeout.
    Timeout,
    /// A retransmission after duplicate acknowledgements.
    FastRetransmission,
    /// A retransmission of the last segment before the timeout (RFC 8985 section 7).
    TailLossProbe,
    /// Segments arrived in the wrong order, or an earlier one was lost before the place of the recording.
    Reordering,
    /// The congestion window was full, so that the sender waited for an acknowledgement.
    CongestionWindow,
    /// A short segment waited for a delayed acknowledgement (Nagle's algorithm).
    DelayedAck,
    /// The client's receive window was full.
    ClientWindow,
    /// The server's receive window was full.
    ServerWindow,
}

/// Kind of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Network,
    Server,
    Client,
    Waiting,
}

impl Cause {
    /// All causes.
    pub(crate) const ALL: [Self; 13] = [
        Self::RoundTrip,
        Self::Server,
        Self::Client,
        Self::Waiting,
        Self::LostSyn,
        Self::Timeout,
        Self::FastRetransmission,
        Self::TailLossProbe,
        Self::Reordering,
        Self::CongestionWindow,
        Self::DelayedAck,
        Self::ClientWindow,
        Self::ServerWindow,
    ];

    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Server | Self::ServerWindow => Kind::Server,
            Self::Client | Self::ClientWindow => Kind::Client,
            Self::Waiting => Kind::Waiting,
            _ => Kind::Network,
        }
    }

    /// Name, as in JSON, such as `round-trip`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round-trip",
            Self::Server => "server",
            Self::Client => "client",
            Self::Waiting => "waiting",
            Self::LostSyn => "lost-syn",
            Self::Timeout => "timeout",
            Self::FastRetransmission => "fast-retransmission",
            Self::TailLossProbe => "tail-loss-probe",
            Self::Reordering => "reordering",
            Self::CongestionWindow => "congestion-window",
            Self::DelayedAck => "delayed-ack",
            Self::ClientWindow => "client-window",
            Self::ServerWindow => "server-window",
        }
    }

    /// Text of the cause in front of the name of a message.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::RoundTrip => "round trips",
            Self::Server => "server before",
            Self::Client => "client before",
            Self::Waiting => "waiting",
            Self::LostSyn => "lost SYN",
            Self::Timeout => "retransmission timeout of",
            Self::FastRetransmission => "fast retransmission of",
            Self::TailLossProbe => "tail loss probe of",
            Self::Reordering => "reordering or loss of",
            Self::CongestionWindow => "congestion window before",
            Self::DelayedAck => "delayed acknowledgement before",
            Self::ClientWindow => "client's full window before",
            Self::ServerWindow => "server's full window before",
        }
    }
}

/// A time with one cause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) cause: Cause,
    pub(crate) time: Duration,
    /// Packet that ended it.
    pub(crate) packet: u64,
    /// Sender of `packet`.
    pub(crate) from: Party,
    /// Offset of the packet's first byte in the bytes of its sender.
    pub(crate) offset: u32,
    /// Payload bytes of the packet.
    pub(crate) len: u32,
    pub(crate) control: Control,
}

/// A step of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) time: Nanos,
    pub(crate) packet: u64,
    pub(crate) from: Party,
    pub(crate) offset: u32,
    /// Set if the packet repeats or fills earlier bytes.
    pub(crate) repair: Option<Cause>,
    /// Round trip between the place of the recording and the sender.
    pub(crate) round_trip: Duration,
    /// Round trip between the place of the recording and the receiver.
    pub(crate) receiver: Duration,
    /// Payload bytes.
    pub(crate) len: u32,
    pub(crate) control: Control,
    /// Maximum payload of a segment.
    pub(crate) mss: u32,
    /// Time at which a window that had been too small had room again.
    pub(crate) opened: Option<Nanos>,
    /// The packet belongs to a handshake, so that a client without a message to send has no reason to wait.
    pub(crate) is_handshake: bool,
}

/// Times of a connection until now.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    last: Option<(Nanos, Party)>,
    /// Latest acknowledgement of new data since the last step.
    acked: Option<Nanos>,
    /// The window of the last step's receiver was full.
    is_blocked: bool,
    /// Payload bytes that the sender of the last step sent since it was the other side's turn.
    flight: u64,
    /// Number of segments that contained these bytes.
    segments: u64,
    /// Whether the other side acknowledged some of the `flight` bytes.
    is_acked: bool,
    totals: [Duration; Cause::ALL.len()],
    spans: Vec<Span>,
}

impl Waits {
    /// An acknowledgement, also a duplicate one, for the sender of the last step.
    pub(crate) fn acknowledged(&mut self, by: Party, time: Nanos) {
        if self.last.is_some_and(|(_, from)| from != by) {
            self.acked.get_or_insert(time);
            self.is_acked = true;
        }
    }

    /// The window of the receiver is full or zero.
    pub(crate) fn blocked(&mut self) {
        self.is_blocked = true;
    }

    /// A step, which gives the time before it a cause.
    pub(crate) fn step(&mut self, step: &Step) {
        let (acked, is_blocked) = (self.acked.take(), std::mem::take(&mut self.is_blocked));
        let last = self.last.replace((step.time, step.from));
        // A response of the other side acknowledges the flight, so the next one starts with no bytes in
        // flight.
        if last.is_none_or(|(_, from)| from != step.from) {
            (self.flight, self.segments, self.is_acked) = (0, 0, false);
        }
        let flight = self.flight;
        self.flight += u64::from(step.len);
        let segments = self.segments;
        self.segments += u64::from(step.len.div_ceil(step.mss.max(1)));
        // Whether the sender could have filled its window.
        let is_long = flight >= WINDOW * u64::from(step.mss)
            || segments >= SEGMENTS && flight >= u64::from(2 * step.mss.saturating_sub(TIMESTAMPS));
        let Some((since, from)) = last else { return };
        let gap = step.time.since(since);
        let own = match step.from {
            Party::Server => Cause::Server,
            Party::Client if step.is_handshake => Cause::Client,
            Party::Client => Cause::Waiting,
        };
        if let Some(cause) = step.repair {
            self.add(cause, gap, step);
        // The network has at most a round trip; the rest is the time of the side that had its turn.
        } else if from != step.from {
            let network = gap.min(step.round_trip);
            self.add(Cause::RoundTrip, network, step);
            self.add(own, gap.saturating_sub(network), step);
        } else if is_blocked {
            self.window(step, gap, since);
        } else {
            self.same_side(step, gap, acked.map(|acked| acked.since(since)), is_long, own);
        }
    }

    /// Time in which the receive window was too small, until the sender could have used the room: then it is the sender's.
    fn window(&mut self, step: &Step, gap: Duration, since: Nanos) {
        let (window, own) = match step.from {
            Party::Server => (Cause::ClientWindow, Cause::Server),
            Party::Client => (Cause::ServerWindow, Cause::Client),
        };
        let released = step.opened.map(|opened| opened.since(since) + step.round_trip);
        let late = released.map_or(Duration::ZERO, |released| gap.saturating_sub(released));
        let late =
            if late < ((step.round_trip + step.receiver) / 4).max(SHORTEST) { Duration::ZERO } else { late };
        self.add(window, gap.saturating_sub(late), step);
        self.add(own, late, step);
    }

    /// Time between two steps of one side; `acked`: time of the first acknowledgement in between.
    fn same_side(&mut self, step: &Step, gap: Duration, acked: Option<Duration>, is_long: bool, own: Cause) {
        let own = if step.from == Party::Client { Cause::Client } else { own };
        let trip = step.round_trip + step.receiver;
        // Near the receiver, acknowledgements of a round trip ago count.
        let is_near_receiver = step.round_trip > step.receiver;
        let earlier = (self.is_acked && is_near_receiver).then_some(Duration::ZERO);
        let Some(acked) = acked.or(earlier).filter(|_| gap >= SHORTEST) else {
            self.add(own, gap, step);
            return;
        };
        // Near the sender, an acknowledgement comes a round trip later and releases the segment at once. Near the receiver, it
        // leaves at once and the segment comes a round trip later.
        let released = acked + step.round_trip;
        let is_prompt = gap.saturating_sub(released) < (trip / 4).max(SHORTEST);
        let is_delayed = is_prompt && step.len + TIMESTAMPS < step.mss && acked >= step.receiver + DELAYED;
        if is_delayed {
            self.add(Cause::DelayedAck, gap, step);
        } else if is_prompt && is_long {
            self.add(Cause::CongestionWindow, gap, step);
        } else {
            self.add(own, gap, step);
        }
    }

    fn add(&mut self, cause: Cause, time: Duration, step: &Step) {
        // Before the limit: many short times add up, although none is worth a span.
        self.totals[cause as usize] += time;
        if time < SHORTEST {
            return;
        }
        let Step { packet, from, offset, len, control, .. } = *step;
        let span = Span { cause, time, packet, from, offset, len, control };
        if self.spans.len() < SPANS {
            self.spans.push(span);
            return;
        }
        // Linear, but over `SPANS` entries only.
        let shortest = self.spans.iter_mut().min_by_key(|span| span.time);
        if let Some(shortest) = shortest.filter(|shortest| shortest.time < time) {
            *shortest = span;
        }
    }

    /// Sum of the times with `cause`.
    pub(crate) fn total(&self, cause: Cause) -> Duration {
        self.totals[cause as usize]
    }

    /// Sum of the times of a [`Kind`].
    pub(crate) fn sum(&self, kind: Kind) -> Duration {
        Cause::ALL.into_iter().filter(|cause| cause.kind() == kind).map(|cause| self.total(cause)).sum()
    }

    /// The longest spans, in no order.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Heap memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn step(at: u64, from: Party) -> Step {
        Step {
            time: Nanos(at * 1_000_000),
            packet: at,
            from,
            offset: 0,
            repair: None,
            round_trip: MS(20),
            receiver: Duration::ZERO,
            len: 1448,
            control: Control::default(),
            mss: 1460,
            opened: None,
            is_handshake: true,
        }
    }

    #[test]
    fn a_turn_is_a_round_trip_and_the_rest_is_the_senders() {
        let mut waits = Waits::default();
        waits.step(&step(0, Party::Client));
        waits.step(&step(25, Party::Server));
        waits.step(&step(46, Party::Client));
        waits.step(&Step { is_handshake: false, ..step(51, Party::Client) });
        waits.step(&step(61, Party::Server));
        waits.step(&Step { is_handshake: false, ..step(1081, Party::Client) });
        let total = |cause| waits.total(cause).as_millis();
        assert_eq!((total(Cause::RoundTrip), total(Cause::Server)), (20 + 20 + 10 + 20, 5));
        assert_eq!((total(Cause::Client), total(Cause::Waiting)), (1 + 5, 1000));
        let all = Cause::ALL.map(|cause| waits.total(cause)).into_iter().sum::<Duration>();
        assert_eq!(all, MS(1081));
        assert_eq!(waits.sum(Kind::Network), MS(70));
    }

    #[test]
    fn pauses_of_one_side_are_explained_by_acknowledgements_and_windows() {
        let mut waits = Waits::default();
        // Recorded at the server: the acknowledgement comes after a round trip.
        let server = |at| Step { round_trip: Duration::ZERO, receiver: MS(20), ..step(at, Party::Server) };
        let acked = |waits: &mut Waits, at: u64| waits.acknowledged(Party::Client, Nanos(at * 1_000_000));
        waits.step(&Step { len: 4 * 1460, ..server(0) });
        acked(&mut waits, 20);
        waits.step(&server(20));
        acked(&mut waits, 80);
        waits.step(&Step { len: 100, ..server(80) });
        waits.blocked();
        waits.step(&server(180));
        waits.step(&Step { repair: Some(Cause::Timeout), ..server(380) });
        waits.step(&server(400));
        acked(&mut waits, 420);
        waits.step(&server(700));
        let total = |cause| waits.total(cause).as_millis();
        assert_eq!((total(Cause::CongestionWindow), total(Cause::DelayedAck)), (20, 60));
        assert_eq!(
            (total(Cause::ClientWindow), total(Cause::Timeout), total(Cause::Server)),
            (100, 200, 320)
        );
    }

    #[test]
    fn a_congestion_window_is_recognised_near_the_receiver_and_a_busy_server_is_none() {
        let mut waits = Waits::default();
        let flight = |len, at| Step { len, ..step(at, Party::Server) };
        waits.step(&flight(14_600, 0));
        waits.acknowledged(Party::Client, Nanos(0));
        waits.step(&flight(14_600, 20));
        waits.acknowledged(Party::Client, Nanos(20_000_000));
        waits.step(&flight(1000, 80));
        waits.step(&flight(1000, 90));
        assert_eq!((waits.total(Cause::CongestionWindow), waits.total(Cause::Server)), (MS(30), MS(60)));
        // Three segments are the initial window of RFC 2581; more segments follow after the acknowledgement.
        let mut waits = Waits::default();
        for len in [1448, 1448, 1200] {
            waits.step(&flight(len, 0));
        }
        waits.acknowledged(Party::Client, Nanos(0));
        waits.step(&flight(900, 20));
        assert_eq!((waits.total(Cause::CongestionWindow), waits.total(Cause::Server)), (MS(20), MS(0)));
        // A short flight fills no window: the certificate came later than the hello.
        let mut waits = Waits::default();
        waits.step(&flight(100, 0));
        waits.acknowledged(Party::Client, Nanos(0));
        waits.step(&flight(3000, 18));
        assert_eq!((waits.total(Cause::CongestionWindow), waits.total(Cause::Server)), (MS(0), MS(18)));
    }

    #[test]
    fn the_longest_spans_are_kept() {
        let mut waits = Waits::default();
        let mut at = 0;
        for number in 0..1000 {
            at += number % 100;
            waits.step(&step(at, Party::Server));
        }
        assert_eq!(waits.spans().len(), SPANS);
        assert!(waits.spans().iter().all(|span| span.time >= MS(95)));
    }
}
