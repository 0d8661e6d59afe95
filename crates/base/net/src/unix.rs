//! Connecting to an upstream over a Unix socket, named by a [`UnixTarget`].

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

/// Maximum length of a socket address in bytes: `sun_path` of `sockaddr_un`, with the NUL byte that ends a path or begins
/// an abstract name (unix(7)).
const ADDRESS: usize = 108;

/// First and longest pause before another attempt while the socket's queue of connections is full.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// The address of a Unix socket: an absolute path, or `@NAME` in the abstract namespace of Linux.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnixTarget(Box<str>);

/// Reason for rejecting a text as [`UnixTarget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnixTargetError {
    /// Neither an absolute path nor an abstract name.
    #[error("a Unix socket is an absolute path or, in the abstract namespace, @ and a name")]
    Form,
    /// More bytes than the kernel accepts in `sun_path`.
    #[error("the path of a Unix socket may have 107 bytes")]
    Length,
}

/// A failed connection attempt. Source of the [`io::Error`] returned by [`connect`].
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {target}: {source}{}", advice(source))]
struct UnixDialError {
    target: UnixTarget,
    source: io::Error,
}

/// The correction for the usual mistakes of an operator.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". The user of brisk needs the permission to write to the socket and to search its folders"
        }
        io::ErrorKind::NotFound => ". The server has not created the socket, or listens on another path",
        io::ErrorKind::ConnectionRefused => ". No server listens on the socket",
        _ => "",
    }
}

impl UnixTarget {
    /// The address in the form of [`UnixStream::connect`]: an abstract name begins with a NUL byte.
    fn path(&self) -> PathBuf {
        match self.0.strip_prefix('@') {
            Some(name) => format!("\0{name}").into(),
            None => PathBuf::from(&*self.0),
        }
    }
}

impl FromStr for UnixTarget {
    type Err = UnixTargetError;

    fn from_str(text: &str) -> Result<Self, UnixTargetError> {
        let is_formed = match text.strip_prefix('@') {
            Some(name) => !name.is_empty(),
            None => text.len() > 1 && text.starts_with('/') && !text.ends_with('/'),
        };
        if !is_formed || text.contains(char::is_control) {
            return Err(UnixTargetError::Form);
        }
        // `@` stands for the NUL byte at the begin of an abstract name. A path ends with a NUL byte of its own.
        let end = usize::from(!text.starts_with('@'));
        if text.len() + end > ADDRESS {
            return Err(UnixTargetError::Length);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for UnixTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unix:{}", self.0)
    }
}

/// Connects to `target` within `limit`; `TimedOut` otherwise. While the server's queue of connections is full, for which the
/// kernel reports `EAGAIN` instead of waiting, the attempt is repeated.
///
/// # Errors
///
/// Those of the kernel. The text names the socket and, for missing permissions and servers, the correction.
pub async fn connect(target: &UnixTarget, limit: Duration) -> io::Result<UnixStream> {
    let connected = timeout(limit, connect_in_turn(target)).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|source| {
        let kind = source.kind();
        io::Error::new(kind, UnixDialError { target: target.clone(), source })
    })
}

async fn connect_in_turn(target: &UnixTarget) -> io::Result<UnixStream> {
    let path = target.path();
    let (mut pause, longest) = PAUSES;
    loop {
        match UnixStream::connect(&path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
        sleep(pause).await;
        pause = longest.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener as BlockingListener;
    use std::{fs, thread};

    use tokio::net::UnixListener;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(3);

    fn target(text: &str) -> UnixTarget {
        text.parse().expect(text)
    }

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["/run/app.sock", "@app", "/run/a b:c?d.sock"] {
            assert_eq!(target(text).to_string(), format!("unix:{text}"));
        }
        for text in ["", "/", "@", "app.sock", "./app.sock", "/run/", "/run/\n", "//"] {
            assert_eq!(text.parse::<UnixTarget>(), Err(UnixTargetError::Form), "{text:?}");
        }
        let longest = format!("/{}", "p".repeat(106));
        assert!(longest.parse::<UnixTarget>().is_ok());
        assert_eq!(format!("{longest}p").parse::<UnixTarget>(), Err(UnixTargetError::Length));
        assert!(format!("@{longest}").parse::<UnixTarget>().is_ok());
        assert_eq!(format!("@{longest}p").parse::<UnixTarget>(), Err(UnixTargetError::Length));
    }

    #[tokio::test]
    async fn the_longest_path_and_the_longest_abstract_name_are_connected_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().to_str().expect("text");
        let path = format!("{folder}/{}", "p".repeat(106 - folder.len()));
        let _listener = UnixListener::bind(&path).expect("bind");
        connect(&target(&path), LIMIT).await.expect("connect");
        let name = format!("{:p<107}", std::process::id());
        let _listener = UnixListener::bind(format!("\0{name}")).expect("bind");
        connect(&target(&format!("@{name}")), LIMIT).await.expect("connect");
    }

    #[tokio::test]
    async fn a_mistake_is_named_with_its_correction() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.sock");
        let target = target(path.to_str().expect("text"));
        let message = |error: io::Error| error.to_string();
        let missing = connect(&target, LIMIT).await.expect_err("no socket");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(message(missing).contains("has not created the socket"));
        drop(BlockingListener::bind(&path).expect("bind"));
        let left = connect(&target, LIMIT).await.expect_err("no listener");
        assert_eq!(left.kind(), io::ErrorKind::ConnectionRefused);
        assert!(message(left).starts_with(&format!("cannot connect to {target}: ")));
        fs::remove_file(&path).expect("remove");
        fs::write(&path, "").expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
        let no_socket = connect(&target, LIMIT).await.expect_err("no socket");
        assert!(message(no_socket).contains("No server listens"));
    }

    #[tokio::test]
    async fn a_full_queue_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.sock");
        let socket =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("socket");
        socket.bind(&socket2::SockAddr::unix(&path).expect("address")).expect("bind");
        socket.listen(0).expect("listen");
        let target = target(path.to_str().expect("text"));
        let _first = connect(&target, LIMIT).await.expect("the only place in the queue");
        let late = connect(&target, Duration::from_millis(20)).await.expect_err("the queue is full");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let waiting = tokio::spawn(async move { connect(&target, LIMIT).await });
        let accepted =
            thread::spawn(move || (0..2).map(|_| socket.accept().expect("accept")).collect::<Vec<_>>());
        waiting.await.expect("no panic").expect("a place in the queue");
        drop(accepted.join());
    }
}
