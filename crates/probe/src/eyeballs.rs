//! One connection to one of several addresses, as clients make it (Happy Eyeballs, RFC 8305): IPv6 and IPv4 in turns, the next
//! address as soon as one fails, or when none has connected for [`NEXT`].

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use brisk_net::{ConnectOptions, connect_from};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, sleep_until};

use crate::trace::{Refused, Trace};

/// How long an address has for itself (RFC 8305 section 5).
const NEXT: Duration = Duration::from_millis(250);

/// The reason where this machine cannot reach an address.
pub(crate) const NO_ROUTE: &str = "no route";

/// The reason where another address connected, which was tried after [`NEXT`].
pub(crate) const OVERTAKEN: &str = "no connection within 250 ms";

/// An attempt that ended.
struct Attempt {
    address: SocketAddr,
    began: Instant,
    ended: Instant,
    result: io::Result<TcpStream>,
}

impl Attempt {
    async fn make(address: SocketAddr, began: Instant) -> Self {
        let result = connect_from(address, ConnectOptions::default()).await;
        Self { address, began, ended: Instant::now(), result }
    }
}

/// The first connection; `None` if every address fails. The trace says which one it is, and which others were tried before.
pub(crate) async fn dial(addresses: &[SocketAddr], trace: &mut Trace) -> Option<TcpStream> {
    let mut waiting = in_turns(addresses);
    let mut attempts = JoinSet::new();
    let mut open: Vec<(SocketAddr, Instant)> = Vec::new();
    // When the next address is due.
    let mut due = Deadline::now();
    loop {
        if Deadline::now() >= due
            && let Some(address) = waiting.pop_front()
        {
            let began = Instant::now();
            trace.address = Some(address);
            trace.milestones.began.get_or_insert(began);
            trace.milestones.dialled = Some(began);
            open.push((address, began));
            attempts.spawn(Attempt::make(address, began));
            due = Deadline::now() + NEXT;
        }
        let turn = async { if waiting.is_empty() { pending().await } else { sleep_until(due).await } };
        let Attempt { address, began, ended, result } = tokio::select! {
            Some(Ok(ended)) = attempts.join_next() => ended,
            () = turn => continue,
        };
        open.retain(|(own, _)| *own != address);
        match result {
            Ok(tcp) => {
                trace.address = Some(address);
                trace.milestones.dialled = Some(began);
                trace.milestones.connected = Some(ended);
                // Those that began later are not to blame.
                let slow = open.into_iter().filter(|(_, time)| *time < began);
                trace.refused.extend(slow.map(|(address, _)| Refused { address, why: OVERTAKEN.to_owned() }));
                return Some(tcp);
            }
            Err(error) => trace.refused.push(Refused { address, why: reason(&error) }),
        }
        if open.is_empty() && waiting.is_empty() {
            return None;
        }
        due = Deadline::now();
    }
}

/// The family of the first address, then the other one, and so on; within a family the order stays (RFC 8305 section 4).
fn in_turns(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let is_first = |address: &&SocketAddr| addresses[0].is_ipv6() == address.is_ipv6();
    let mut own = addresses.iter().filter(is_first);
    let mut other = addresses.iter().filter(|address| !is_first(address));
    let mut all = VecDeque::with_capacity(addresses.len());
    loop {
        let pair = [own.next(), other.next()];
        if pair == [None, None] {
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused: no server listens on this port".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => NO_ROUTE.to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn addresses(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn families_take_turns() {
        let all = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]);
        assert_eq!(in_turns(&all), addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
        let all = addresses(&["1.1.1.1:1", "1.1.1.2:1", "[::1]:1"]);
        assert_eq!(in_turns(&all), addresses(&["1.1.1.1:1", "[::1]:1", "1.1.1.2:1"]));
        assert!(in_turns(&[]).is_empty());
    }

    /// A listener whose queue is full: further connections get no answer.
    fn silent() -> (TcpListener, Vec<std::net::TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        rustix::net::listen(&listener, 0).expect("a short queue");
        let address = listener.local_addr().expect("an address");
        let mut held = Vec::new();
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, NEXT) {
            held.push(stream);
        }
        (listener, held)
    }

    #[tokio::test]
    async fn an_address_that_is_silent_costs_a_quarter_of_a_second() {
        let (silent, _held) = silent();
        let right = TcpListener::bind("127.0.0.1:0").expect("bind");
        let all = [&silent, &right].map(|listener| listener.local_addr().expect("an address"));
        let mut trace = Trace::default();
        assert!(dial(&all, &mut trace).await.is_some());
        assert_eq!(trace.address, Some(all[1]));
        let refused: Vec<_> = trace.refused.iter().map(|one| (one.address, one.why.as_str())).collect();
        assert_eq!(refused, [(all[0], OVERTAKEN)]);
        let times = trace.milestones;
        let lost = times.dialled.expect("a time") - times.began.expect("a time");
        assert!(lost >= NEXT, "{lost:?}");
    }

    #[tokio::test]
    async fn an_address_that_refuses_costs_nothing_and_all_that_refuse_are_named() {
        let closed = TcpListener::bind("127.0.0.1:0").expect("bind");
        let held = std::net::TcpStream::connect(closed.local_addr().expect("an address")).expect("connected");
        // The port of a client is taken, and has no listener.
        let closed = held.local_addr().expect("an address");
        let right = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut trace = Trace::default();
        let all = [closed, right.local_addr().expect("an address")];
        assert!(dial(&all, &mut trace).await.is_some());
        assert_eq!((trace.refused.len(), trace.refused[0].address), (1, closed));
        let mut trace = Trace::default();
        assert!(dial(&[closed], &mut trace).await.is_none());
        assert!(trace.refused[0].why.contains("refused"), "{}", trace.refused[0].why);
    }
}
