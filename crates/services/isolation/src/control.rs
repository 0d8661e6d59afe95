//! Messages between the gateway and its key process: orders and reports, one packet each, over a private pair of
//! sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum length of a packet in bytes, and the size of each receive buffer: a longer packet would be truncated.
const PACKET: usize = 128 * 1024;

/// Approximate length of the file names per [`Order::Load`] in bytes; JSON escaping and one long name add to it.
const NAMES: usize = 8 * 1024;

/// Timeout of [`Control::send`] while the peer's buffer is full.
const ROOM: Duration = Duration::from_secs(10);

/// Message from the gateway to the key process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Order {
    /// Read these files. Together with the files of earlier packets with the same number, they are the keys of a
    /// configuration.
    Load { number: u64, files: Vec<String>, is_last: bool },
    /// Use the keys of this configuration only, or discard them if `is_in_force` is `false`.
    Settle { number: u64, is_in_force: bool },
    /// Perform operations with these settings once there are keys.
    Start(Settings),
    /// Serve the gateway over the socket in this packet.
    Connect,
}

/// Message from the gateway to a keeper.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Task {
    /// Keep a key process running that serves the gateway over the socket in this packet.
    Keep,
    /// Start another keeper, for the tasks from the socket in this packet.
    Standby,
    /// End the key process, which does not answer; another one is started.
    Renew,
}

/// Settings of key operations, as in `[keys]`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Threads for slow operations. `None`: a number that suits `machine`.
    pub threads: Option<usize>,
    /// Cores of the machine, and workers of the gateway.
    pub machine: (usize, usize),
    /// Cores to which the threads are pinned; empty means all.
    pub cores: Vec<usize>,
    /// Capacity of the queue of operations.
    pub queue: usize,
    /// Whether threads perform RSA, ECDSA and Ed25519.
    pub offload: [bool; 3],
    /// Whether operations are performed together in SIMD lanes.
    pub simd: bool,
    /// Whether a GPU performs RSA.
    pub cuda: bool,
    /// Maximum wait of an operation for others on the GPU, in microseconds.
    pub cuda_wait_us: Option<u64>,
    /// Number of threads that serve the gateway's connections, and of the connections.
    pub workers: usize,
    /// Whether the key process limits its rights (`server.sandbox`).
    pub is_confined: bool,
}

impl Settings {
    /// Connections between the gateway and its key process.
    pub fn connections(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.workers).unwrap_or(NonZeroUsize::MIN)
    }

    /// Maximum number of concurrent operations of the gateway.
    pub fn operations(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.queue).unwrap_or(NonZeroUsize::MIN)
    }
}

/// Message from the key process to the gateway.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Report {
    /// The process has started and holds no keys yet.
    Started { process: u32 },
    /// Results for the next files of a configuration: the ids of their keys, or errors.
    Loaded { number: u64, found: Vec<Result<String, String>> },
    /// A key file has changed.
    Changed,
    /// Counters of the process.
    Figures(Figures),
    /// From the keeper: the setup of the process failed in a way that a restart cannot change.
    Refused,
}

/// Counters of a key process since its start.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) keys: u64,
    /// Operations of its threads, by size of their batch.
    pub(crate) by_size: [u64; 4],
    /// Signatures gathered by its workers: in lanes, and one by one.
    pub(crate) gathered: [u64; 2],
    /// Results that failed verification.
    pub(crate) faults: u64,
}

/// Result of receiving.
#[derive(Debug)]
pub(crate) enum Received<M> {
    Packet(M, Option<UnixStream>),
    /// The timeout of [`Control::wake_every`] has passed.
    Nothing,
    /// The peer has closed its end.
    End,
}

/// One end of the pair of sockets (`SEQPACKET`).
#[derive(Debug)]
pub(crate) struct Control(OwnedFd);

