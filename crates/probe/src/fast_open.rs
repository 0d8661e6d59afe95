//! Whether a server takes data in the SYN (TCP Fast Open, RFC 7413): whether it gives a cookie for it.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use brisk_net::{ConnectOptions, FastOpenConnect, TcpInfo, connect_from};
use tokio::time::timeout;

use crate::report::FastOpen;

/// The switch of the kernel; its lowest bit is for clients.
const SWITCH: &str = "/proc/sys/net/ipv4/tcp_fastopen";

/// How long each attempt may take.
const WAIT: Duration = Duration::from_secs(1);

/// Asks the server, on a connection that carries no data. None is made where the kernel has a cookie already.
pub(crate) async fn fast_open(address: SocketAddr) -> FastOpen {
    let bits = fs::read_to_string(SWITCH).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if bits.is_none_or(|bits| bits & 1 == 0) {
        return FastOpen::OffHere;
    }
    for _ in 0..2 {
        match has_cookie(address).await {
            None => return FastOpen::NotAsked,
            Some(true) => return FastOpen::Cookie,
            Some(false) => {}
        }
    }
    FastOpen::NoCookie
}

/// Begins a connection that asks for a cookie. With one the kernel waits for data before it sends anything, so nothing ever
/// is; without one it connects at once.
async fn has_cookie(address: SocketAddr) -> Option<bool> {
    let options = ConnectOptions { fast_open: FastOpenConnect::On, ..ConnectOptions::default() };
    let tcp = timeout(WAIT, connect_from(address, options)).await.ok()?.ok()?;
    TcpInfo::of(&tcp).ok().map(|info| info.segments_sent == 0)
}
