//! The helper process: creates namespaces and devices, then transfers packets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::{Direction, Pipe};

/// The client's address.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// MTU of Ethernet.
const MTU: u16 = 1500;
/// Packets that a device holds until the helper reads them: more than a full send buffer, so that only a [`Pipe`] drops
/// packets.
const DEVICE_QUEUE: u32 = 20_000;

/// Creates both namespaces and transfers packets between them until standard input ends. Prints the descriptors of the
/// client's and the server's namespace when both can be entered.
pub fn run(to_client: Direction, to_server: Direction) -> io::Result<()> {
    let client = end("client", CLIENT)?;
    let server = end("server", SERVER)?;
    carry(&client.device, &server.device, to_server, 1)?;
    carry(&server.device, &client.device, to_client, 2)?;
    println!("{} {}", client.namespace.as_raw_fd(), server.namespace.as_raw_fd());
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// One end of the link.
struct End {
    namespace: File,
    device: Arc<SyncDevice>,
}

/// Creates a namespace with a device in it, on a thread of its own: a thread that has left its namespace cannot return.
fn end(name: &'static str, address: Ipv4Addr) -> io::Result<End> {
    let made = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| explained("cannot create a network namespace", &error.into()))?;
        // The descriptor keeps the namespace alive after the end of this thread, the only one in it.
        let namespace = File::open("/proc/thread-self/ns/net")?;
        ip(&["link", "set", "lo", "up"])?;
        let device = DeviceBuilder::new().name(name).ipv4(address, 24, None).mtu(MTU).build_sync();
        let device = device.map_err(|error| explained("cannot create a TUN device", &error))?;
        // Via `ip`, because the device's own ioctl requires root outside of a user namespace.
        ip(&["link", "set", name, "txqueuelen", &DEVICE_QUEUE.to_string()])?;
        device.set_nonblocking(true)?;
        Ok(End { namespace, device: Arc::new(device) })
    });
    made.join().map_err(|_| io::Error::other("a thread panicked"))?
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let status = std::process::Command::new("ip").args(arguments).status();
    match status.map_err(|error| explained("cannot start ip", &error))? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("ip {}: {status}", arguments.join(" ")))),
    }
}

fn explained(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Transfers packets in one direction, on a thread of its own, until the process ends.
fn carry(from: &Arc<SyncDevice>, to: &Arc<SyncDevice>, direction: Direction, seed: u64) -> io::Result<()> {
    let (from, to) = (Arc::clone(from), Arc::clone(to));
    thread::Builder::new().spawn(move || {
        // Otherwise the kernel may extend each sleep of the thread by 50 us.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut pipe = Pipe::new(direction, Instant::now(), seed);
        // Errors mean that the device has ended, together with the process.
        while turn(&from, &to, &mut pipe).is_ok() {}
    })?;
    Ok(())
}

fn turn(from: &SyncDevice, to: &SyncDevice, pipe: &mut Pipe) -> io::Result<()> {
    wait(from, pipe.next())?;
    let mut packet = [0; MTU as usize];
    loop {
        match from.recv(&mut packet) {
            Ok(len) => pipe.push(Instant::now(), &packet[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        };
    }
    while let Some(packet) = pipe.pop(Instant::now()) {
        match to.send(&packet) {
            // The device refuses data that is not a packet for it, as a network does.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Waits until a packet arrives, or until `due`.
fn wait(device: &SyncDevice, due: Option<Instant>) -> io::Result<()> {
    let timeout = due.map(|due| {
        let left = due.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
    });
    match poll(&mut [PollFd::new(&device.as_fd(), PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
