//! Bytes of one direction in the order of the stream, from segments in any order.

use std::collections::VecDeque;

use crate::half::is_before;

/// Segments kept behind a gap.
const SEGMENTS: usize = 4096;

/// Bytes kept behind a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// 64 KiB: enough for a handshake.
    Handshake,
    /// 4 MiB, a large window: requests are read until the end of the connection.
    Window,
}

impl Room {
    const fn bytes(self) -> usize {
        match self {
            Self::Handshake => 64 * 1024,
            Self::Window => 4 * 1024 * 1024,
        }
    }
}

/// Reassembly of one direction. The first copy of a byte counts. Bounded by [`Room`], in 4096 segments.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the next byte.
    next: Option<u32>,
    /// Segments behind a gap, by sequence number.
    later: VecDeque<(u32, Vec<u8>)>,
    kept: usize,
    /// Whether bytes are missing beyond [`Room`], or [`end`](Self::end) was called: no further bytes are delivered.
    is_broken: bool,
}

impl Stream {
    /// Starts after a `SYN`.
    pub(crate) fn start(&mut self, seq: u32) {
        self.next.get_or_insert(seq);
    }

    /// Adds the bytes of a segment, of which `missing` more were not captured. Calls `deliver` with bytes of the stream.
    pub(crate) fn add(
        &mut self,
        seq: u32,
        (bytes, missing): (&[u8], usize),
        room: Room,
        deliver: &mut dyn FnMut(&[u8]),
    ) {
        if self.is_broken || bytes.is_empty() && missing == 0 {
            return;
        }
        let next = *self.next.get_or_insert(seq);
        if is_before(next, seq) {
            self.keep(seq, bytes, missing, room);
            return;
        }
        self.take(seq, bytes, deliver);
        while let Some((seq, bytes)) = self.later.pop_front() {
            if self.next.is_some_and(|next| is_before(next, seq)) {
                self.later.push_front((seq, bytes));
                break;
            }
            self.kept -= bytes.len();
            self.take(seq, &bytes, deliver);
        }
        if missing > 0 {
            self.end();
        }
    }

    /// Heap memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.kept + self.later.capacity() * size_of::<(u32, Vec<u8>)>()
    }

    /// Stops the reassembly and frees the memory of `later`.
    pub(crate) fn end(&mut self) {
        *self = Self { is_broken: true, ..Self::default() };
    }

    fn take(&mut self, seq: u32, bytes: &[u8], deliver: &mut dyn FnMut(&[u8])) {
        let next = self.next.unwrap_or(seq);
        // A retransmission may overlap: only its end is new.
        let known = next.wrapping_sub(seq) as usize;
        if let Some(fresh) = bytes.get(known..).filter(|fresh| !fresh.is_empty()) {
            self.next = Some(next.wrapping_add(fresh.len() as u32));
            deliver(fresh);
        }
    }

    fn keep(&mut self, seq: u32, bytes: &[u8], missing: usize, room: Room) {
        let is_full = self.kept + bytes.len() > room.bytes() || self.later.len() == SEGMENTS;
        // Bytes that were not captured never arrive, so the memory of the later ones would be wasted.
        if is_full || missing > 0 {
            self.end();
            return;
        }
        // Retransmissions behind a gap must not fill the room.
        let is_known = self.later.iter().any(|(kept, held)| *kept == seq && held.len() >= bytes.len());
        if !is_known {
            self.kept += bytes.len();
            let place = self.later.partition_point(|(kept, _)| is_before(*kept, seq));
            self.later.insert(place, (seq, bytes.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(segments: &[(u32, &[u8], usize)]) -> (Vec<u8>, Stream) {
        let (mut stream, mut bytes) = (Stream::default(), Vec::new());
        stream.start(u32::MAX - 1);
        for (seq, piece, missing) in segments {
            stream.add(*seq, (piece, *missing), Room::Handshake, &mut |piece| bytes.extend_from_slice(piece));
        }
        (bytes, stream)
    }

    #[test]
    fn segments_in_any_order_with_overlaps_and_wrap_are_the_stream() {
        let (bytes, stream) = read(&[
            (3, b"fg", 0),
            (0, b"cXX", 0),
            (u32::MAX - 1, b"ab", 0),
            (1, b"de", 0),
            (2, b"e", 0),
            (0, b"cdefgh", 0),
        ]);
        // The first copy of a byte counts, also if it arrived before its turn.
        assert_eq!(String::from_utf8_lossy(&bytes), "abcXXfgh");
        assert_eq!((stream.kept, stream.is_broken), (0, false));
    }

    #[test]
    fn bytes_behind_a_gap_are_bounded_and_a_truncated_packet_ends_the_stream() {
        for room in [Room::Handshake, Room::Window] {
            let (mut stream, mut count, mut most) = (Stream::default(), 0, 0);
            stream.start(0);
            for number in 0..5000_u32 {
                stream.add(1 + number * 1000, (&[7; 1000], 0), room, &mut |_| count += 1);
                most = most.max(stream.kept);
                assert!(stream.memory() <= room.bytes() + SEGMENTS * 64);
            }
            assert!(most > room.bytes() / 2 && stream.is_broken && count == 0 && stream.memory() == 0);
        }
        let (bytes, stream) = read(&[(u32::MAX - 1, b"ab", 5), (5, b"later", 0)]);
        assert!(bytes == b"ab" && stream.is_broken);
    }
}
