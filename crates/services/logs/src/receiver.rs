//! Receivers of messages: syslog servers over UDP, TCP and Unix sockets, the journal of systemd, and receivers of OTLP.
//!
//! Only the thread of the output uses a receiver. It may wait for a receiver for a limited time. A receiver that fails is
//! tried again after growing pauses, in which its messages stay in the buffers of the workers.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brisk_telemetry::Throttle;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

use crate::otlp::{self, Exported, Exporter};
use crate::settings::{OtlpSettings, SyslogServer};

/// Maximum time for which a connection is established, and for which a receiver may accept nothing.
const CONNECT: Duration = Duration::from_secs(5);
const SEND: Duration = Duration::from_secs(2);

/// Pauses after failures: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Time after which a receiver that takes messages is no longer regarded as down.
const SETTLED: Duration = Duration::from_secs(1);

/// The least time between two warnings about refused lines.
const WARNINGS: Duration = Duration::from_mins(1);

/// Interval between export requests of OTLP: each is a connection.
const EXPORTS: Duration = Duration::from_secs(1);

/// Bytes of TCP frames that are written together, and the time that this may take.
const CHUNK: usize = 64 << 10;
const CHUNK_LIMIT: Duration = Duration::from_secs(10);

/// A receiver, connected or not.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: Address,
    socket: Option<Socket>,
    connected: Instant,
    retry: Instant,
    pause: Duration,
    /// Whether the failure of the receiver has been logged, and its return has not.
    is_down: bool,
    warnings: Throttle,
}

#[derive(Debug)]
enum Address {
    Syslog(SyslogServer),
    Journal(PathBuf),
    Otlp(Box<OtlpSettings>, Box<dyn Exporter>),
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixDatagram),
    Journal(UnixDatagram),
    /// The exporter connects for each request.
    Exporter,
}

impl Receiver {
    pub(crate) fn syslog(server: &SyslogServer) -> Self {
        Self::new(Address::Syslog(server.clone()))
    }

    pub(crate) fn journal(socket: &Path) -> Self {
        Self::new(Address::Journal(socket.to_owned()))
    }

    pub(crate) fn otlp(settings: &OtlpSettings, exporter: Box<dyn Exporter>) -> Self {
        Self::new(Address::Otlp(Box::new(settings.clone()), exporter))
    }

    /// Interval between writes, if it is longer than that of other outputs.
    pub(crate) fn gather(&self) -> Option<Duration> {
        matches!(self.address, Address::Otlp(..)).then_some(EXPORTS)
    }

    fn new(address: Address) -> Self {
        let now = Instant::now();
        let warnings = Throttle::new(WARNINGS);
        Self {
            address,
            socket: None,
            connected: now,
            retry: now,
            pause: FIRST_PAUSE,
            is_down: false,
            warnings,
        }
    }

