//! A datagram [`Socket`] for [`quinn_proto`], of servers and of clients, with segmentation and receive offload (GSO, GRO).

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Buffers of one system call. Each has [`BUFFER`] bytes and takes the datagrams that the kernel has coalesced, up to 64 KiB of
/// one flow.
const BATCH: usize = quinn_udp::BATCH_SIZE;
const BUFFER: usize = 64 << 10;

/// Datagrams of one system call: 44 of 1,452 bytes are just below 64 KiB. Ten, the usual number, cost twice as much per
/// byte.
const SEGMENTS: usize = 44;

/// A received datagram, as [`Batch::datagrams`] divides the buffers of the kernel.
#[derive(Debug)]
pub struct Datagram {
    /// Time of the arrival, which the datagram keeps while it waits.
    pub at: Instant,
    /// Address of the sender.
    pub remote: SocketAddr,
    /// Address to which the datagram was sent; `None` if the system does not report it.
    pub local: Option<IpAddr>,
    /// Congestion marks of the IP header; `None` if the packet is not ECN-capable.
    pub ecn: Option<EcnCodepoint>,
    /// Contents.
    pub data: BytesMut,
}

/// A non-blocking socket on a tokio runtime.
pub struct Socket {
    udp: UdpSocket,
    state: UdpSocketState,
    /// Datagrams that the kernel has not taken yet, while [`Socket::is_blocked`].
    unsent: Option<(Transmit, Vec<u8>)>,
    /// The last error of sending, for [`Socket::take_error`].
    error: Option<io::Error>,
}

/// Buffers for received datagrams: 2 MiB of address space, of which the used pages take memory.
pub struct Batch {
    storage: Box<[u8]>,
    metas: [RecvMeta; BATCH],
    received: usize,
}

impl Default for Batch {
    fn default() -> Self {
        // Zeroed by the system: only pages that are received into take memory.
        let storage = vec![0; BATCH * BUFFER].into_boxed_slice();
        Self { storage, metas: [RecvMeta::default(); BATCH], received: 0 }
    }
}

impl Batch {
    /// The datagrams of the last [`Socket::poll_receive`], with `at` as the time of arrival.
    ///
    /// Each [`Datagram`] has an allocation of its own. Slices of a common buffer would save it, but a connection could then
    /// hold 64 KiB by one retained byte, while its limits count the datagram only.
    pub fn datagrams(&self, at: Instant) -> impl Iterator<Item = Datagram> {
        let received = self.metas.iter().zip(self.storage.chunks_exact(BUFFER)).take(self.received);
        received.flat_map(move |(meta, buffer)| {
            // `quinn_udp` and `quinn_proto` each have an ECN type; both use the two bits of the IP header.
            let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
            buffer[..meta.len].chunks(meta.stride.max(1)).map(move |data| Datagram {
                at,
                remote: meta.addr,
                local: meta.dst_ip,
                ecn,
                data: BytesMut::from(data),
            })
        })
    }
}

impl Socket {
    /// Takes a bound socket. Must be called inside a tokio runtime. Returns `Err` if the system refuses an option of the
    /// socket.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let udp = UdpSocket::from_std(socket)?;
        let state = UdpSocketState::new((&udp).into())?;
        Ok(Self { udp, state, unsent: None, error: None })
    }

    /// Whether datagrams are sent whole or not at all, so that larger ones can be tried (RFC 8899).
    pub fn forbids_fragments(&self) -> bool {
        !self.state.may_fragment()
    }

    /// Maximum number of segments of one [`Transmit`]: 1 if the system has no segmentation offload.
    pub fn segments(&self) -> usize {
        SEGMENTS.min(self.state.max_gso_segments())
    }

    /// Fills `batch` with one system call. An `Err` is an error of the socket, such as a lack of memory; a later call may
    /// succeed.
    pub fn poll_receive(&self, cx: &mut Context<'_>, batch: &mut Batch) -> Poll<io::Result<()>> {
        loop {
            ready!(self.udp.poll_recv_ready(cx))?;
            let mut chunks = batch.storage.chunks_exact_mut(BUFFER);
            let mut buffers: [IoSliceMut<'_>; BATCH] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("a buffer for each")));
            let metas = &mut batch.metas;
            let receive = || self.state.recv((&self.udp).into(), &mut buffers, metas);
            match self.udp.try_io(Interest::READABLE, receive) {
                Ok(received) => {
                    batch.received = received;
                    return Poll::Ready(Ok(()));
                }
                // `try_io` has cleared the readiness, so the next turn of the loop registers the waker.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends datagrams, or keeps them if the kernel's buffer is full. To be called only while
    /// [`is_blocked`](Self::is_blocked) is false: the socket keeps one [`Transmit`], which a second call would replace.
    pub fn send(&mut self, transmit: Transmit, contents: &[u8]) {
        if self.try_send(&transmit, contents).is_pending() {
            // A copy, because the caller uses its buffer for the next datagrams.
            self.unsent = Some((transmit, contents[..].to_vec()));
        }
    }

    /// Whether datagrams of [`send`](Self::send) wait for room in the kernel's buffer.
    pub fn is_blocked(&self) -> bool {
        self.unsent.is_some()
    }

    /// Takes the last error of sending. Such datagrams were lost on the way: too large for the path, no route, or refused by
    /// a firewall or by the receiving machine. A server need not know.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Sends the datagrams that wait. An `Err` is one of the runtime; errors of sending are in [`Self::take_error`].
    pub fn poll_unblock(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((transmit, contents)) = self.unsent.take() {
            let writable = self.udp.poll_send_ready(cx)?;
            if writable.is_pending() || self.try_send(&transmit, &contents).is_pending() {
                self.unsent = Some((transmit, contents));
                ready!(writable);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn try_send(&mut self, transmit: &Transmit, contents: &[u8]) -> Poll<()> {
        let segments = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &contents[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let send = || self.state.try_send((&self.udp).into(), &segments);
        match self.udp.try_io(Interest::WRITABLE, send) {
            Ok(()) => Poll::Ready(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => {
                // The error concerns one destination, and must not end the connections of all others on the
                // socket.
                tracing::debug!(%error, destination = %transmit.destination, "datagrams are not sent");
                self.error = Some(error);
                Poll::Ready(())
            }
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("udp", &self.udp).finish_non_exhaustive()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("received", &self.received).finish_non_exhaustive()
    }
}
