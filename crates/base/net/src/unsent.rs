//! [`UnsentLimit`], the limit of data that the kernel buffers before it can send it (`TCP_NOTSENT_LOWAT`).

use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::TcpInfo;

/// Bytes of a connection that the kernel buffers beyond those in flight (`TCP_NOTSENT_LOWAT`). Data in the kernel
/// cannot be overtaken: an urgent HTTP/2 stream would wait behind everything written before. The value corresponds to a
/// few round trips of a fast line; [`UnsentLimit`] reduces it for slow ones.
const UNSENT: u32 = 128 << 10;

/// The limit of a connection whose rate is not known yet.
pub(crate) const FIRST: u32 = 32 << 10;

/// Minimum of [`UnsentLimit`]: a full TLS record.
const LEAST: u32 = 16 << 10;

/// Time for which a slow connection can send without the worker. A worker returns to a connection sooner.
const AHEAD: Duration = Duration::from_millis(25);

/// Maximum of sent bytes between two looks ([`UnsentLimit::adapt`]) at a slow and at a fast connection.
const SLOW_LOOK: u64 = 1 << 20;
const FAST_LOOK: u64 = 64 << 20;

/// The limit of one connection, derived from its rate.
///
/// Costs nothing while the kernel accepts everything, and a comparison when it refuses data. A look costs one system call, and
/// one more if the limit changes. The first look is at the first refusal. Then the distance doubles, up to 1 MiB for a slow
/// connection and up to 64 MiB for a fast one.
#[derive(Debug)]
pub struct UnsentLimit {
    bytes: u32,
    next_look: u64,
}

impl Default for UnsentLimit {
    fn default() -> Self {
        Self { bytes: FIRST, next_look: 0 }
    }
}

impl UnsentLimit {
    /// Adapts the limit, if it is time to. Called when the kernel has refused data after `sent` bytes: the connection itself,
    /// not a lack of data, then determines the rate.
    pub fn refused(&mut self, socket: &TcpStream, sent: u64) {
        if sent >= self.next_look {
            self.adapt(socket, sent);
        }
    }

    /// Whether the rate of the connection is known to be low: its limit is below 32 KiB.
    pub fn is_slow(&self) -> bool {
        self.bytes < FIRST
    }

    #[cold]
    fn adapt(&mut self, socket: &TcpStream, sent: u64) {
        let wanted = TcpInfo::of(socket).map_or(UNSENT, |info| wanted(&info));
        // A small difference is not worth a system call.
        if wanted.abs_diff(self.bytes) > self.bytes / 4
            && SockRef::from(socket).set_tcp_notsent_lowat(wanted).is_ok()
        {
            self.bytes = wanted;
        }
        let distance = if self.bytes < UNSENT { SLOW_LOOK } else { FAST_LOOK };
        self.next_look = sent + sent.clamp(u64::from(LEAST), distance);
    }
}

/// The limit in bytes for a connection with this [`TcpInfo`], from [`LEAST`] to [`UNSENT`].
fn wanted(info: &TcpInfo) -> u32 {
    let rate = u128::from(info.delivery_rate) * AHEAD.as_millis() / 1000;
    let window = u128::from(info.window) * u128::from(info.segment);
    // In slow start, the window doubles with each round trip, and the rate follows, until a queue delays the packets.
    let has_queue = info.rtt > info.least_rtt + info.least_rtt / 4;
    let grows = info.is_in_slow_start && !has_queue;
    let ahead = if grows { rate.max(2 * window).max(u128::from(FIRST)) } else { rate };
    u32::try_from(ahead).unwrap_or(UNSENT).clamp(LEAST, UNSENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_rate_and_in_slow_start_the_window() {
        let info = |rate: u64, window, is_in_slow_start, rtt| TcpInfo {
            delivery_rate: rate,
            window,
            segment: 1400,
            is_in_slow_start,
            rtt: Duration::from_millis(rtt),
            least_rtt: Duration::from_millis(40),
            ..TcpInfo::default()
        };
        for (rate, window, is_in_slow_start, rtt, limit) in [
            (1_250_000, 100, false, 40, 31_250),
            (1_250_000, 10, true, 40, FIRST),
            (10_000, 10, true, 40, FIRST),
            (1_250_000, 40, true, 45, 112_000),
            // A queue delays the packets.
            (1_250_000, 40, true, 60, 31_250),
            (10_000, 10, true, 60, LEAST),
            (10_000, 10, false, 40, LEAST),
            (125_000_000, 10, false, 40, UNSENT),
            (u64::MAX, 10, false, 40, UNSENT),
        ] {
            assert_eq!(wanted(&info(rate, window, is_in_slow_start, rtt)), limit, "{rate} {window} {rtt}");
        }
    }
}
