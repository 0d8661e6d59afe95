//! [`Notifier`], the reports of a service to its service manager.
//!
//! The crate `sd-notify` does not suit: it takes a name in the abstract namespace for a path, and blocks the caller for as long as
//! the manager does not read.

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};
use rustix::time::{ClockId, clock_gettime};

use crate::environment::{FDSTORE, NOTIFY_SOCKET, WATCHDOG_PID, WATCHDOG_USEC};

/// Maximum wait for a manager whose queue of notifications is full.
const LIMIT: Duration = Duration::from_secs(2);

/// Sender of notifications to systemd or to a supervisor (`sd_notify(3)`). Without a manager, all methods do nothing.
#[derive(Debug, Default)]
pub struct Notifier(Option<Manager>);

/// The service manager that the environment names.
#[derive(Debug)]
struct Manager {
    channel: Channel,
    /// Maximum number of descriptors in its store.
    stores: usize,
    /// Time after the last beat at which it takes the service for dead.
    watchdog: Option<Duration>,
}

/// The way to a service manager.
#[derive(Debug)]
enum Channel {
    /// The socket of systemd.
    Address(SocketAddr),
    /// One end of a pair, of which a supervisor has the other.
    Pair(UnixDatagram),
}

impl Notifier {
    /// The manager of `NOTIFY_SOCKET`, with `FDSTORE` and `WATCHDOG_USEC`. An address that is neither a path nor abstract, such as
    /// `vsock:`, is ignored with a warning.
    pub fn from_environment() -> Self {
        // The variable stays for child processes, whose messages the manager ignores.
        let Ok(written) = env::var(NOTIFY_SOCKET) else { return Self::default() };
        let address = match address(&written) {
            Ok(address) => address,
            Err(error) => {
                tracing::warn!(NOTIFY_SOCKET = written, %error, "the service manager gets no reports");
                return Self::default();
            }
        };
        Self::of(Channel::Address(address))
    }

    /// The supervisor that has passed this descriptor by the name [`REPORTS`](crate::succession::REPORTS), with `FDSTORE` and
    /// `WATCHDOG_USEC` from the environment.
    pub fn through(descriptor: OwnedFd) -> Self {
        Self::of(Channel::Pair(descriptor.into()))
    }

    fn of(channel: Channel) -> Self {
        let stores = env::var(FDSTORE).ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        Self(Some(Manager { channel, stores, watchdog: watchdog() }))
    }

    /// Whether there is a manager.
    pub fn is_managed(&self) -> bool {
        self.0.is_some()
    }

    /// Maximum number of descriptors that the manager stores; 0 without a store.
    pub fn stores(&self) -> usize {
        self.0.as_ref().map_or(0, |manager| manager.stores)
    }

    /// Time without [`alive`](Self::alive) after which the manager ends the service; `None` if it never does.
    pub fn watchdog(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|manager| manager.watchdog)
    }

    /// `READY=1` with a status for people: the service serves, or has ended a reload. Waits for up to two seconds while the
    /// manager does not read.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.send(&format!("READY=1\nSTATUS={status}"), &[])
    }

    /// As [`ready`](Self::ready), for a main process that is not the sender's parent: also `MAINPID`.
    pub(crate) fn ready_as_main(&self, status: &str) -> io::Result<()> {
        self.send(&format!("READY=1\nMAINPID={}\nSTATUS={status}", process::id()), &[])
    }

    /// `RELOADING=1` with the time of the monotonic clock, which `Type=notify-reload` of systemd requires. A failure is logged.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.try_send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// `READY=1` after a reload. A failure is logged.
    pub fn reloaded(&self, status: &str) {
        if let Err(error) = self.ready(status) {
            tracing::warn!(%error, "the service manager does not learn that the reload has ended");
        }
    }

    /// `STOPPING=1`: the service accepts no further connections. A failure is logged.
    pub fn stopping(&self) {
        self.try_send("STOPPING=1");
    }

    /// `WATCHDOG=1`, if the manager has a watchdog. Does not wait: while the manager does not read, the beat is left out.
    pub fn alive(&self) {
        let Some(manager) = self.0.as_ref().filter(|manager| manager.watchdog.is_some()) else { return };
        // By a flag: `O_NONBLOCK` would also apply to other reports through a pair.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = manager.connect().and_then(|socket| Ok(send(socket.as_fd(), b"WATCHDOG=1", flags)?));
        if let Err(error) = sent {
            tracing::debug!(%error, "a beat for the watchdog of the service manager is left out");
        }
    }

    /// Stores a copy of a descriptor under a name. It is kept although a listening socket that is paused looks closed (`FDPOLL=0`).
    pub fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}"), &[descriptor])
    }

    /// Removes the descriptors with this name from the store.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[])
    }

    fn try_send(&self, text: &str) {
        if let Err(error) = self.send(text, &[]) {
            let first = text.lines().next().unwrap_or_default();
            tracing::warn!(%error, "the service manager does not get {first}");
        }
    }

    fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(manager) = &self.0 else { return Ok(()) };
        let socket = manager.connect()?;
        socket.set_write_timeout(Some(LIMIT))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            passed.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(socket.as_fd(), &[IoSlice::new(text.as_bytes())], &mut passed, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

impl Manager {
    /// The socket for a message, for an address a new one: after a restart, a manager has another socket with the same address.
    fn connect(&self) -> io::Result<UnixDatagram> {
        match &self.channel {
            Channel::Pair(socket) => socket.try_clone(),
            Channel::Address(address) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect_addr(address)?;
                Ok(socket)
            }
        }
    }
}

fn address(written: &str) -> io::Result<SocketAddr> {
    match written.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None if written.starts_with('/') => SocketAddr::from_pathname(written),
        None => Err(io::Error::other("not a path or a name after `@`")),
    }
}

fn watchdog() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let is_ours = number(WATCHDOG_PID).is_none_or(|id| id == u64::from(process::id()));
    number(WATCHDOG_USEC).filter(|time| is_ours && *time > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A manager in a folder, and a notifier for it.
    fn managed(folder: &tempfile::TempDir, watchdog: Option<Duration>) -> (UnixDatagram, Notifier) {
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        let address = address(path.to_str().expect("UTF-8")).expect("an address");
        (manager, Notifier(Some(Manager { channel: Channel::Address(address), stores: 8, watchdog })))
    }

    fn received(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn reports_arrive_as_the_manual_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let (manager, notifier) = managed(&folder, Some(Duration::from_secs(1)));
        notifier.ready("serves").expect("sent");
        assert_eq!(received(&manager), "READY=1\nSTATUS=serves");
        notifier.reloading();
        assert!(received(&manager).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        notifier.stopping();
        assert_eq!(received(&manager), "STOPPING=1");
        notifier.alive();
        assert_eq!(received(&manager), "WATCHDOG=1");
        let file = File::open("/dev/null").expect("a file");
        notifier.store("https", file.as_fd()).expect("sent");
        assert_eq!(received(&manager), "FDSTORE=1\nFDPOLL=0\nFDNAME=https");
    }

    #[test]
    fn a_manager_that_does_not_read_does_not_block_the_beats() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_manager, notifier) = managed(&folder, Some(Duration::from_secs(1)));
        (0..10_000).for_each(|_| notifier.alive());
    }

    #[test]
    fn addresses_are_paths_or_abstract_names() {
        assert!(address("/run/systemd/notify").expect("a path").as_pathname().is_some());
        assert_eq!(address("@a/b").expect("a name").as_abstract_name(), Some(&b"a/b"[..]));
        for wrong in ["", "notify", "vsock:2:9999"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
