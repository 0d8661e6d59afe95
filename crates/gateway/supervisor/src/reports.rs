//! The sockets on which generations report to the supervisor.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::message::{LONGEST, Message};

/// Descriptors per message that the kernel permits (`SCM_MAX_FD`).
const MOST_AT_ONCE: usize = 253;

/// The end of the supervisor of a pair of datagram sockets, of which one generation has the other: no other process can send
/// to it.
#[derive(Debug)]
pub(crate) struct Reports(UnixDatagram);

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    /// All descriptors of the message; none if one of them was lost, for example because this process has too many open files.
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Reports {
    /// A pair, with the end for the generation. Must be called inside a runtime.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = net::UnixDatagram::pair()?;
        own.set_nonblocking(true)?;
        Ok((Self(UnixDatagram::from_std(own)?), other.into()))
    }

    /// Waits for the next datagram. `None` if it is no message.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<Received>>> {
        loop {
            ready!(self.0.poll_recv_ready(context))?;
            match self.0.try_io(Interest::READABLE, || receive(&self.0)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// The next datagram if one has arrived, otherwise `WouldBlock`.
    pub(crate) fn try_receive(&self) -> io::Result<Option<Received>> {
        // Not by tokio, which reads only after its own poll has seen the message.
        receive(&self.0)
    }
}

fn receive(socket: &UnixDatagram) -> io::Result<Option<Received>> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut with, flags)?;
    let mut descriptors = Vec::new();
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        tracing::error!("descriptors of a report were lost: too many open files");
        descriptors.clear();
    }
    let is_whole = !received.flags.contains(ReturnFlags::TRUNC);
    let message = Message::read(&bytes[..received.bytes.min(LONGEST)]).filter(|_| is_whole);
    Ok(message.map(|message| Received { message, descriptors }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::future::poll_fn;
    use std::os::fd::AsFd;

    use super::*;
    use crate::notifier::Notifier;

    #[tokio::test]
    async fn messages_have_their_descriptors() {
        let (reports, other) = Reports::pair().expect("a pair");
        let client = net::UnixDatagram::from(other.try_clone().expect("a copy"));
        let notifier = Notifier::through(other);
        let file = File::open("/dev/null").expect("a file");
        notifier.store("https", file.as_fd()).expect("sent");
        let received = poll_fn(|context| reports.poll(context)).await.expect("no error").expect("a message");
        assert_eq!((received.descriptors.len(), received.message.stores), (1, true));
        for garbage in [&b"\xff"[..], &[b'a'; LONGEST + 1]] {
            client.send(garbage).expect("sent");
            assert!(poll_fn(|context| reports.poll(context)).await.expect("no error").is_none());
        }
        assert_eq!(reports.try_receive().expect_err("nothing more").kind(), io::ErrorKind::WouldBlock);
    }
}
