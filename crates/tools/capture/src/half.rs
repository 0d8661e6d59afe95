//! One direction of a TCP connection, and the analysis of its segments by the rules of Wireshark.
//!
//! The rules and their precedence are those of "TCP Analysis" in Wireshark's user guide, so that both report the same for a
//! packet. They differ after a RST without ACK, whose acknowledgement number Wireshark takes as an acknowledgement.

use std::collections::VecDeque;
use std::time::Duration;

use crate::decode::{Control, Segment};
use crate::flags::Flags;
use crate::time::Nanos;

/// Maximum number of [`Unacked`] segments. Further ones have no round trip time.
const UNACKED: usize = 2048;

/// Longest time between the last duplicate acknowledgement and a fast retransmission.
const FAST: Duration = Duration::from_millis(20);

/// Latest arrival of a segment that was reordered, if the round trip time is unknown.
const REORDERED: Duration = Duration::from_millis(3);

/// Whether sequence number `a` is before `b` (RFC 9293 section 3.4).
pub(crate) const fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}

/// A segment without an acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Unacked {
    packet: u64,
    time: Nanos,
    begin: u32,
    end: u32,
}

/// Unit of the window field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scale {
    /// No `SYN` was captured.
    #[default]
    Unknown,
    /// Bytes, times two to the power of this number.
    Shift(u8),
}

/// State of one direction.
#[derive(Debug, Default)]
pub(crate) struct Half {
    /// Sequence number of the `SYN`, or the number before the first captured byte.
    pub(crate) base: Option<u32>,
    /// Sequence number after the highest captured byte.
    pub(crate) next: Option<u32>,
    next_time: Nanos,
    next_packet: u64,
    /// Highest sequence number whose acknowledgement is expected: `next`, until a gap in the capture.
    expected: Option<u32>,
    /// Latest acknowledgement number, of the opposite direction's bytes.
    pub(crate) ack: Option<u32>,
    ack_time: Nanos,
    /// Duplicate acknowledgements in sequence.
    duplicates: u32,
    /// The opposite direction acknowledged missing bytes since the latest acknowledgement, so that further ones are not reported.
    is_ack_lost: bool,
    window: u16,
    scale: Scale,
    /// `window` is that of a `SYN`, which is never scaled (RFC 7323 section 2.2).
    is_syn_window: bool,
    last: Flags,
    unacked: VecDeque<Unacked>,
    sack: Vec<(u32, u32)>,
    /// Bytes in flight are unknown after a gap until the next acknowledgement.
    has_gap: bool,
}

/// Result of the analysis of one segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) flags: Flags,
    /// Packet that carried the retransmitted bytes first, and the time since.
    pub(crate) original: Option<(u64, Duration)>,
    /// Acknowledged packet, and the time since.
    pub(crate) acked: Option<(u64, Duration)>,
    /// The acknowledged bytes were sent once only, so the time is a round trip (Karn's algorithm).
    pub(crate) is_sample: bool,
    /// Unacknowledged bytes of the direction after a segment with data.
    pub(crate) in_flight: Option<u32>,
}

