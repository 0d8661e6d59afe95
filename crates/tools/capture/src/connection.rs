//! State of one TCP connection.

use std::net::SocketAddr;
use std::time::Duration;

use brisk_handshake_view::Party;

use crate::decode::{Control, Segment};
use crate::flags::Flags;
use crate::half::Verdict;
use crate::http::{Http, Place};
use crate::options::SynOptions;
use crate::secrets::Secrets;
use crate::side::Side;
use crate::stream::Room;
use crate::time::Nanos;
use crate::tls::TlsBytes;
use crate::waits::{Cause, Step, Waits};

/// Shortest retransmission timeout (Linux); earlier retransmissions have another cause.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum number of [`Row`]s of a ladder diagram.
const ROWS: usize = 2000;

/// Length of segments if no `SYN` was captured.
const USUAL_MSS: u16 = 1460;

/// Packet of a ladder diagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) packet: u64,
    pub(crate) time: Nanos,
    pub(crate) from: Party,
    pub(crate) control: Control,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) flags: Flags,
    /// Acknowledged bytes of the opposite direction; the window begins there.
    pub(crate) ack: Option<u32>,
    pub(crate) window: Option<u32>,
    /// Bytes in flight after the packet.
    pub(crate) in_flight: Option<u32>,
    /// Round trip that the packet ends.
    pub(crate) round_trip: Option<Duration>,
}

/// A TCP connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Number in the capture, from 0, as `tcp.stream` in Wireshark.
    pub(crate) number: u64,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) first: Nanos,
    pub(crate) latest: Nanos,
    /// State of the client and of the server.
    pub(crate) sides: [Side; 2],
    /// Latest `SYN` of the client.
    syn: Option<Nanos>,
    has_syn_ack: bool,
    /// Time of the acknowledgement that completes the TCP handshake.
    pub(crate) connected: Option<Nanos>,
    /// Time from `syn` to `connected`: the whole round trip.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) waits: Waits,
    pub(crate) tls: Option<Box<TlsBytes>>,
    /// Requests, if they are not encrypted or can be decrypted.
    pub(crate) http: Option<Box<Http>>,
    /// Changes from the server's data to the client's.
    turns: u32,
    last_data: Option<Party>,
    pub(crate) is_closed: bool,
    /// Segments with data in the `SYN` (Fast Open).
    pub(crate) syn_data: u32,
    /// [`Row`]s of the ladder diagram; `None` if none is wanted.
    pub(crate) rows: Option<Vec<Row>>,
    /// Further rows may be kept.
    pub(crate) has_room: bool,
}

impl Connection {
    /// A connection that begins with `segment`.
    pub(crate) fn new(number: u64, segment: &Segment<'_>, time: Nanos) -> Self {
        let control = segment.control;
        let is_from_server = match (control.has(Control::SYN), control.has(Control::ACK)) {
            (true, is_ack) => is_ack,
            // Without a handshake: services have lower ports than clients.
            (false, _) => segment.source.port() < segment.destination.port(),
        };
        let (client, server) = if is_from_server {
            (segment.destination, segment.source)
        } else {
            (segment.source, segment.destination)
        };
        Self {
            number,
            client,
            server,
            first: time,
            latest: time,
            sides: Default::default(),
            syn: None,
            has_syn_ack: false,
            connected: None,
            round_trip: None,
            waits: Waits::default(),
            tls: None,
            http: None,
            turns: 0,
            last_data: None,
            is_closed: false,
            syn_data: 0,
            rows: None,
            has_room: true,
        }
    }

    /// Sender of a segment.
    pub(crate) fn party(&self, segment: &Segment<'_>) -> Party {
        if segment.source == self.client { Party::Client } else { Party::Server }
    }

    /// Whether the segment opens another connection between the same ports.
    pub(crate) fn is_reused_by(&self, segment: &Segment<'_>) -> bool {
        let base = self.sides[self.party(segment) as usize].half.base;
        segment.control.is_open() && base.is_some_and(|base| base != segment.seq)
    }

    /// Adds a segment.
    pub(crate) fn add(
        &mut self,
        segment: &Segment<'_>,
        at: (u64, Nanos),
        is_reused: bool,
        secrets: &Secrets,
    ) -> Verdict {
        let from = self.party(segment);
        let (packet, time) = at;
        // Times of causes do not overlap, also if the clock of the recording goes backwards.
        self.latest = self.latest.max(time);
        let ordered = (packet, self.latest);
        // The value before this segment: its own acknowledgement may end the TCP handshake below.
        let round_trip = self.round_trip;
        let (side, other) = self.both(from);
        let mut verdict = side.half.analyse(segment, at, &mut other.half, round_trip);
        if is_reused {
            verdict.flags.add(Flags::REUSED_PORTS);
        }
        side.count(segment, &verdict);
        if let Some((_, sample)) = verdict.acked.filter(|_| verdict.is_sample) {
            side.round_trips.add(sample);
        }
        let acks_data = verdict.acked.is_some() && !segment.control.has(Control::SYN);
        other.first_burst.1 |= acks_data && other.first_burst.0 > 0;
        if acks_data || verdict.flags.has(Flags::DUPLICATE_ACK | Flags::WINDOW_UPDATE) {
            self.waits.acknowledged(from, self.latest);
        }
        self.handshake(segment, from, time);
        let mss = self.mss(if from == Party::Client { Party::Server } else { Party::Client });
        let (side, other) = self.both(from);
        other.room.acknowledged(&other.half, &side.half, mss, time);
        self.wait(segment, from, ordered, &verdict);
        self.deliver(segment, from, at, verdict.flags, secrets);
        self.close(segment, from, at);
        self.row(segment, from, at, &verdict);
        verdict
    }

