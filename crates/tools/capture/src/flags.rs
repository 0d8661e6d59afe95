//! Results of the TCP analysis of a packet, named as in Wireshark.

use serde::{Serialize, Serializer};

/// Set of results of the analysis, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

/// Defines the results: constants and names.
macro_rules! results {
    ($($(#[$doc:meta])* $constant:ident = $bit:literal, $name:literal;)+) => {
        impl Flags {
            $($(#[$doc])* pub const $constant: Self = Self(1 << $bit);)+

            /// Every result with its name after `tcp.analysis.`.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$constant, $name)),+];
        }
    };
}

results! {
    /// A `SYN` between addresses and ports of an earlier connection.
    REUSED_PORTS = 0, "reused_ports";
    /// One byte beyond a window of zero.
    ZERO_WINDOW_PROBE = 1, "zero_window_probe";
    /// The receiver accepts no further data.
    ZERO_WINDOW = 2, "zero_window";
    /// The response to a zero window probe.
    ZERO_WINDOW_PROBE_ACK = 3, "zero_window_probe_ack";
    /// Earlier bytes of the direction are missing in the capture.
    LOST_SEGMENT = 4, "lost_segment";
    /// Acknowledgement of bytes that are missing in the capture.
    ACK_LOST_SEGMENT = 5, "ack_lost_segment";
    /// Repeated byte before the next one, without effect but a response.
    KEEP_ALIVE = 6, "keep_alive";
    /// The response to a keep-alive.
    KEEP_ALIVE_ACK = 7, "keep_alive_ack";
    /// Only the window differs from the previous packet of the direction.
    WINDOW_UPDATE = 8, "window_update";
    /// The segment fills the receiver's window.
    WINDOW_FULL = 9, "window_full";
    /// A repeated acknowledgement.
    DUPLICATE_ACK = 10, "duplicate_ack";
    /// Bytes that had been acknowledged are sent again.
    SPURIOUS_RETRANSMISSION = 11, "spurious_retransmission";
    /// A retransmission after at least two duplicate acknowledgements.
    FAST_RETRANSMISSION = 12, "fast_retransmission";
    /// Bytes before the next ones, too early for a retransmission.
    OUT_OF_ORDER = 13, "out_of_order";
    /// Any other retransmission.
    RETRANSMISSION = 14, "retransmission";
}

impl Flags {
    /// Whether any of `flags` is set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// Whether no flag is set.
    pub const fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Adds `flags`.
    pub(crate) const fn add(&mut self, flags: Self) {
        self.0 |= flags.0;
    }

    /// Names of the set flags, without `tcp.analysis.`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }
}

impl Serialize for Flags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

/// Number of packets with each flag.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlagCounts([u32; Flags::ALL.len()]);

impl FlagCounts {
    pub(crate) fn add(&mut self, flags: Flags) {
        if flags.is_empty() {
            return;
        }
        for (count, (flag, _)) in self.0.iter_mut().zip(Flags::ALL) {
            *count = count.saturating_add(u32::from(flags.has(*flag)));
        }
    }

    /// Number of packets with any flag of `flags`, counted once for each flag.
    pub fn of(&self, flags: Flags) -> u32 {
        let counts = self.0.iter().zip(Flags::ALL).filter(|(_, (flag, _))| flags.has(*flag));
        counts.map(|(count, _)| *count).fold(0, u32::saturating_add)
    }
}

impl Serialize for FlagCounts {
    /// An object with the numbers above zero.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counts = self.0.iter().zip(Flags::ALL).filter(|(count, _)| **count > 0);
        serializer.collect_map(counts.map(|(count, (_, name))| (name, count)))
    }
}
