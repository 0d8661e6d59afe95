//! Recording of packets from a network interface (`AF_PACKET`, packet(7)), optionally into files.
//!
//! A [`Recorder`] is an input for [`analyse`](crate::analyse): its bytes are a capture in the format pcap with nanoseconds.

mod files;
mod filter;

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_indextoname, if_nameindex, if_nametoindex};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind,
    getsockopt, recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::{getsockopt_impl, libc, sockopt_impl};
use pcap_parser::Linktype;

pub use files::{Ring, RingFiles};
pub use filter::Filter;

use crate::error::CaptureError;

/// Longest packet: the kernel joins segments to 64 KiB before a recording.
const LONGEST: usize = 256 * 1024;

/// Buffer of the socket in the kernel (`SO_RCVBUF`) in bytes, which bridges pauses of the analysis.
const ROOM: usize = 64 << 20;

/// Packets that the socket can hold: the kernel doubles its size, and a packet takes at least 512 bytes.
const QUEUED: usize = 2 * ROOM / 512;

sockopt_impl!(
    /// `PACKET_STATISTICS` of packet(7): numbers of packets and of lost ones since the last query.
    Statistics, GetOnly, libc::SOL_PACKET, libc::PACKET_STATISTICS, [u32; 2]
);

/// Milliseconds after which `is_stopped` is called again at the latest.
const TICK: i64 = 200;

/// First bytes of a capture in the format pcap with nanoseconds, of packets of at most [`LONGEST`] bytes.
fn header(link: Linktype) -> Vec<u8> {
    // Version 2.4 in two numbers of 16 bits, of which the first has the lower bytes.
    let numbers = [0xa1b2_3c4d, 0x0004_0002, 0, 0, LONGEST as u32, link.0.cast_unsigned()];
    numbers.iter().flat_map(|number: &u32| number.to_le_bytes()).collect()
}

/// Types of interfaces (`ARPHRD_*` in `if_arp.h`).
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;
const PPP: u16 = 512;
const TUN: u16 = 65_534;

/// `PACKET_OUTGOING` of packet(7).
const OUTGOING: u8 = 4;

/// Recording from an interface. Reading it waits for packets, until `is_stopped`.
pub struct Recorder<S> {
    socket: OwnedFd,
    interface: Interface,
    filter: Filter,
    files: Option<RingFiles>,
    is_stopped: S,
    end: Option<End>,
    packet: Vec<u8>,
    control: Vec<u8>,
    /// Bytes of the capture that were not read yet.
    pending: VecDeque<u8>,
    lost: Arc<AtomicU32>,
}