    /// Keeps the packet for diagrams.
    fn row(&mut self, segment: &Segment<'_>, from: Party, (packet, time): (u64, Nanos), verdict: &Verdict) {
        let has_room = self.has_room;
        let Some(rows) = self.rows.as_mut().filter(|rows| has_room && rows.len() < ROWS) else { return };
        let [client, server] = &self.sides;
        let (side, other) = if from == Party::Client { (client, server) } else { (server, client) };
        let is_ack = segment.control.has(Control::ACK);
        rows.push(Row {
            packet,
            time,
            from,
            control: segment.control,
            offset: side.half.offset(segment.seq),
            len: segment.len,
            flags: verdict.flags,
            ack: is_ack.then(|| other.half.offset(segment.ack)),
            window: side.half.window(&other.half),
            in_flight: verdict.in_flight,
            round_trip: verdict.acked.filter(|_| verdict.is_sample).map(|(_, sample)| sample),
        });
    }

    /// Heap memory and size in bytes.
    pub(crate) fn memory(&self) -> usize {
        let sides = self.sides.iter().map(|side| side.half.memory() + side.stream.memory()).sum::<usize>();
        let tls = self.tls.as_ref().map_or(0, |tls| tls.memory());
        let http = self.http.as_ref().map_or(0, |http| size_of::<Http>() + http.memory());
        let rows = self.rows.as_ref().map_or(0, |rows| rows.capacity() * size_of::<Row>());
        size_of::<Self>() + sides + tls + http + rows + self.waits.memory()
    }

    fn handshake(&mut self, segment: &Segment<'_>, from: Party, time: Nanos) {
        let control = segment.control;
        let [client, server] = &mut self.sides;
        if control.has(Control::SYN) {
            let side = if from == Party::Client { &mut *client } else { &mut *server };
            side.syn = Some(SynOptions::from(&segment.options));
            side.stream.start(segment.seq.wrapping_add(1));
            self.syn_data = self.syn_data.saturating_add(segment.len);
        }
        if control.is_open() {
            // A repeated `SYN` starts anew, or the round trip would contain the retransmission timeout.
            self.syn = Some(time);
        }
        self.has_syn_ack |= control.has(Control::SYN) && control.has(Control::ACK);
        // RFC 7323 section 2.2: scaling is used only if both sides sent the option.
        if let [Some(one), Some(two)] = [client.syn, server.syn]
            && (one.window_scale.is_none() || two.window_scale.is_none())
        {
            client.half.disable_scaling();
            server.half.disable_scaling();
        }
        let is_ack = control.has(Control::ACK) && !control.has(Control::SYN | Control::RST);
        if let (Party::Client, true, true, None, Some(syn)) =
            (from, is_ack, self.has_syn_ack, self.connected, self.syn)
        {
            self.connected = Some(time);
            self.round_trip = Some(time.since(syn));
        }
    }

    /// Longest payload of a segment from `sender`.
    fn mss(&self, sender: Party) -> u32 {
        let receiver = &self.sides[1 - sender as usize];
        receiver.syn.and_then(|syn| syn.mss).unwrap_or(USUAL_MSS).into()
    }

    /// The side, and the other one.
    fn both(&mut self, from: Party) -> (&mut Side, &mut Side) {
        let [client, server] = &mut self.sides;
        if from == Party::Client { (client, server) } else { (server, client) }
    }

    /// Gives the time before the segment a cause.
    fn wait(&mut self, segment: &Segment<'_>, from: Party, (packet, time): (u64, Nanos), verdict: &Verdict) {
        let flags = verdict.flags;
        let unimportant = Flags::KEEP_ALIVE | Flags::ZERO_WINDOW_PROBE | Flags::SPURIOUS_RETRANSMISSION;
        let has_control = segment.control.has(Control::SYN | Control::FIN | Control::RST);
        if (segment.len > 0 || has_control) && !flags.has(unimportant) {
            if from == Party::Client && segment.len > 0 && self.last_data != Some(from) {
                self.turns += 1;
            }
            if segment.len > 0 {
                self.last_data = Some(from);
            }
            // With TLS, the second turn of the client still belongs to the handshake.
            let turns = if self.tls.is_some() { 2 } else { 1 };
            let (side, mss) = (&self.sides[from as usize], self.mss(from));
            let repair = self.repair(segment, from, verdict);
            // `repair` leaves out probes of a full window, and the time before a probe is the window's.
            let is_probe = repair.is_none() && flags.has(Flags::RETRANSMISSION);
            if is_probe || side.room.was_below(segment.len.min(mss)) {
                self.waits.blocked();
            }
            self.waits.step(&Step {
                time,
                packet,
                from,
                offset: side.half.offset(segment.seq),
                repair,
                round_trip: side.round_trips.least.unwrap_or_default(),
                receiver: self.sides[1 - from as usize].round_trips.least.unwrap_or_default(),
                len: segment.len,
                control: segment.control,
                mss,
                opened: side.room.opened(),
                is_handshake: self.turns <= turns && !segment.control.has(Control::FIN | Control::RST),
            });
            let (side, other) = self.both(from);
            side.room.sent(&side.half, &other.half);
        }
        if flags.has(Flags::WINDOW_FULL | Flags::ZERO_WINDOW) {
            self.waits.blocked();
        }
    }

