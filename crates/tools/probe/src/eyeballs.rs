//! Connection to one of several addresses with Happy Eyeballs (RFC 8305): alternates IPv6 and IPv4, and tries the next
//! address when an attempt fails or has taken [`NEXT`].

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

/// Head start of each attempt (RFC 8305 section 5).
const NEXT: Duration = Duration::from_millis(250);

/// Reason for an address that this machine has no route to.
pub(crate) const NO_ROUTE: &str = "no route";

/// Reason for an address without a response.
const NO_ANSWER: &str = "no answer";

/// Reason for an address that was overtaken by a later attempt after at least [`NEXT`].
pub(crate) const OVERTAKEN: &str = "no connection within 250 ms";

/// A finished attempt.
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

/// Reason for having no connection. The trace contains the reason of each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialError {
    /// All addresses failed; [`Trace::refused`] has the reasons.
    All,
    /// The time was over.
    Late,
}

/// The first connection that succeeds. `trace` contains its address and the addresses that failed before.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    deadline: Deadline,
    trace: &mut Trace,
) -> Result<TcpStream, DialError> {
    let ended = dial_until(addresses, deadline, trace).await;
    // They failed in another order than that in which they were tried.
    trace.refused.sort_by_key(|one| one.began);
    ended
}

async fn dial_until(
    addresses: &[SocketAddr],
    deadline: Deadline,
    trace: &mut Trace,
) -> Result<TcpStream, DialError> {
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
            // Set before the result is known: a timeout is reported with the address and the time of the last
            // attempt.
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
            () = sleep_until(deadline) => {
                trace.refused.extend(open.into_iter().map(|(address, began)| Refused::of(address, began, NO_ANSWER)));
                return Err(DialError::Late);
            }
        };
        open.retain(|(own, _)| *own != address);
        match result {
            Ok(tcp) => {
                trace.address = Some(address);
                trace.milestones.dialled = Some(began);
                trace.milestones.connected = Some(ended);
                blame(&mut trace.refused, &open, began, ended);
                // The drop of `attempts` aborts the slower attempts.
                return Ok(tcp);
            }
            Err(error) => trace.refused.push(Refused::of(address, began, &reason(&error))),
        }
        if open.is_empty() && waiting.is_empty() {
            return Err(DialError::All);
        }
        // A failed attempt needs no head start: the next address is tried at once.
        due = Deadline::now();
    }
}

/// Keeps only the addresses that delayed the successful attempt, which lasted from `began` to `connected`; `open` are
/// unfinished attempts. Attempts that began later, or had no time, delayed nothing.
fn blame(refused: &mut Vec<Refused>, open: &[(SocketAddr, Instant)], began: Instant, ended: Instant) {
    refused.retain(|one| one.began < began);
    let slow = open.iter().filter(|(_, time)| *time < began && ended - *time >= NEXT);
    refused.extend(slow.map(|(address, time)| Refused::of(*address, *time, OVERTAKEN)));
}

/// Alternates between the families, beginning with that of the first address; within a family the order is kept (RFC
/// 8305 section 4).
fn in_turns(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    // The index is valid, since the closure runs only for elements.
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
        io::ErrorKind::TimedOut => NO_ANSWER.to_owned(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => NO_ROUTE.to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A deadline that is never reached.
    fn late() -> Deadline {
        Deadline::now() + Duration::from_mins(1)
    }

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

    /// A listener with a full queue: further connections get no response.
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

    #[test]
    fn only_those_before_the_winner_that_had_their_time_are_to_blame() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let all = addresses(&["1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1", "1.1.1.4:1", "1.1.1.5:1"]);
        let refused_at = |index: usize, time| Refused::of(all[index], start + ms(time), "refused");
        // The second failed, so the third began; that failed at once, and the fourth connected. The fifth began and failed meanwhile.
        let mut refused = vec![refused_at(1, 250), refused_at(4, 290)];
        let open = [(all[0], start), (all[2], start + ms(260))];
        blame(&mut refused, &open, start + ms(270), start + ms(300));
        let blamed: Vec<_> = refused.iter().map(|one| (one.address, one.why.as_str())).collect();
        assert_eq!(blamed, [(all[1], "refused"), (all[0], OVERTAKEN)]);
    }

    #[tokio::test]
    async fn at_the_end_of_the_time_every_address_that_was_tried_is_named() {
        let ((one, _held), (other, _other_held)) = (silent(), silent());
        let closed = TcpListener::bind("127.0.0.1:0").expect("bind");
        let held = std::net::TcpStream::connect(closed.local_addr().expect("an address")).expect("connected");
        let all = [
            one.local_addr().expect("an address"),
            held.local_addr().expect("an address"),
            other.local_addr().expect("an address"),
        ];
        let mut trace = Trace::default();
        let deadline = Deadline::now() + 12 * NEXT;
        assert_eq!(dial(&all, deadline, &mut trace).await.err(), Some(DialError::Late));
        let refused: Vec<_> = trace.refused.iter().map(|one| (one.address, one.why == NO_ANSWER)).collect();
        // The second failed before the others, and was tried after the first.
        assert_eq!(refused, [(all[0], true), (all[1], false), (all[2], true)]);
    }

    #[tokio::test]
    async fn an_address_that_is_silent_costs_a_quarter_of_a_second() {
        let (silent, _held) = silent();
        let right = TcpListener::bind("127.0.0.1:0").expect("bind");
        let all = [&silent, &right].map(|listener| listener.local_addr().expect("an address"));
        let mut trace = Trace::default();
        assert!(dial(&all, late(), &mut trace).await.is_ok());
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
        assert!(dial(&all, late(), &mut trace).await.is_ok());
        assert_eq!((trace.refused.len(), trace.refused[0].address), (1, closed));
        let mut trace = Trace::default();
        assert_eq!(dial(&[closed], late(), &mut trace).await.err(), Some(DialError::All));
        assert!(trace.refused[0].why.contains("refused"), "{}", trace.refused[0].why);
    }
}