impl Half {
    /// Analyses a segment of this direction. `round_trip` is that of the TCP handshake.
    pub(crate) fn analyse(
        &mut self,
        segment: &Segment<'_>,
        (packet, time): (u64, Nanos),
        reverse: &mut Self,
        round_trip: Option<Duration>,
    ) -> Verdict {
        self.begin(segment, reverse);
        // The flags compare the segment with the state before it, so window and numbers are updated below.
        let mut verdict = Verdict { flags: self.window_flags(segment, reverse), ..Verdict::default() };
        if segment.control.has(Control::ACK) && self.ack != Some(segment.ack) {
            (self.duplicates, self.is_ack_lost) = (0, false);
        }
        verdict.flags.add(Self::check_ack(segment, reverse));
        if segment.len > 0 || segment.control.has(Control::SYN | Control::FIN) {
            let found = self.retransmission(segment, time, reverse, round_trip, verdict.flags);
            verdict.flags.add(found);
            if found.has(Flags::RETRANSMISSION) {
                verdict.original = Some(self.original(segment.seq, time));
            } else if found.has(Flags::FAST_RETRANSMISSION | Flags::OUT_OF_ORDER) {
                let sent = self.unacked.iter().find(|sent| sent.begin == segment.seq);
                verdict.original = sent.map(|sent| (sent.packet, time.since(sent.time)));
            }
            self.sent(segment, (packet, time));
        }
        // The byte of a zero window probe does not count, unless it is acknowledged.
        if !verdict.flags.has(Flags::ZERO_WINDOW_PROBE) {
            self.advance(segment, (packet, time));
        }
        if segment.control.has(Control::SYN) {
            self.scale = Scale::Shift(segment.options.scale.unwrap_or(0));
        }
        (self.window, self.is_syn_window) = (segment.window, segment.control.has(Control::SYN));
        if segment.control.has(Control::ACK) {
            (self.ack, self.ack_time) = (Some(segment.ack), time);
            self.sack.clear();
            self.sack.extend_from_slice(segment.options.sack());
            reverse.acknowledge(segment.ack, time, &mut verdict);
        }
        self.last = verdict.flags;
        if segment.len > 0 && !self.has_gap {
            // SYN and FIN have a sequence number, but are no bytes.
            let control = u32::from(segment.control.has(Control::SYN | Control::FIN));
            verdict.in_flight = self.in_flight(&reverse.sack).map(|bytes| bytes - control);
        }
        verdict
    }

