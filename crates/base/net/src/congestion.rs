//! Congestion controls of the kernel, selectable per socket.

use std::fmt;
use std::io;

use socket2::{Domain, SockRef, Socket, Type};

/// Maximum length of a name (`TCP_CA_NAME_MAX` without the final zero).
const LONGEST: usize = 15;

/// A congestion control that this process may use for its sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Congestion(Box<str>);

impl Congestion {
    /// Looks up the congestion control `name` in the kernel, which may load a module for it.
    ///
    /// # Errors
    ///
    /// `NotFound` if the kernel has none of this name, `PermissionDenied` if its use requires more privileges.
    pub fn named(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // An attempt, because `net.ipv4.tcp_available_congestion_control` does not list modules that are not
        // loaded yet, and not the permission to use one.
        unused()?.set_tcp_congestion(name.as_bytes())?;
        Ok(Self(name.into()))
    }

    /// Name of the system's default congestion control: `net.ipv4.tcp_congestion_control`.
    pub fn usual() -> io::Result<String> {
        let name = unused()?.tcp_congestion()?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// Controls the data sent on `socket` from now on (`TCP_CONGESTION`).
    pub fn control<'s>(&self, socket: impl Into<SockRef<'s>>) -> io::Result<()> {
        socket.into().set_tcp_congestion(self.0.as_bytes())
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An unconnected socket for queries.
fn unused() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM, None)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_gets_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        // Every kernel has Reno and permits its use by all processes.
        let reno = Congestion::named("reno").expect("a congestion control");
        reno.control(&stream).expect("set");
        let name = SockRef::from(&stream).tcp_congestion().expect("its name");
        assert!(name.starts_with(b"reno"), "{name:?}");
        assert!(!Congestion::usual().expect("a name").is_empty());
    }

    #[test]
    fn one_that_is_not_there_is_not_found() {
        for name in ["", "nosuch", "a-name-that-is-too-long", "a b"] {
            let error = Congestion::named(name).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name:?}");
        }
    }
}