    /// The time until the next attempt; `None` unless the receiver is down.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let wait = self.retry.saturating_duration_since(Instant::now());
        (self.socket.is_none() && !wait.is_zero()).then_some(wait)
    }

    /// Permits the next attempt at once.
    pub(crate) fn end_pause(&mut self) {
        self.retry = Instant::now();
    }

    /// The [`Messages`] in `batch`.
    pub(crate) fn messages<'a>(&self, batch: &'a [u8]) -> Messages<'a> {
        let framing = match self.address {
            Address::Syslog(_) => Framing::Line,
            Address::Journal(_) => Framing::Entry,
            Address::Otlp(..) => Framing::Record,
        };
        Messages { batch, at: 0, framing }
    }

    /// Sends the messages in `batch` and removes them. If the receiver fails, the rest stays. Returns the number of messages
    /// that no attempt could send. `name` is the output in log messages.
    pub(crate) fn write(&mut self, batch: &mut Vec<u8>, name: &str) -> u64 {
        let (mut sent, mut loss) = (0, Loss::default());
        match self.send(batch, &mut sent, &mut loss) {
            Ok(()) => {
                // With an incomplete line after a panic.
                batch.clear();
                self.succeeded(name);
            }
            Err(error) => {
                batch.drain(..sent);
                self.failed(&error, name);
            }
        }
        if loss.lines > 0 && self.warnings.pass().is_some() {
            let Loss { lines, reason } = &loss;
            tracing::warn!(output = name, lines, reason, "the receiver of the access log refuses lines");
        }
        loss.lines
    }

    fn succeeded(&mut self, name: &str) {
        // A server that accepts connections and closes them at once would otherwise reset the pause, and
        // fill the log with its failures and returns.
        if self.connected.elapsed() < SETTLED {
            return;
        }
        self.pause = FIRST_PAUSE;
        if std::mem::take(&mut self.is_down) {
            tracing::info!(output = name, "the receiver of the access log takes lines again");
        }
    }

    fn failed(&mut self, error: &io::Error, name: &str) {
        // Logged once: attempts follow for as long as the receiver is down.
        if !std::mem::replace(&mut self.is_down, true) {
            tracing::error!(
                output = name, %error,
                "the receiver of the access log is down; 1 MiB of lines per worker waits for it, further lines are lost"
            );
        }
        self.socket = None;
        self.retry = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn send(&mut self, batch: &[u8], sent: &mut usize, loss: &mut Loss) -> io::Result<()> {
        if self.socket.as_ref().is_none_or(Socket::is_closed) {
            self.socket = None;
            self.socket = Some(self.address.connect()?);
            self.connected = Instant::now();
        }
        if let Address::Otlp(settings, exporter) = &mut self.address {
            *loss = export(settings, &mut **exporter, batch)?;
            return Ok(());
        }
        let mut messages = self.messages(batch);
        let Some(socket) = &mut self.socket else { return Ok(()) };
        if let Socket::Tcp(stream) = socket {
            return send_frames(stream, &mut messages, sent);
        }
        while let Some(message) = messages.next() {
            match socket.send(message) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::MSGSIZE) => {
                    // The message would fail again forever, and all messages after it would wait.
                    loss.lines += 1;
                    loss.reason = error.to_string();
                }
                result => result?,
            }
            *sent = messages.at;
        }
        Ok(())
    }
}

/// Number of lines that no attempt could send, with the reason.
#[derive(Debug, Default)]
struct Loss {
    lines: u64,
    reason: String,
}

/// Messages of a batch without the line feed, or the empty line of the journal, after each.
#[derive(Debug)]
pub(crate) struct Messages<'a> {
    batch: &'a [u8],
    /// Start of the next message.
    at: usize,
    framing: Framing,
}

/// End of a message.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// A line feed.
    Line,
    /// An empty line.
    Entry,
    /// The length is at its start.
    Record,
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.batch[self.at..];
        let (length, separator) = match self.framing {
            Framing::Line => (rest.iter().position(|byte| *byte == b'\n')?, 1),
            // The last field of an entry ends with a line feed too.
            Framing::Entry => (rest.windows(2).position(|pair| pair == b"\n\n")? + 1, 1),
            Framing::Record => (otlp::record_length(rest)?, 0),
        };
        let message = rest.get(..length)?;
        self.at += length + separator;
        Some(message)
    }
}

impl Address {
    fn connect(&self) -> io::Result<Socket> {
        match self {
            Self::Syslog(SyslogServer::Udp(address)) => first_of(address, |address| {
                // A socket of one family cannot be connected to an address of the other.
                let any = if address.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { IpAddr::from([0; 4]) };
                let socket = UdpSocket::bind((any, 0))?;
                socket.connect(address)?;
                Ok(Socket::Udp(socket))
            }),
            Self::Syslog(SyslogServer::Tcp(address)) => first_of(address, |address| {
                let stream = TcpStream::connect_timeout(&address, CONNECT)?;
                stream.set_write_timeout(Some(SEND))?;
                Ok(Socket::Tcp(stream))
            }),
            Self::Syslog(SyslogServer::Unix(path)) => unix(path).map(Socket::Unix),
            Self::Journal(path) => unix(path).map(Socket::Journal),
            Self::Otlp(..) => Ok(Socket::Exporter),
        }
    }
}

