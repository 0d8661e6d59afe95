//! Orders of operators to a supervisor, and the client that sends them: `brisk upgrade`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::process;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, geteuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{sleep, timeout};

use crate::error::UpgradeError;
use crate::pid_file;

/// The only order.
const UPGRADE: &[u8] = b"upgrade\n";

/// First words of the two answers.
const DONE: &str = "done ";
const REFUSED: &str = "refused ";

/// Maximum time in which a client sends its order, and takes its answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Maximum length of an answer in bytes.
const LONGEST: u64 = 4096;

/// Orders that wait for the supervisor; further clients wait in the queue of the socket.
const WAITING: usize = 4;

/// The socket for orders, in the abstract namespace, with the process id of the supervisor in its name.
#[derive(Debug)]
pub(crate) struct ControlSocket(Receiver<Operator>);

/// An operator who waits for the outcome of an upgrade.
#[derive(Debug)]
pub(crate) struct Operator(UnixStream);

impl ControlSocket {
    /// Must be called inside a runtime. `AddrInUse` if another process has taken the name.
    pub(crate) fn bind() -> io::Result<Self> {
        let socket = net::UnixListener::bind_addr(&address(process::id())?)?;
        socket.set_nonblocking(true)?;
        let (admitted, orders) = mpsc::channel(WAITING);
        tokio::spawn(admit_all(UnixListener::from_std(socket)?, admitted));
        Ok(Self(orders))
    }

    /// Waits for the next order.
    pub(crate) async fn order(&mut self) -> Operator {
        match self.0.recv().await {
            Some(operator) => operator,
            // The task that admits clients has no end.
            None => std::future::pending().await,
        }
    }
}

/// Receives orders, one after another. Clients of other users than this process and root are refused, as are orders that do not
/// arrive within five seconds.
async fn admit_all(socket: UnixListener, admitted: Sender<Operator>) {
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                if let Some(operator) = Operator::admit(stream).await
                    && admitted.send(operator).await.is_err()
                {
                    return;
                }
            }
            // A shortage of descriptors, for example, ends.
            Err(error) => {
                tracing::warn!(%error, "an order of an operator was not received");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

impl Operator {
    /// The sender of an upgrade order; `None` if there is another order, or if the user has no right to it.
    async fn admit(mut stream: UnixStream) -> Option<Self> {
        let user = stream.peer_cred().ok()?.uid();
        if user != 0 && user != geteuid().as_raw() {
            // Without a limit, a user could fill the log otherwise.
            tracing::debug!(user, "an order of another user is refused");
            return None;
        }
        // Read in a task of its own: a client that sends nothing must not hold up the supervisor.
        let mut order = [0; UPGRADE.len()];
        timeout(LIMIT, stream.read_exact(&mut order)).await.ok()?.ok()?;
        (order == *UPGRADE).then_some(Self(stream))
    }

    /// Reports that this process serves now.
    pub(crate) fn done(self, process: Pid) {
        self.answer(format!("{DONE}{process}\n"));
    }

    /// Reports the reason for which the old generation serves on.
    pub(crate) fn refuse(self, reason: impl fmt::Display) {
        self.answer(format!("{REFUSED}{reason}\n"));
    }

    fn answer(mut self, text: String) {
        // A task, so that a client that does not read holds up nothing else. The client may be gone.
        tokio::spawn(async move {
            let _ = timeout(LIMIT, self.0.write_all(text.as_bytes())).await;
        });
    }
}

/// Orders an upgrade from the supervisor with this process id, or with the id in this file, and waits for the outcome. Returns the
/// process id of the new generation.
pub fn request_upgrade(supervisor: Result<u32, &Path>) -> Result<i32, UpgradeError> {
    let id = match supervisor {
        Ok(id) => i32::try_from(id).unwrap_or_default(),
        Err(path) => {
            let read = pid_file::read(path);
            let wrong = |source| UpgradeError::PidFile { path: path.to_owned(), source };
            read.map_err(wrong)?.as_raw_pid()
        }
    };
    let mut stream = connect(id).map_err(|source| UpgradeError::NoSupervisor { id, source })?;
    let answer = exchange(&mut stream).map_err(UpgradeError::Ended)?;
    let answer = answer.trim_end();
    if let Some(process) = answer.strip_prefix(DONE).and_then(|text| text.parse().ok()) {
        return Ok(process);
    }
    match answer.strip_prefix(REFUSED) {
        Some(reason) => Err(UpgradeError::Refused(reason.to_owned())),
        None => Err(UpgradeError::Ended(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Whether a process with this id is a supervisor that runs.
pub(crate) fn is_supervisor(id: Pid) -> bool {
    connect(id.as_raw_pid()).is_ok()
}

fn connect(id: i32) -> io::Result<net::UnixStream> {
    let stream = net::UnixStream::connect_addr(&address(id.unsigned_abs())?)?;
    // Any process could have taken the name of a supervisor that has ended, or that had no such socket.
    if socket_peercred(stream.as_fd())?.pid.as_raw_pid() != id {
        return Err(io::Error::other("another process has the socket of that name"));
    }
    Ok(stream)
}

fn exchange(stream: &mut net::UnixStream) -> io::Result<String> {
    stream.write_all(UPGRADE)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    // Without a timeout: the supervisor limits the time of an upgrade, by the choice of its operator.
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(answer)
}

fn address(supervisor: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("brisk-supervisor-{supervisor}"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn the_outcome_reaches_the_operator() {
        let mut control = ControlSocket::bind().expect("a socket");
        let id = process::id();
        for is_done in [true, false] {
            let asks = thread::spawn(move || request_upgrade(Ok(id)));
            let operator = control.order().await;
            if is_done {
                operator.done(Pid::INIT);
            } else {
                operator.refuse("an upgrade is under way");
            }
            while !asks.is_finished() {
                tokio::task::yield_now().await;
            }
            match asks.join().expect("no panic") {
                Ok(process) => assert!(is_done && process == 1),
                Err(error) => {
                    assert_eq!(error.to_string(), "not upgraded: an upgrade is under way");
                    assert!(!is_done);
                }
            }
        }
    }

    #[tokio::test]
    async fn other_orders_are_ignored() {
        let (client, server) = net::UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("a socket");
        (&client).write_all(b"restart\n").expect("sent");
        drop(client);
        assert!(Operator::admit(UnixStream::from_std(server).expect("a socket")).await.is_none());
    }

    #[test]
    fn a_process_without_the_socket_is_no_supervisor() {
        let error = request_upgrade(Ok(1)).expect_err("no supervisor").to_string();
        assert!(error.starts_with("process 1 takes no orders: "), "{error}");
        let error =
            request_upgrade(Err(Path::new("/nonexistent/brisk.pid"))).expect_err("no file").to_string();
        assert!(error.starts_with("/nonexistent/brisk.pid: "), "{error}");
    }
}