impl<S: FnMut() -> bool> Recorder<S> {
    /// Starts the recording of packets that `filter` accepts. Writes them to `files` too.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Forbidden`] without the right `CAP_NET_RAW`, [`CaptureError::NoInterface`] if there is no such
    /// interface.
    pub fn start(
        interface: &str,
        filter: Filter,
        mut files: Option<RingFiles>,
        is_stopped: S,
    ) -> Result<Self, CaptureError> {
        let interface = Interface::find(interface)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll);
        let socket = socket.map_err(|error| match error {
            Errno::EPERM | Errno::EACCES => CaptureError::Forbidden,
            error => CaptureError::Unreadable(error.into()),
        })?;
        let prepare = || {
            // Without CAP_NET_ADMIN, the size is limited by net.core.rmem_max.
            setsockopt(&socket, sockopt::RcvBufForce, &ROOM)
                .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &ROOM))?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            setsockopt(&socket, sockopt::RxqOvfl, &1)?;
            setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(TICK))?;
            // Without an address, packets of other interfaces arrive too and are ignored.
            interface.address.map_or(Ok(()), |address| bind(socket.as_raw_fd(), &address))
        };
        prepare().map_err(|error| CaptureError::Unreadable(error.into()))?;
        let begin = header(interface.link);
        if let Some(files) = &mut files {
            files.begin(&begin).map_err(CaptureError::Unwritable)?;
        }
        Ok(Self {
            socket,
            interface,
            filter,
            files,
            is_stopped,
            end: None,
            packet: vec![0; LONGEST],
            control: nix::cmsg_space!(nix::sys::time::TimeSpec, u32),
            pending: begin.into(),
            lost: Arc::default(),
        })
    }

    /// Number of packets that the kernel has dropped until now because the socket's buffer was full.
    pub fn lost(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.lost)
    }

    /// Waits for the next packet and adds it to `pending`. Returns `false` if the recording was stopped and the packets until then
    /// were read.
    fn next(&mut self) -> io::Result<bool> {
        loop {
            if self.end.is_none() && (self.is_stopped)() {
                self.end = Some(End { time: now(), rest: QUEUED });
            }
            // With this flag, the kernel returns the length on the network, also if the buffer is shorter.
            let mut flags = MsgFlags::MSG_TRUNC;
            if let Some(end) = &mut self.end {
                // Packets that arrived before the stop are still read, but none is waited for.
                flags |= MsgFlags::MSG_DONTWAIT;
                let Some(rest) = end.rest.checked_sub(1) else { return self.finish() };
                end.rest = rest;
            }
            let mut slices = [IoSliceMut::new(&mut self.packet)];
            let received =
                recvmsg::<LinkAddr>(self.socket.as_raw_fd(), &mut slices, Some(&mut self.control), flags);
            let received = match received {
                Ok(received) => received,
                Err(Errno::EAGAIN) if self.end.is_some() => return self.finish(),
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let is_ours = received.address.as_ref().is_none_or(|address| {
                // A loopback device shows each packet twice.
                let is_copy = self.interface.is_loopback && address.pkttype() == OUTGOING;
                address.ifindex() == self.interface.index && !is_copy
            });
            let mut stamp = None;
            for message in received.cmsgs().into_iter().flatten() {
                match message {
                    ControlMessageOwned::ScmTimestampns(time) => stamp = Some(Duration::from(time)),
                    // A number for display: no other data depends on it, so relaxed ordering is enough.
                    ControlMessageOwned::RxqOvfl(lost) => self.lost.store(lost, Ordering::Relaxed),
                    _ => {}
                }
            }
            let time = stamp.unwrap_or_else(now);
            if self.end.as_ref().is_some_and(|end| time > end.time) {
                return self.finish();
            }
            let (original, captured) = (received.bytes, received.bytes.min(LONGEST));
            let packet = &self.packet[..captured];
            if !is_ours || !self.filter.accepts(self.interface.link, packet) {
                continue;
            }
            let numbers = [time.as_secs() as u32, time.subsec_nanos(), captured as u32, original as u32];
            let head: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            if let Some(files) = &mut self.files {
                files.add(&header(self.interface.link), &[&head, packet])?;
            }
            self.pending.extend(head);
            self.pending.extend(packet);
            return Ok(true);
        }
    }

    /// Counts the packets that were lost after the last one that was read.
    fn finish(&mut self) -> io::Result<bool> {
        self.end = Some(End { time: Duration::ZERO, rest: 0 });
        let [_, lost] = getsockopt(&self.socket, Statistics)?;
        // The number beside packets is that of the latest read one; this one also counts the losses after it.
        self.lost.fetch_max(lost, Ordering::Relaxed);
        Ok(false)
    }
}

/// End of a recording.
struct End {
    /// Time since 1970 at which `is_stopped` first returned `true`.
    time: Duration,
    /// Packets that are read at most until [`End::time`], should the clock be set back.
    rest: usize,
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl<S: FnMut() -> bool> Read for Recorder<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.pending.is_empty() && !self.next()? {
            if let Some(files) = &mut self.files {
                files.flush()?;
            }
            return Ok(0);
        }
        self.pending.read(buffer)
    }
}

/// A network interface.
struct Interface {
    index: usize,
    link: Linktype,
    is_loopback: bool,
    /// Missing for devices without a link layer, such as TUN devices.
    address: Option<LinkAddr>,
}