/// Exports all records in `batch`. Returns those that the receiver refused.
fn export(settings: &OtlpSettings, exporter: &mut dyn Exporter, batch: &[u8]) -> io::Result<Loss> {
    let records = Messages { batch, at: 0, framing: Framing::Record }.count() as u64;
    match exporter.export(otlp::export_request(settings, batch)) {
        Exported::Accepted(response) => {
            // A receiver that counts more than it got would let the counter of lost lines overflow.
            let lines = otlp::rejected(&response).min(records);
            Ok(Loss { lines, reason: "rejected in a response".to_owned() })
        }
        // The specification of OTLP forbids a repetition, so the records are lost.
        Exported::Refused(reason) => Ok(Loss { lines: records, reason }),
        Exported::Unavailable(reason) => Err(io::Error::other(reason)),
    }
}

/// Connects to the first address of a host that can be reached.
fn first_of(address: &str, connect: impl Fn(SocketAddr) -> io::Result<Socket>) -> io::Result<Socket> {
    let mut failure = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match connect(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn unix(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(SEND))?;
    Ok(socket)
}

impl Socket {
    /// Whether the server has closed the connection, which a write would not report before the next one. Syslog servers send
    /// nothing.
    fn is_closed(&self) -> bool {
        let Self::Tcp(stream) = self else { return false };
        let peeked = recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Ok((_, 1..)) | Err(Errno::AGAIN))
    }

    /// Sends a message as one datagram.
    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(message).map(drop),
            Self::Unix(socket) => socket.send(message).map(drop),
            Self::Journal(socket) => match socket.send(message) {
                Err(error)
                    if matches!(Errno::from_io_error(&error), Some(Errno::MSGSIZE | Errno::NOBUFS)) =>
                {
                    send_sealed(socket, message)
                }
                result => result.map(drop),
            },
            // These take whole batches, in `send_frames` and `export`.
            Self::Tcp(_) | Self::Exporter => Ok(()),
        }
    }
}

