//! Orders of operators to a supervisor, and the client that sends them: `brisk upgrade`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, geteuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

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

/// Orders that wait for the supervisor.
const WAITING: usize = 4;

/// Clients of a [`ControlSocket`] whose orders have not arrived; further clients wait in its queue.
const CLIENTS: usize = 16;

/// Pause after an error of the socket: a shortage of descriptors, for example, ends.
const PAUSE: Duration = Duration::from_secs(1);

/// The socket for orders, in the abstract namespace, with the process id of the supervisor in its name.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    socket: UnixListener,
    /// [`CLIENTS`].
    permits: Arc<Semaphore>,
    /// Time before which no client is accepted.
    accepts_at: Instant,
    admitted: Sender<Operator>,
    orders: Receiver<Operator>,
}

/// An operator who waits for the outcome of an upgrade.
#[derive(Debug)]
pub(crate) struct Operator(UnixStream);

impl ControlSocket {
    /// Must be called inside a runtime. `AddrInUse` if another process has taken the name.
    pub(crate) fn bind() -> io::Result<Self> {
        let socket = net::UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(process::id()))?)?;
        socket.set_nonblocking(true)?;
        let (admitted, orders) = mpsc::channel(WAITING);
        Ok(Self {
            socket: UnixListener::from_std(socket)?,
            permits: Arc::new(Semaphore::new(CLIENTS)),
            accepts_at: Instant::now(),
            admitted,
            orders,
        })
    }

    /// Waits for the next [`Operator`]. Clients of other users than this process and root are refused, as are processes for which
    /// `is_refused` is true, and orders that do not arrive within [`LIMIT`].
    pub(crate) async fn order(&mut self, is_refused: impl Fn(i32) -> bool) -> Operator {
        loop {
            tokio::select! {
                Some(operator) = self.orders.recv() => return operator,
                (permit, accepted) = accept(&self.socket, &self.permits, self.accepts_at) => match accepted {
                    Ok(stream) => if may_order(&stream, &is_refused) {
                        let admitted = self.admitted.clone();
                        // A task, since a client that sends nothing must hold up neither the supervisor nor other clients.
                        tokio::spawn(async move {
                            let _permit = permit;
                            if let Some(operator) = Operator::admit(stream).await {
                                // Fails if the supervisor has ended.
                                let _ = admitted.send(operator).await;
                            }
                        });
                    },
                    Err(error) => {
                        tracing::warn!(%error, "an order of an operator was not received");
                        self.accepts_at = Instant::now() + PAUSE;
                    }
                }
            }
        }
    }
}

/// The next client of `socket` with its permit, not before the time `from`.
async fn accept(
    socket: &UnixListener,
    permits: &Arc<Semaphore>,
    from: Instant,
) -> (Option<OwnedSemaphorePermit>, io::Result<UnixStream>) {
    sleep_until(from).await;
    // The semaphore is never closed.
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    (permit, socket.accept().await.map(|(stream, _)| stream))
}

/// Whether a client may order an upgrade.
fn may_order(stream: &UnixStream, is_refused: impl Fn(i32) -> bool) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    let user = peer.uid();
    let is_own = user == 0 || user == geteuid().as_raw();
    let may = is_own && !peer.pid().is_some_and(is_refused);
    if !may {
        // Without a limit, a user could fill the log otherwise.
        tracing::debug!(user, process = peer.pid(), "an order is refused");
    }
    may
}

impl Operator {
    /// The sender of [`UPGRADE`]; `None` if there is another order.
    async fn admit(mut stream: UnixStream) -> Option<Self> {
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
    // Any process can take the name and accept no connection, which must not hold up the caller: an error if the queue is full.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address(id)?)?;
    let stream = net::UnixStream::from(socket);
    stream.set_nonblocking(false)?;
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

fn address(supervisor: i32) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name(supervisor.unsigned_abs()).as_bytes())?)
}

/// The name of the socket of the supervisor with this process id.
fn name(supervisor: u32) -> String {
    format!("brisk-supervisor-{supervisor}")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn the_outcome_reaches_the_operator() {
        let mut control = ControlSocket::bind().expect("a socket");
        let id = process::id();
        let asks = thread::spawn(move || request_upgrade(Ok(id)));
        let end = async {
            while !asks.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = control.order(|process| process.unsigned_abs() == id) => panic!("an order that is refused"),
            () = end => {}
        }
        asks.join().expect("no panic").expect_err("no answer");
        // A client that sends nothing does not hold up others.
        let _silent = connect(id.cast_signed()).expect("a socket");
        for is_done in [true, false] {
            let asks = thread::spawn(move || request_upgrade(Ok(id)));
            let operator = control.order(|_| false).await;
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

    #[test]
    fn a_socket_that_accepts_no_connections_does_not_hold_up_its_clients() {
        // Larger than the ids of processes, but different in each process.
        let id = 5_000_000 + process::id().cast_signed();
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        rustix::net::bind(&socket, &address(id).expect("an address")).expect("a free name");
        rustix::net::listen(&socket, 0).expect("a socket");
        connect(id).expect_err("another process has the name");
        assert_eq!(connect(id).expect_err("the queue is full").kind(), io::ErrorKind::WouldBlock);
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