    /// Cause of a segment that repeats or fills earlier bytes.
    fn repair(&self, segment: &Segment<'_>, from: Party, verdict: &Verdict) -> Option<Cause> {
        let flags = verdict.flags;
        if flags.has(Flags::OUT_OF_ORDER | Flags::FAST_RETRANSMISSION) {
            // If the recording contains the bytes already, they are sent again, although as early as reordered ones.
            let is_repeated = flags.has(Flags::FAST_RETRANSMISSION) || verdict.original.is_some();
            return Some(if is_repeated { Cause::FastRetransmission } else { Cause::Reordering });
        }
        if !flags.has(Flags::RETRANSMISSION) {
            return None;
        }
        if segment.control.has(Control::SYN) {
            return Some(Cause::LostSyn);
        }
        let since = verdict.original.map_or(Duration::ZERO, |(_, since)| since);
        // RFC 9293 section 3.8.6.1: a closed window is probed. Linux repeats the segment that filled the window, if the next one
        // does not fit; an acknowledgement is not missing before the timeout.
        let has_zero_window = self.sides[1 - from as usize].half.has_zero_window();
        if has_zero_window || flags.has(Flags::WINDOW_FULL) && since < TIMEOUT {
            return None;
        }
        let is_tail = self.sides[from as usize].half.next == Some(segment.next());
        match since {
            _ if since >= TIMEOUT => Some(Cause::Timeout),
            _ if is_tail => Some(Cause::TailLossProbe),
            _ => Some(Cause::FastRetransmission),
        }
    }

    /// Passes the bytes of the segment to the TLS analysis, in the order of the stream.
    fn deliver(
        &mut self,
        segment: &Segment<'_>,
        from: Party,
        (packet, time): (u64, Nanos),
        flags: Flags,
        secrets: &Secrets,
    ) {
        if segment.len == 0 || flags.has(Flags::KEEP_ALIVE) {
            return;
        }
        let side = &mut self.sides[from as usize];
        let (tls, http, first) = (&mut self.tls, &mut self.http, self.first);
        // RFC 9293 section 3.4: the `SYN` uses the first number, so the data of Fast Open begins behind it.
        let seq = segment.seq.wrapping_add(u32::from(segment.control.has(Control::SYN)));
        let missing = segment.len as usize - segment.payload.len();
        // A later segment could look like the begin of TLS or HTTP by chance. Without a captured handshake,
        // the first captured byte counts as the begin.
        let is_begin = side.half.offset(seq) == 0;
        let mut offset = side.delivered;
        let (mut is_other, mut is_known) = (false, tls.is_some() || http.is_some());
        let room = if http.is_some() { Room::Window } else { Room::Handshake };
        side.stream.add(seq, (segment.payload, missing), room, &mut |bytes| {
            let place = Place { packet, time, offset };
            offset += bytes.len() as u64;
            if !is_known && from == Party::Client && is_begin {
                *tls = TlsBytes::start(bytes, first);
                *http = Http::is_begin(bytes).then(Box::default);
                is_other = tls.is_none() && http.is_none();
            }
            is_known = true;
            match (&mut *tls, &mut *http) {
                (Some(tls), http) => tls.add(from, place, bytes, secrets, http),
                (None, Some(http)) => {
                    http.add(from, place, bytes);
                    is_other = http.is_other();
                }
                (None, None) => {}
            }
        });
        side.delivered = offset;
        // No protocol is recognised later, so neither direction needs memory for reassembly.
        if is_other {
            self.sides.iter_mut().for_each(|side| side.stream.end());
            // The first word of other protocols (SMTP, IRC) may be in upper case too.
            self.http = self.http.take().filter(|http| http.count() > 0);
        }
    }

    fn close(&mut self, segment: &Segment<'_>, from: Party, (packet, time): (u64, Nanos)) {
        if let (true, Some(http)) = (segment.control.has(Control::FIN), &mut self.http) {
            http.closed(from, Place { packet, time, offset: 0 });
        }
        // After the end of both directions, a reset only refuses late segments. The answer to a reset is none.
        self.is_closed |= self.sides.iter().all(|side| side.has_fin);
        let side = &mut self.sides[from as usize];
        side.has_fin |= segment.control.has(Control::FIN);
        side.has_reset |= segment.control.has(Control::RST) && !self.is_closed;
        self.is_closed |= side.has_reset || self.sides.iter().all(|side| side.has_fin);
    }
}
