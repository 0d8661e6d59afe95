//! The socket on which generations report to the supervisor.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, SocketAddr};

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::message::{LONGEST, Message};

/// Descriptors per message that the kernel permits (`SCM_MAX_FD`).
const MOST_AT_ONCE: usize = 253;

/// A datagram socket in the abstract namespace, which needs no writable folder. Any process of the machine can send to it, so each
/// message counts only by the credentials that the kernel adds.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    name: String,
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    /// The process that has sent it, as the kernel says.
    pub(crate) sender: Pid,
    pub(crate) message: Message,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl NotifySocket {
    /// Binds a socket with a name that other processes cannot guess, so that none can take it before. Must be called inside
    /// a runtime.
    pub(crate) fn bind(name: String) -> io::Result<Self> {
        let socket = net::UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        set_socket_passcred(&socket, true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixDatagram::from_std(socket)?, name })
    }

    /// The address in the form of `NOTIFY_SOCKET`.
    pub(crate) fn address(&self) -> String {
        format!("@{}", self.name)
    }

    /// Waits for the next datagram. `None` if it is no message, or without credentials.
    pub(crate) async fn receive(&self) -> io::Result<Option<Received>> {
        self.socket.async_io(Interest::READABLE, || receive(&self.socket)).await
    }

    /// The next datagram if one has arrived, otherwise `WouldBlock`.
    pub(crate) fn try_receive(&self) -> io::Result<Option<Received>> {
        receive(&self.socket)
    }
}

fn receive(socket: &UnixDatagram) -> io::Result<Option<Received>> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE), ScmCredentials(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut with, flags)?;
    let (mut sender, mut descriptors) = (None, Vec::new());
    for message in with.drain() {
        match message {
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            RecvAncillaryMessage::ScmRights(passed) => descriptors.extend(passed),
            _ => {}
        }
    }
    let is_whole = !received.flags.contains(ReturnFlags::TRUNC);
    let message = Message::read(&bytes[..received.bytes.min(LONGEST)]).filter(|_| is_whole);
    Ok(sender.zip(message).map(|(sender, message)| Received { sender, message, descriptors }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::process;

    use super::*;
    use crate::notifier::Notifier;

    #[tokio::test]
    async fn messages_have_the_sender_and_its_descriptors() {
        let socket = NotifySocket::bind(format!("brisk-test-{}", process::id())).expect("a socket");
        let notifier = Notifier::to(&socket.address(), 8);
        let file = File::open("/dev/null").expect("a file");
        notifier.store("https", &[file.as_fd(), file.as_fd()]).expect("sent");
        let received = socket.receive().await.expect("no error").expect("a message");
        assert_eq!(received.sender, rustix::process::getpid());
        assert_eq!((received.descriptors.len(), received.message.stores), (2, true));
        let client = net::UnixDatagram::unbound().expect("a socket");
        let address = SocketAddr::from_abstract_name(&socket.name).expect("an address");
        for garbage in [&b"\xff"[..], &[b'a'; LONGEST + 1]] {
            client.send_to_addr(garbage, &address).expect("sent");
            assert!(socket.receive().await.expect("no error").is_none());
        }
        assert_eq!(socket.try_receive().expect_err("nothing more").kind(), io::ErrorKind::WouldBlock);
    }
}