impl Control {
    /// Creates a pair: this end, and the other for a child process.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        // `SEQPACKET` keeps the boundaries of packets, so that JSON needs no framing, and reports the peer's end.
        let (own, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::new(own)?, other))
    }

    /// Wraps the end that was passed to this process.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Send, Some(ROOM))?;
        Ok(Self(socket))
    }

    /// Sends a packet. Blocks for up to [`ROOM`] while the peer's buffer is full. More than [`PACKET`] bytes are an
    /// `InvalidInput` error.
    pub(crate) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut nothing = SendAncillaryBuffer::default();
        self.send_bytes(&bytes, &mut nothing, SendFlags::NOSIGNAL)
    }

    /// Sends a packet with a socket. Does not block.
    pub(crate) fn send_with(&self, message: &impl Serialize, socket: &impl AsFd) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let sockets = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        passed.push(SendAncillaryMessage::ScmRights(&sockets));
        self.send_bytes(&bytes, &mut passed, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_bytes(
        &self,
        bytes: &[u8],
        with: &mut SendAncillaryBuffer<'_, '_, '_>,
        flags: SendFlags,
    ) -> io::Result<()> {
        if bytes.len() > PACKET {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than a packet can hold"));
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], with, flags)?;
        Ok(())
    }

    /// Sets the timeout of [`receive`](Self::receive).
    pub(crate) fn wake_every(&self, time: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(time))?)
    }

    /// Receives the next packet, with a socket if one was sent. Blocks until then, or for the time of
    /// [`wake_every`](Self::wake_every).
    pub(crate) fn receive<M: DeserializeOwned>(&self) -> io::Result<Received<M>> {
        let mut bytes = vec![0; PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        let received = loop {
            match recvmsg(&self.0, slices, &mut with, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                // A killed key process may have left a packet unread.
                Err(Errno::CONNRESET) => return Ok(Received::End),
                other => break other?,
            }
        };
        let sockets = with.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        // Several sockets are never sent; all but the last would be closed here.
        let socket = sockets.last().map(UnixStream::from);
        if received.bytes == 0 {
            return Ok(Received::End);
        }
        Ok(Received::Packet(serde_json::from_slice(&bytes[..received.bytes])?, socket))
    }

    /// Whether the peer has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok()
            && polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// Closes the connection: the peer receives all packets sent before, then the end.
    pub(crate) fn close(&self) {
        // Fails only if it is closed already.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Duplicates this end for a child process.
    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

/// The [`Order::Load`]s for these files; at least one, also without files, since `is_last` ends the configuration.
pub(crate) fn loads(number: u64, files: &[String]) -> Vec<Order> {
    let mut packets: Vec<Vec<String>> = vec![Vec::new()];
    let mut length = 0;
    for file in files {
        if length + file.len() > NAMES && length > 0 {
            packets.push(Vec::new());
            length = 0;
        }
        length += file.len();
        packets.last_mut().expect("there is one").push(file.clone());
    }
    let last = packets.len() - 1;
    let load = |(place, files)| Order::Load { number, files, is_last: place == last };
    packets.into_iter().enumerate().map(load).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn packets_arrive_whole_and_sockets_with_them() {
        let (own, other) = Control::pair().expect("a pair");
        let other = Control::new(other).expect("a socket");
        let load = Order::Load { number: 7, files: vec!["a.key".to_owned()], is_last: true };
        own.send(&load).expect("sent");
        let (mut kept, passed) = UnixStream::pair().expect("a pair");
        own.send_with(&Order::Connect, &passed).expect("sent");
        let next = || match other.receive::<Order>().expect("a packet") {
            Received::Packet(order, socket) => (order, socket),
            nothing => panic!("{nothing:?}"),
        };
        assert_eq!(next().0, load);
        let (order, socket) = next();
        assert_eq!(order, Order::Connect);
        socket.expect("a socket").write_all(b"hello").expect("a connection");
        let mut hello = [0; 5];
        kept.read_exact(&mut hello).expect("a connection");
        assert!(!other.is_closed());
        drop(own);
        assert!(other.is_closed());
        assert!(matches!(other.receive::<Order>().expect("the end"), Received::End));
    }

    #[test]
    fn any_number_of_files_is_packets_of_bounded_length() {
        let files: Vec<_> = (0..1000).map(|number| format!("/etc/brisk/keys/{number}.key")).collect();
        let orders = loads(3, &files);
        assert!(orders.len() > 1);
        let mut all = Vec::new();
        for (place, order) in orders.iter().enumerate() {
            assert!(serde_json::to_vec(order).expect("JSON").len() < PACKET / 2);
            let Order::Load { number: 3, files, is_last } = order else { panic!("{order:?}") };
            assert_eq!(*is_last, place + 1 == orders.len());
            all.extend(files.clone());
        }
        assert_eq!(all, files);
        assert_eq!(loads(1, &[]).len(), 1);
    }
}