impl Interface {
    fn find(name: &str) -> Result<Self, CaptureError> {
        let unreadable = |error: Errno| CaptureError::Unreadable(error.into());
        let Ok(index) = if_nametoindex(name) else {
            let names = if_nameindex().map_err(unreadable)?;
            let names: Vec<_> =
                names.iter().map(|found| found.name().to_string_lossy().into_owned()).collect();
            return Err(CaptureError::NoInterface { name: name.to_owned(), names: names.join(", ") });
        };
        // An alternative name is a name of the same index.
        let first_name = if_indextoname(index).map_err(unreadable)?;
        let (mut address, mut is_point_to_point) = (None, false);
        for found in getifaddrs().map_err(unreadable)? {
            let link = found.address.as_ref().and_then(|address| address.as_link_addr());
            address = address.or(link.filter(|address| address.ifindex() == index as usize).copied());
            is_point_to_point |= found.interface_name.as_bytes() == first_name.as_bytes()
                && found.flags.contains(InterfaceFlags::IFF_POINTOPOINT);
        }
        if address.is_none() && !is_point_to_point {
            let fault =
                format!("interface {name} has no address of a link layer: record with tcpdump -w FILE");
            return Err(CaptureError::Unreadable(io::Error::other(fault)));
        }
        let kind = address.map_or(TUN, |address| address.hatype());
        let link = match kind {
            ETHERNET | LOOPBACK => Linktype::ETHERNET,
            PPP | TUN => Linktype::RAW,
            number => return Err(CaptureError::InterfaceType { name: name.to_owned(), number }),
        };
        Ok(Self { index: index as usize, link, is_loopback: kind == LOOPBACK, address })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// Runs a test in a network namespace of its own after a shell command, if this machine permits one.
    fn isolated(command: &'static str, test: impl FnOnce() + Send + 'static) {
        let run = move || {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("skipped, since this machine allows no network namespaces: {error}");
                return;
            }
            let status =
                brisk_testkit::process::command("sh").args(["-ec", command]).status().expect("a shell");
            assert!(status.success(), "{command}");
            test();
        };
        thread::spawn(run).join().expect("no panic");
    }

    #[test]
    fn an_interface_is_the_same_by_its_alternative_name() {
        isolated("ip link property add dev lo altname other-name", || {
            for name in ["lo", "other-name"] {
                let interface = Interface::find(name).expect(name);
                assert!(interface.is_loopback && interface.address.is_some(), "{name}");
                assert_eq!((interface.index, interface.link), (1, Linktype::ETHERNET), "{name}");
            }
        });
    }

    /// Records datagrams that are sent before the stop, with a buffer of `room` bytes. Returns how many were recorded and lost.
    fn recorded(datagrams: usize, room: usize) -> (usize, u32) {
        let mut recorder =
            Recorder::start("lo", "udp".parse().expect("a filter"), None, || true).expect("rights");
        setsockopt(&recorder.socket, sockopt::RcvBuf, &room).expect("a size");
        // An open port, because closed ones answer.
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..datagrams {
            sender.send_to(&[7; 1000], receiver.local_addr().expect("bound")).expect("sent");
        }
        let mut bytes = Vec::new();
        recorder.read_to_end(&mut bytes).expect("a capture");
        let packet = 16 + 14 + 20 + 8 + 1000;
        assert_eq!((bytes.len() - header(Linktype::ETHERNET).len()) % packet, 0);
        (bytes.len() / packet, recorder.lost().load(Ordering::Relaxed))
    }

    #[test]
    fn packets_before_the_stop_are_recorded_or_counted_as_lost() {
        isolated("ip link set lo up", || {
            assert_eq!(recorded(50, ROOM), (50, 0));
            // Each datagram is lost up to twice: as it leaves the loopback device, and as it arrives.
            let (packets, lost) = recorded(500, 50_000);
            assert!(packets < 500 && packets + lost as usize >= 500, "{packets}, {lost}");
        });
    }

    #[test]
    fn a_tun_device_without_an_address_has_raw_packets() {
        if !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("skipped, since this machine has no /dev/net/tun");
            return;
        }
        isolated("ip tuntap add dev tun-one mode tun", || {
            let interface = Interface::find("tun-one").expect("a TUN device");
            assert!(interface.address.is_none() && interface.link == Linktype::RAW);
        });
    }

    #[test]
    fn an_unknown_interface_is_refused_with_those_that_exist() {
        let recorder = Recorder::start("no-such", Filter::default(), None, || true);
        let text = recorder.err().expect("no interface").to_string();
        assert!(text.starts_with("no interface no-such: there are ") && text.contains("lo"), "{text}");
    }
}
