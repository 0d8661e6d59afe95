//! TCP Fast Open (RFC 7413): test whether a server issues a cookie and so accepts data in the `SYN`.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use brisk_net::{ConnectOptions, FastOpenConnect, TcpInfo, connect_from};
use tokio::time::timeout;

use crate::report::FastOpen;

/// Kernel setting for Fast Open; its lowest bit enables clients.
const SWITCH: &str = "/proc/sys/net/ipv4/tcp_fastopen";

/// Timeout of each attempt.
const WAIT: Duration = Duration::from_secs(1);

/// Requests a cookie with a connection that carries no data. Sends nothing if the kernel already has a cookie.
pub(crate) async fn fast_open(address: SocketAddr) -> FastOpen {
    let bits = fs::read_to_string(SWITCH).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if bits.is_none_or(|bits| bits & 1 == 0) {
        return FastOpen::OffHere;
    }
    // The first connection requests a cookie, and the second shows whether the kernel has received one.
    for _ in 0..2 {
        match has_cookie(address).await {
            None => return FastOpen::NotAsked,
            Some(true) => return FastOpen::Cookie,
            Some(false) => {}
        }
    }
    FastOpen::NoCookie
}

/// Begins a connection that requests a cookie. With a cookie the kernel sends nothing before the first data, so nothing
/// is sent at all; without a cookie it connects at once.
async fn has_cookie(address: SocketAddr) -> Option<bool> {
    let options = ConnectOptions { fast_open: FastOpenConnect::On, ..ConnectOptions::default() };
    let tcp = timeout(WAIT, connect_from(address, options)).await.ok()?.ok()?;
    TcpInfo::of(&tcp).ok().map(|info| info.segments_sent == 0)
}
