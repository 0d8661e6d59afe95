//! Binds all sockets before anything is served, so that no gateway starts with some of its listeners.

use std::net::{SocketAddr, TcpListener};

use brisk_net::listener::{self, FastOpenState, ListenerSettings};

use crate::GatewayError;
use crate::settings::GatewaySettings;
use crate::worker::Sockets;

/// Where a gateway listens, with the ports that the system chose for port 0.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// HTTPS.
    pub https: Vec<SocketAddr>,
    /// Plain HTTP, redirected.
    pub http: Vec<SocketAddr>,
    /// Metrics and health.
    pub admin: Option<SocketAddr>,
}

/// A socket per worker and address.
pub(crate) fn bind_all(settings: &GatewaySettings) -> Result<(Vec<Sockets>, Addresses), GatewayError> {
    let workers = settings.workers.get();
    let mut sockets: Vec<_> = (0..workers).map(|_| Sockets::default()).collect();
    let mut addresses = Addresses::default();
    for listener in &settings.https {
        let (address, bound) = bind_shared(listener, workers)?;
        addresses.https.push(address);
        sockets.iter_mut().zip(bound).for_each(|(sockets, socket)| sockets.https.push(socket));
    }
    for listener in &settings.http {
        let (address, bound) = bind_shared(listener, workers)?;
        addresses.http.push(address);
        sockets.iter_mut().zip(bound).for_each(|(sockets, socket)| sockets.http.push(socket));
    }
    warn_fast_open_off(settings);
    Ok((sockets, addresses))
}

/// One socket for a listener that only the main thread serves.
pub(crate) fn bind_one(settings: &ListenerSettings) -> Result<(SocketAddr, TcpListener), GatewayError> {
    let wrong = |source| GatewayError::Listen { address: settings.address, source };
    let socket = listener::bind(settings).map_err(wrong)?;
    Ok((socket.local_addr().map_err(wrong)?, socket))
}

/// Sockets that share one address by `SO_REUSEPORT`. The first is bound without it, for a moment, so that an address that
/// another program serves is an error and not shared with it.
fn bind_shared(
    settings: &ListenerSettings,
    workers: usize,
) -> Result<(SocketAddr, Vec<TcpListener>), GatewayError> {
    let mut settings = settings.clone();
    settings.reuse_port = false;
    settings.address = bind_one(&settings)?.0;
    settings.reuse_port = true;
    let sockets = (0..workers).map(|_| bind_one(&settings).map(|(_, socket)| socket));
    Ok((settings.address, sockets.collect::<Result<_, _>>()?))
}

fn warn_fast_open_off(settings: &GatewaySettings) {
    let wanted = settings.https.iter().any(|listener| listener.fast_open.is_some());
    if let (true, FastOpenState::Off(found)) = (wanted, listener::fast_open_state()) {
        let turned_on = found | 2;
        tracing::warn!(
            "TCP Fast Open is off for servers in the kernel; `sysctl net.ipv4.tcp_fastopen={turned_on}` turns it on"
        );
    }
}