    /// Heap memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.unacked.capacity() * size_of::<Unacked>() + self.sack.capacity() * size_of::<(u32, u32)>()
    }

    /// Window in bytes; `None` if the scale is unknown.
    pub(crate) fn window(&self, reverse: &Self) -> Option<u32> {
        let shift = match (self.scale, reverse.scale) {
            _ if self.is_syn_window => 0,
            // RFC 7323 section 2.2: both sides must have sent the option. Without it, the shift is 0.
            (Scale::Shift(shift), _) => shift,
            (Scale::Unknown, _) => return None,
        };
        Some(u32::from(self.window) << shift)
    }

    /// Whether the latest packet of the direction closed the window ([`Flags::ZERO_WINDOW`]).
    pub(crate) fn has_zero_window(&self) -> bool {
        self.ack.is_some() && self.window == 0
    }

    /// Disables window scaling, which the peer does not support ([`Scale::Shift`] of 0).
    pub(crate) fn disable_scaling(&mut self) {
        self.scale = Scale::Shift(0);
    }

    /// Offset of a sequence number in the bytes of the direction.
    pub(crate) fn offset(&self, seq: u32) -> u32 {
        self.base.map_or(0, |base| seq.wrapping_sub(base).wrapping_sub(1))
    }

    fn begin(&mut self, segment: &Segment<'_>, reverse: &mut Self) {
        let is_syn = segment.control.has(Control::SYN);
        // As if a `SYN` had preceded, so that offsets begin with 0 in a capture without the handshake too.
        self.base.get_or_insert(if is_syn { segment.seq } else { segment.seq.wrapping_sub(1) });
        if segment.control.has(Control::ACK) {
            reverse.base.get_or_insert(segment.ack.wrapping_sub(1));
            reverse.has_gap = false;
        }
    }

    /// [`Flags`] that depend on sequence number and window.
    fn window_flags(&mut self, segment: &Segment<'_>, reverse: &Self) -> Flags {
        let mut flags = Flags::default();
        let is_next = self.next == Some(segment.seq);
        if segment.len == 1 && is_next && reverse.window == 0 && reverse.next.is_some() {
            return Flags::ZERO_WINDOW_PROBE;
        }
        let is_plain = !segment.control.has(Control::SYN | Control::FIN | Control::RST);
        if segment.window == 0 && is_plain {
            flags.add(Flags::ZERO_WINDOW);
        }
        // A reset may have any number within the window (RFC 9293 section 3.5.3), and is no sign of a loss.
        let is_beyond = self.next.is_some_and(|next| is_before(next, segment.seq));
        if is_beyond && !segment.control.has(Control::RST) {
            flags.add(Flags::LOST_SEGMENT);
            self.has_gap = true;
        }
        if !is_plain {
            return flags;
        }
        if segment.len <= 1 && self.next == Some(segment.seq.wrapping_add(1)) {
            flags.add(Flags::KEEP_ALIVE);
        }
        let end = segment.seq.wrapping_add(segment.len);
        let edge = reverse.ack.zip(reverse.window(self)).map(|(ack, window)| ack.wrapping_add(window));
        if segment.len > 0 && edge == Some(end) {
            flags.add(Flags::WINDOW_FULL);
        }
        let is_repeated = segment.len == 0 && is_next && self.ack == Some(segment.ack);
        if is_repeated {
            flags.add(self.repeated(segment, reverse));
        }
        flags
    }

    /// Kind of a segment without data that repeats sequence and acknowledgement numbers.
    fn repeated(&mut self, segment: &Segment<'_>, reverse: &Self) -> Flags {
        let is_same_window = segment.window == self.window;
        match segment.window {
            0 if is_same_window && reverse.last.has(Flags::ZERO_WINDOW_PROBE) => Flags::ZERO_WINDOW_PROBE_ACK,
            0 => Flags::default(),
            _ if is_same_window && reverse.last.has(Flags::KEEP_ALIVE) => Flags::KEEP_ALIVE_ACK,
            _ if is_same_window => {
                (self.duplicates, self.is_ack_lost) = (self.duplicates.saturating_add(1), false);
                Flags::DUPLICATE_ACK
            }
            _ => Flags::WINDOW_UPDATE,
        }
    }

    /// Finds acknowledgements of bytes that were not captured.
    fn check_ack(segment: &Segment<'_>, reverse: &mut Self) -> Flags {
        let Some(expected) = reverse.expected.filter(|expected| is_before(*expected, segment.ack)) else {
            return Flags::default();
        };
        if !segment.control.has(Control::ACK) {
            return Flags::default();
        }
        if reverse.next.is_some_and(|next| is_before(expected, next)) {
            reverse.expected = reverse.next;
            return Flags::ACK_LOST_SEGMENT;
        }
        // One result for each gap, also if the opposite direction sends acknowledgements only.
        let is_reported = reverse.is_ack_lost || reverse.duplicates > 0;
        (reverse.duplicates, reverse.is_ack_lost) = (0, true);
        if is_reported { Flags::default() } else { Flags::ACK_LOST_SEGMENT }
    }

    /// Kind of a segment with data, `SYN` or `FIN` that does not follow the highest sequence number.
    fn retransmission(
        &self,
        segment: &Segment<'_>,
        time: Nanos,
        reverse: &Self,
        round_trip: Option<Duration>,
        flags: Flags,
    ) -> Flags {
        if flags.has(Flags::KEEP_ALIVE) {
            return Flags::default();
        }
        let end = segment.seq.wrapping_add(segment.len);
        let is_acked = reverse.ack.is_some_and(|ack| !is_before(ack, end));
        if segment.len > 0 && is_acked {
            return Flags::SPURIOUS_RETRANSMISSION;
        }
        let Some(next) = self.next else { return Flags::default() };
        // After the byte of a zero window probe was refused, it is sent again with others.
        let is_after_probe = segment.len > 1 && next.wrapping_sub(1) == segment.seq;
        if !is_before(segment.seq, next) || is_after_probe {
            return Flags::default();
        }
        // Wireshark has the same limit of 20 ms.
        let is_soon = time.since(reverse.ack_time) < FAST;
        let is_repeated = reverse.duplicates >= 2 || reverse.is_ack_lost;
        if is_repeated && is_soon && reverse.ack == Some(segment.seq) {
            return Flags::FAST_RETRANSMISSION;
        }
        if time.since(self.next_time) < round_trip.unwrap_or(REORDERED) && next != segment.next() {
            return Flags::OUT_OF_ORDER;
        }
        Flags::RETRANSMISSION
    }

    /// Packet that carried these bytes first, the oldest unacknowledged one, or the one with the highest bytes.
    fn original(&self, seq: u32, time: Nanos) -> (u64, Duration) {
        let sent = self.unacked.iter().find(|sent| sent.begin == seq).or(self.unacked.front());
        let (packet, since) =
            sent.map_or((self.next_packet, self.next_time), |sent| (sent.packet, sent.time));
        (packet, time.since(since))
    }

    /// Remembers a segment with data, `SYN` or `FIN`.
    fn sent(&mut self, segment: &Segment<'_>, (packet, time): (u64, Nanos)) {
        let (begin, end) = (segment.seq, segment.next());
        if self.unacked.len() < UNACKED {
            self.unacked.push_back(Unacked { packet, time, begin, end });
        }
    }

    /// Notes the highest sequence number, and the one whose acknowledgement is expected.
    fn advance(&mut self, segment: &Segment<'_>, (packet, time): (u64, Nanos)) {
        let end = segment.next();
        if self.next.is_none_or(|next| is_before(next, end)) {
            (self.next, self.next_time, self.next_packet) = (Some(end), time, packet);
        }
        if self.expected.is_none_or(|expected| expected == segment.seq) {
            self.expected = self.next;
        }
    }

    /// Removes the segments before `ack`.
    fn acknowledge(&mut self, ack: u32, time: Nanos, verdict: &mut Verdict) {
        let mut samples = 0;
        self.unacked.retain_mut(|sent| {
            if is_before(ack, sent.end) {
                if is_before(sent.begin, ack) {
                    sent.begin = ack;
                }
                return true;
            }
            // Only the segment that ends there: the acknowledgement of earlier ones was delayed until then.
            if sent.end == ack {
                verdict.acked.get_or_insert((sent.packet, time.since(sent.time)));
                samples += 1;
            }
            false
        });
        verdict.is_sample = samples == 1;
        // A queue keeps the capacity of its longest flight, which adds up over thousands of connections.
        if self.unacked.is_empty() && self.unacked.capacity() > 64 {
            self.unacked = VecDeque::new();
        }
    }

    /// Bytes without acknowledgement, less those in `sack` blocks.
    fn in_flight(&self, sack: &[(u32, u32)]) -> Option<u32> {
        let base = self.base?;
        // Relative numbers, since minimum and maximum of wrapped ones would be wrong.
        let relative = |seq: u32| seq.wrapping_sub(base);
        let begin = self.unacked.iter().map(|sent| relative(sent.begin)).min()?;
        let end = self.unacked.iter().map(|sent| relative(sent.end)).max()?;
        let sacked = sack.iter().map(|(begin, end)| end.wrapping_sub(*begin));
        let sacked = sacked.fold(0, u32::saturating_add);
        end.checked_sub(begin)?.checked_sub(sacked).filter(|bytes| *bytes > 0)
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(mut self, other: Self) -> Self {
        self.add(other);
        self
    }
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::Party::{Client, Server};

    use crate::analysis::Settings;
    use crate::decode::Control;
    use crate::testing::{Written, flags, handshake, pcap, results};

    /// Results of the packets after a handshake.
    fn after(packets: Vec<Written>) -> Vec<String> {
        flags(handshake().into_iter().chain(packets)).split_off(3)
    }

    fn data(millis: u64, seq: u32) -> Written {
        Written::new(millis, Server, seq, 101, &[7; 100])
    }

    fn ack(millis: u64, ack: u32) -> Written {
        Written::new(millis, Client, 101, ack, b"")
    }

    #[test]
    fn retransmissions_are_distinguished_by_acknowledgements_and_time() {
        let lost = |repeated: Written| {
            let mut packets = vec![data(40, 501), data(41, 601), data(42, 701), ack(50, 601)];
            packets.extend([ack(51, 601), ack(52, 601), repeated]);
            after(packets).pop().expect("the last one")
        };
        assert_eq!(lost(data(55, 601)), "fast_retransmission");
        assert_eq!(lost(data(300, 601)), "retransmission");
        assert_eq!(lost(data(55, 501)), "spurious_retransmission");
        let reordered = after(vec![data(40, 501), data(41, 701), data(42, 601)]);
        assert_eq!(reordered, ["", "lost_segment", "out_of_order"]);
        let dup_acks = after(vec![data(40, 501), ack(50, 601), ack(51, 601), ack(52, 601)]);
        assert_eq!(dup_acks, ["", "", "duplicate_ack", "duplicate_ack"]);
        let syn = flags([handshake().remove(0), Written { micros: 1_000_000, ..handshake().remove(0) }]);
        assert_eq!(syn, ["", "retransmission"]);
    }

    #[test]
    fn windows_and_probes_are_recognised() {
        let filled = Written::new(40, Server, 501, 101, &[7; 1000]);
        let probe = |millis| Written::new(millis, Server, 1501, 101, b"p");
        let packets = vec![
            filled,
            ack(50, 1501).window(0),
            probe(300),
            ack(310, 1501).window(0),
            ack(400, 1501).window(500),
            ack(401, 1501).window(900),
        ];
        let found = after(packets);
        let probe_ack = "zero_window zero_window_probe_ack";
        let wanted =
            ["window_full", "zero_window", "zero_window_probe", probe_ack, "window_update", "window_update"];
        assert_eq!(found, wanted);
    }

    #[test]
    fn keep_alives_and_gaps_of_the_recording_are_recognised() {
        let keep_alive = Written::new(9000, Server, 600, 101, b"");
        let found = after(vec![data(40, 501), ack(50, 601), keep_alive, ack(9010, 601), ack(9011, 901)]);
        assert_eq!(found, ["", "", "keep_alive", "keep_alive_ack", "ack_lost_segment"]);
        assert_eq!(after(vec![data(40, 501), data(50, 801)]), ["", "lost_segment"]);
    }

    #[test]
    fn acknowledgements_of_missing_bytes_are_reported_once_for_each_gap() {
        // A FIN and its acknowledgement after a keep-alive whose byte is not in the recording.
        let fin = |millis, from, seq, ack| {
            Written::new(millis, from, seq, ack, b"").control(Control::FIN | Control::ACK)
        };
        let first = [Written::new(0, Client, 795, 955, b""), Written::new(1, Server, 955, 796, b"")];
        let last =
            [fin(2, Client, 796, 955), fin(3, Server, 955, 797), Written::new(4, Client, 797, 956, b"")];
        let found = flags(first.into_iter().chain(last));
        assert_eq!(found, ["", "ack_lost_segment", "lost_segment", "ack_lost_segment", ""]);
        // Repeated acknowledgements of the same gap, also after duplicate acknowledgements of the other side.
        let found = after(vec![data(40, 501), ack(41, 901), ack(42, 1001), ack(43, 1101)]);
        assert_eq!(found, ["", "ack_lost_segment", "", ""]);
        let server = |millis| Written::new(millis, Server, 601, 101, b"");
        let found = after(vec![data(40, 501), server(41), server(42), ack(43, 901)]);
        assert_eq!(found, ["", "duplicate_ack", "duplicate_ack", ""]);
        // After a captured segment behind the gap.
        let found = after(vec![data(40, 501), data(41, 901), ack(42, 701), ack(43, 1001), ack(44, 1101)]);
        assert_eq!(found, ["", "lost_segment", "ack_lost_segment", "", "ack_lost_segment"]);
    }

    #[test]
    fn bytes_in_flight_do_not_contain_a_fin() {
        let last = data(41, 601).control(Control::FIN | Control::ACK);
        let capture = pcap(handshake().into_iter().chain([data(40, 501), last]));
        let (results, _) = results(&capture, Settings::default());
        let in_flight: Vec<_> = results.packets.iter().map(|packet| packet.in_flight).collect();
        assert_eq!(in_flight, [None, None, None, Some(100), Some(200)]);
    }

    #[test]
    fn sequence_numbers_wrap() {
        let client = |millis, seq: u32, control| Written::new(millis, Client, seq, 0, b"").control(control);
        let packets = [
            client(0, u32::MAX - 50, Control::SYN),
            Written::new(20, Server, 500, u32::MAX - 49, b"").control(Control::SYN | Control::ACK),
            Written::new(30, Client, u32::MAX - 49, 501, &[7; 100]),
            Written::new(31, Client, 50, 501, &[7; 100]),
            Written::new(50, Server, 501, 150, b""),
            Written::new(400, Client, u32::MAX - 49, 501, &[7; 100]),
        ];
        assert_eq!(flags(packets), ["", "", "", "", "", "spurious_retransmission"]);
    }
}