/// Sends an entry that is too long for a datagram as the descriptor of a sealed file in memory (`memfd_create`), as the
/// documentation of the native protocol of journald demands.
fn send_sealed(socket: &UnixDatagram, entry: &[u8]) -> io::Result<()> {
    let mut file =
        File::from(memfd_create("brisk-access-log", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(entry)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    // Without data: journald reads the entry from the descriptor.
    sendmsg(socket, &[IoSlice::new(&[])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Sends frames with octet counting (RFC 6587 section 3.4.1): the length of each message and a space precede it. The frames
/// of a chunk that fails are sent again, so that some messages may arrive twice.
fn send_frames(stream: &mut TcpStream, messages: &mut Messages<'_>, sent: &mut usize) -> io::Result<()> {
    let mut frames = Vec::new();
    loop {
        // Gathered into chunks: one system call for each line would be slower than the workers.
        frames.clear();
        while frames.len() < CHUNK
            && let Some(message) = messages.next()
        {
            // Writing to a vector cannot fail.
            let _ = write!(frames, "{} ", message.len());
            frames.extend_from_slice(message);
        }
        if frames.is_empty() {
            return Ok(());
        }
        // The timeout of the socket bounds one write only: a server that accepts a byte at a time would
        // hold the thread.
        let limit = Instant::now() + CHUNK_LIMIT;
        let mut rest = &frames[..];
        while !rest.is_empty() {
            if Instant::now() >= limit {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let written = stream.write(rest)?;
            rest = &rest[written..];
        }
        *sent = messages.at;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

    use rustix::net::{AddressFamily, SocketType};

    use super::*;
    use crate::settings::{ExportHeaders, OtlpSignal};

    /// An exporter whose receiver reports 2^64 - 1 records as rejected.
    #[derive(Debug)]
    struct Miscounting;

    impl Exporter for Miscounting {
        fn export(&mut self, _: Vec<u8>) -> Exported {
            let count = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
            Exported::Accepted([&[0x0a, 11][..], &count].concat())
        }
    }

    #[test]
    fn no_more_records_are_rejected_than_were_sent() {
        let settings = OtlpSettings {
            endpoint: String::new(),
            signal: OtlpSignal::Logs,
            service_name: String::new(),
            sample: None,
            ca: None,
            headers: ExportHeaders(Vec::new()),
            timeout: SEND,
        };
        // Two records without content.
        let batch = [0x12, 0, 0x12, 0];
        let loss = export(&settings, &mut Miscounting, &batch).expect("a response");
        assert_eq!(loss.lines, 2);
    }

    fn messages(receiver: &Receiver, batch: &str) -> Vec<String> {
        let text = |message: &[u8]| String::from_utf8(message.to_vec()).expect("UTF-8");
        receiver.messages(batch.as_bytes()).map(text).collect()
    }

    #[test]
    fn a_batch_is_divided_into_messages() {
        let syslog = Receiver::syslog(&SyslogServer::Tcp("127.0.0.1:1".to_owned()));
        assert_eq!(messages(&syslog, "a b\nc\n"), ["a b", "c"]);
        let journal = Receiver::journal(Path::new("/socket"));
        assert_eq!(messages(&journal, "A=1\nB=2\n\nA=3\n\n"), ["A=1\nB=2\n", "A=3\n"]);
    }

    #[test]
    fn messages_stay_while_a_server_is_down_and_follow_later() {
        // Bound and not listening: no other program gets the port.
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().expect("an address");
        let mut receiver = Receiver::syslog(&SyslogServer::Tcp(address.to_string()));
        let mut batch = b"one\ntwo\n".to_vec();
        assert_eq!(receiver.write(&mut batch, "x"), 0);
        assert!(batch == b"one\ntwo\n" && receiver.is_down && receiver.socket.is_none());
        rustix::net::listen(&listener, 16).expect("a listener");
        receiver.end_pause();
        assert_eq!(receiver.write(&mut batch, "x"), 0);
        assert!(batch.is_empty() && receiver.socket.is_some() && receiver.pause().is_none());
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut frames = [0; 10];
        stream.read_exact(&mut frames).expect("two frames");
        assert_eq!(&frames, b"3 one3 two");
        // The server closes: the next message goes to a new connection.
        drop(stream);
        let socket = receiver.socket.as_ref().expect("a connection");
        while !socket.is_closed() {
            std::thread::yield_now();
        }
        receiver.write(&mut b"three\n".to_vec(), "x");
        let (mut stream, _) = listener.accept().expect("another connection");
        let mut frames = [0; 7];
        stream.read_exact(&mut frames).expect("a frame");
        assert_eq!(&frames, b"5 three");
    }

    #[test]
    fn a_datagram_that_is_too_long_is_lost_and_the_next_one_is_sent() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("an address").to_string();
        let mut receiver = Receiver::syslog(&SyslogServer::Udp(address));
        let mut batch = [&vec![b'x'; 70_000][..], b"\nnext\n"].concat();
        assert_eq!(receiver.write(&mut batch, "x"), 1);
        let mut datagram = [0; 16];
        let length = server.recv(&mut datagram).expect("a datagram");
        assert!(batch.is_empty() && &datagram[..length] == b"next");
    }

    #[test]
    fn pauses_grow_and_end_at_half_a_minute() {
        let mut receiver = Receiver::journal(Path::new("/nonexistent/socket"));
        for _ in 0..20 {
            receiver.end_pause();
            receiver.write(&mut b"A=1\n\n".to_vec(), "x");
        }
        assert_eq!(receiver.pause, LONGEST_PAUSE);
    }
}
