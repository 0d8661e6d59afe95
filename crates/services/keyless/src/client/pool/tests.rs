mod simulation;

use std::task::{Context, Waker};
use std::thread::sleep;
use std::time::Duration;

use brisk_keys::PendingOperation;
use brisk_tls::connector::ConnectorSettings;
use bytes::BytesMut;

use super::*;
use crate::frame::{Hello, VERSION};

const HEDGE: Duration = Duration::from_millis(2);

/// A pool with this number of servers, none of them connected.
fn pool(servers: u16) -> Pool {
    let targets = (1..=servers).map(|port| format!("127.0.0.1:{port}").parse().expect("an address"));
    let mut settings = RemoteSettings::new("main", targets.collect(), ConnectorSettings::default());
    settings.hedge = HEDGE;
    let statistics = Statistics::new(&settings);
    let links = (0..servers).map(|server| Rc::new(ServerLink::new(server.into()))).collect();
    Pool::new(Arc::new(settings), statistics, links)
}

/// Connects a server that accepts `operations` at a time.
fn connect(pool: &Pool, server: usize, operations: u16) {
    pool.links[server].open(BytesMut::new(), Hello { version: VERSION, operations, keys: 1 });
    pool.statistics.servers[server].usable.fetch_add(1, Ordering::Relaxed);
    pool.has_room();
}

fn submit(pool: &Pool) -> PendingOperation {
    submit_without(pool, 0)
}

/// Submits an operation that the servers in the bit set `excluded` must not get.
fn submit_without(pool: &Pool, excluded: u64) -> PendingOperation {
    let deadline = Instant::now() + Duration::from_mins(1);
    let (pending, completion) = PendingOperation::with_completion(deadline);
    pool.submit(Job {
        key: KeyId([1; 32]),
        scheme: SignatureScheme::ED25519,
        message: Bytes::from_static(b"message"),
        deadline,
        public_key: None,
        completion,
        counted: InProgress::new(&pool.statistics),
        excluded,
    });
    pending
}

/// Indices of the servers that have the operation.
fn having(pool: &Pool, number: u32) -> Vec<usize> {
    pool.links.iter().filter(|link| link.has(number)).map(|link| link.server).collect()
}

fn later(pool: &Pool) {
    sleep(HEDGE * 2);
    pool.pass(Instant::now());
}

