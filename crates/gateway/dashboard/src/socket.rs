//! The dashboard's listening socket: bound at once, while the replaced one still listens, or as soon as its address is
//! free.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use brisk_net::ListenerSettings;
use brisk_net::listener;
use socket2::SockRef;
use tokio::time::{MissedTickBehavior, interval};

use crate::settings::DashboardSettings;

/// Interval of attempts to bind an address in use.
const AGAIN: Duration = Duration::from_secs(1);

fn at(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    listener::bind(&ListenerSettings { reuse_port, backlog: 64, ..ListenerSettings::new(address) })
}

/// Binds the address, or another port if the [`DashboardSettings`] permit it.
pub(crate) fn bind(settings: &DashboardSettings) -> io::Result<TcpListener> {
    match at(settings.listen, false) {
        Err(error) if settings.or_any_port && error.kind() == io::ErrorKind::AddrInUse => {
            at(SocketAddr::new(settings.listen.ip(), 0), false)
        }
        bound => bound,
    }
}

/// Binds `address` while `old` still listens on an address that overlaps and may have the same port. `SO_REUSEPORT` is
/// set only for that moment, so that no other program can share the port later.
pub(crate) fn bind_beside(address: SocketAddr, old: &TcpListener) -> io::Result<TcpListener> {
    let has_its_port = old.local_addr()?.port() == address.port();
    match at(address, false) {
        Err(error) if has_its_port && error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return bound,
    }
    SockRef::from(old).set_reuse_port(true)?;
    let bound = at(address, true);
    // Before an error is returned, so that the port is never left open to other programs.
    SockRef::from(old).set_reuse_port(false)?;
    let bound = bound?;
    SockRef::from(&bound).set_reuse_port(false)?;
    Ok(bound)
}

/// Binds the address as soon as it is free.
pub(crate) async fn bind_when_free(address: SocketAddr) -> TcpListener {
    let mut attempts = interval(AGAIN);
    attempts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        attempts.tick().await;
        if let Ok(bound) = at(address, false) {
            return bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    #[test]
    fn a_port_moves_to_all_addresses_and_back() {
        let local = at((Ipv4Addr::LOCALHOST, 0).into(), false).expect("a port");
        let address = local.local_addr().expect("an address");
        let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
        assert_eq!(at(everywhere, false).map_err(|error| error.kind()).err(), Some(io::ErrorKind::AddrInUse));
        let open = bind_beside(everywhere, &local).expect("the same port");
        drop(local);
        TcpStream::connect(address).expect("it listens there too");
        let local = bind_beside(address, &open).expect("the same port");
        drop(open);
        TcpStream::connect(address).expect("it listens");
        assert!(!SockRef::from(&local).reuse_port().expect("an option"));
        assert!(at(everywhere, false).is_err());
    }

    #[test]
    fn the_port_of_another_program_is_not_taken() {
        let (own, other) =
            (at((Ipv4Addr::LOCALHOST, 0).into(), false), at((Ipv4Addr::LOCALHOST, 0).into(), true));
        let (own, other) = (own.expect("a port"), other.expect("a port"));
        let refused = bind_beside(other.local_addr().expect("an address"), &own);
        assert_eq!(refused.map_err(|error| error.kind()).err(), Some(io::ErrorKind::AddrInUse));
    }
}
