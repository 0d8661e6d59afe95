//! State of one side of a connection.

use std::time::Duration;

use crate::decode::Segment;
use crate::flags::{FlagCounts, Flags};
use crate::half::{Half, Verdict};
use crate::options::SynOptions;
use crate::room::Room;
use crate::stream::Stream;

/// One side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) half: Half,
    pub(crate) stream: Stream,
    /// Bytes delivered from `stream`.
    pub(crate) delivered: u64,
    pub(crate) syn: Option<SynOptions>,
    pub(crate) packets: u64,
    /// Payload bytes, repeated ones included.
    pub(crate) bytes: u64,
    pub(crate) counts: FlagCounts,
    pub(crate) round_trips: RoundTrips,
    /// Largest number of bytes in flight.
    pub(crate) in_flight: u32,
    /// Bytes sent before the first acknowledgement of data, and whether it has arrived.
    pub(crate) first_burst: (u32, bool),
    pub(crate) has_fin: bool,
    /// The side has reset the connection before its end.
    pub(crate) has_reset: bool,
    pub(crate) room: Room,
}

/// Round trips between the place of the recording and one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrips {
    pub(crate) count: u64,
    pub(crate) least: Option<Duration>,
    pub(crate) most: Duration,
    sum: Duration,
}

impl RoundTrips {
    pub(crate) fn add(&mut self, sample: Duration) {
        self.count += 1;
        self.sum += sample;
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        self.most = self.most.max(sample);
    }

    /// Mean of all samples.
    pub(crate) fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos((self.sum.as_nanos() / u128::from(self.count)) as u64))
    }
}

impl Side {
    /// Counts a segment of the side.
    pub(crate) fn count(&mut self, segment: &Segment<'_>, verdict: &Verdict) {
        self.packets += 1;
        self.bytes += u64::from(segment.len);
        self.counts.add(verdict.flags);
        self.in_flight = self.in_flight.max(verdict.in_flight.unwrap_or(0));
        let repeats = Flags::RETRANSMISSION | Flags::SPURIOUS_RETRANSMISSION | Flags::FAST_RETRANSMISSION;
        if !self.first_burst.1 && !verdict.flags.has(repeats) {
            self.first_burst.0 = self.first_burst.0.saturating_add(segment.len);
        }
    }
}