fn result(pending: PendingOperation) -> Option<KeyResult> {
    let mut pending = std::pin::pin!(pending);
    match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(result) => Some(result),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn a_third_server_is_asked_when_the_second_does_not_answer_either() {
    let pool = pool(3);
    (0..3).for_each(|server| connect(&pool, server, 10));
    let _pending = submit(&pool);
    for count in 1..=3 {
        assert_eq!(having(&pool, 1).len(), count);
        later(&pool);
    }
    assert_eq!(pool.statistics.hedged.load(Ordering::Relaxed), 2);
}

#[test]
fn what_one_refuses_goes_to_a_third_while_the_second_does_not_answer() {
    let pool = pool(3);
    (0..3).for_each(|server| connect(&pool, server, 10));
    let pending = submit(&pool);
    let first = having(&pool, 1);
    later(&pool);
    assert_eq!(having(&pool, 1).len(), 2);
    pool.answered(1, Err(ErrorCode::Overloaded));
    assert_eq!(having(&pool, 1).len(), 3, "{first:?} refused, and the third is asked at once");
    pool.answered(1, Ok(vec![7]));
    assert_eq!(result(pending), Some(Ok(vec![7].into())));
}

#[test]
fn what_the_last_reachable_server_refuses_fails_at_once() {
    let pool = pool(2);
    connect(&pool, 0, 10);
    let pending = submit(&pool);
    pool.answered(1, Err(ErrorCode::UnknownKey));
    assert_eq!(result(pending), Some(Err(ErrorCode::UnknownKey.key_error())));
    assert!(pool.operations.borrow().is_empty());
    // A server without room is waited for.
    connect(&pool, 1, 0);
    let pending = submit(&pool);
    pool.answered(2, Err(ErrorCode::UnknownKey));
    assert_eq!(result(pending), None);
    assert_eq!(*pool.unsent.borrow(), [2]);
}

#[test]
fn an_operation_for_one_server_reaches_no_other_one() {
    let pool = pool(3);
    (0..2).for_each(|server| connect(&pool, server, 10));
    let first = submit_without(&pool, !(1 << 1));
    assert_eq!(having(&pool, 1), [1]);
    later(&pool);
    assert_eq!(having(&pool, 1), [1], "it is not hedged");
    pool.answered(1, Err(ErrorCode::UnknownKey));
    assert_eq!(result(first), Some(Err(ErrorCode::UnknownKey.key_error())));
    // A server that is not connected is waited for.
    let second = submit_without(&pool, !(1 << 2));
    assert_eq!((having(&pool, 2), result(second)), (vec![], None));
    connect(&pool, 2, 10);
    assert_eq!(having(&pool, 2), [2]);
}

#[test]
fn a_place_goes_to_who_waits_longest_and_the_others_are_not_looked_at() {
    let pool = pool(1);
    let pending: Vec<_> = (0..100).map(|_| submit(&pool)).collect();
    assert_eq!(pool.unsent.borrow().len(), 100);
    connect(&pool, 0, 2);
    assert_eq!((having(&pool, 1), having(&pool, 2), having(&pool, 3)), (vec![0], vec![0], vec![]));
    assert!(pool.unsent.borrow().iter().copied().eq(3..=100));
    // Operations that ended in the meantime are removed.
    for number in 3..=50 {
        pool.end(number);
    }
    assert!(pool.unsent.borrow().iter().copied().eq(51..=100));
    drop(pending);
}

#[test]
fn a_server_is_silent_only_when_it_gives_no_sign_of_life() {
    let pool = pool(1);
    connect(&pool, 0, 10);
    let _pending = submit(&pool);
    let link = &pool.links[0];
    let sent = link.sent(1).expect("it was sent");
    let now = Instant::now();
    assert_eq!(link.check_responsiveness(sent, &pool, now), Responsiveness::Pinged);
    assert_eq!(link.check_responsiveness(sent, &pool, now), Responsiveness::Pinged);
    assert!(link.is_reachable());
    assert_eq!(link.check_responsiveness(sent, &pool, now + HEDGE), Responsiveness::Silent);
    assert!(!link.is_reachable());
}

#[test]
fn a_server_is_wanted_while_an_operation_has_none() {
    let pool = pool(1);
    let is_wanted = |pool: &Pool| {
        let mut wanted = std::pin::pin!(pool.wanted());
        wanted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert!(!is_wanted(&pool));
    let pending = submit(&pool);
    assert!(is_wanted(&pool));
    connect(&pool, 0, 10);
    assert!(!is_wanted(&pool));
    drop(pending);
}

#[test]
fn a_pause_of_the_machine_postpones_the_end_of_an_operation_and_of_no_later_one() {
    let pool = pool(1);
    let (start, longest, pause) = (Instant::now(), pool.settings.deadline, Duration::from_secs(10));
    let ends = |pool: &Pool| pool.timers.borrow().iter().map(|Reverse((at, ..))| *at).collect::<Vec<_>>();
    pool.set_timer(start + longest, 1, Timer::End);
    let now = start + pause;
    // Half of the pause was before the operation.
    pool.postpone(now, pause / 2);
    assert_eq!(ends(&pool), [start + longest + pause / 2]);
    // The pause ended before the operation began.
    pool.timers.borrow_mut().clear();
    pool.set_timer(now + longest, 2, Timer::End);
    pool.postpone(now, pause);
    assert_eq!(ends(&pool), [now + longest]);
}
