use std::collections::HashSet;
use std::sync::Arc;

use brisk_keys::LanesUse;
use brisk_telemetry::HandshakeOutcome;
use brisk_testkit::ca::LeafKey;
use brisk_wire::registry::NamedGroup;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, Error};
use tokio::task::{LocalSet, spawn_local, yield_now};

use super::*;
use crate::key_exchange::{X25519, X25519_MLKEM768};
use crate::suspend::Suspendable;
use crate::testing::{Stage, handshake, soon, tcp};

/// Runs `test` on a thread that gathers.
fn gathering(test: impl Future<Output = ()>) {
    gathering_for(Duration::ZERO, test);
}

/// Runs `test` on a thread where operations wait for a full batch for up to `wait`.
fn gathering_for(wait: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let turns = spawn_local(turns(wait));
        yield_now().await;
        soon(test).await;
        turns.abort();
    });
}

/// Whether this processor has lanes that pay off for exchanges and for signatures; prints a note if not.
fn has_lanes() -> bool {
    let lanes = LanesUse::of_this_processor();
    let has = lanes.is_some_and(|lanes| lanes.exchanges <= 8 && lanes.signatures <= 8);
    if !has {
        eprintln!("counters are not tested: this processor performs operations one by one");
    }
    has
}

fn is_gathering() -> bool {
    WORKER.with_borrow(|worker| worker.gathers)
}

/// Whether exchanges on this thread wait when others are expected.
fn exchanges_wait() -> bool {
    WORKER.with_borrow(|worker| worker.fills[Kind::Exchange as usize].company.is_some())
}

/// Sets the averages as after turns with many operations.
fn expect_company() {
    WORKER.with_borrow_mut(|worker| worker.fills.iter_mut().for_each(|fill| fill.average = 8.0));
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A client's key, and a call that performs the server's exchange with it.
fn exchange_with(
    group: &'static dyn SupportedKxGroup,
    client: &'static dyn SupportedKxGroup,
) -> (Box<dyn ActiveKeyExchange>, Suspendable<CompletedKeyExchange>) {
    let client = client.start().expect("randomness");
    let share = client.pub_key().to_vec();
    let call = Suspendable::new(move || group.start_and_complete(&share).expect("a share"));
    (client, call.expect("a stack"))
}

/// Whether both sides of an exchange compute the same secret.
async fn agrees(group: &'static dyn SupportedKxGroup, client: &'static dyn SupportedKxGroup) -> bool {
    let (client, call) = exchange_with(group, client);
    let (server, _) = call.await;
    let secret = client.complete(&server.pub_key).expect("a share");
    secret.secret_bytes() == server.secret.secret_bytes()
}

#[test]
fn exchanges_of_one_turn_are_performed_together() {
    for (group, client) in [(X25519, kx_group::X25519), (X25519_MLKEM768, kx_group::X25519MLKEM768)] {
        for fill in [2, 7, 40, 90] {
            gathering(async {
                expect_company();
                let before = figures().exchanges;
                let calls: Vec<_> = (0..fill).map(|_| spawn_local(agrees(group, client))).collect();
                for call in calls {
                    assert!(call.await.expect("a task"), "{fill}");
                }
                let after = figures().exchanges;
                if has_lanes() && fill >= 8 {
                    let full = fill / 8;
                    assert!(after.in_lanes - before.in_lanes >= 8 * full, "{before:?} {after:?}");
                    assert!(after.batches - before.batches >= full, "{before:?} {after:?}");
                }
            });
        }
    }
}

#[test]
fn operations_wait_from_the_third_of_a_turn_on_or_where_turns_have_had_three() {
    let mut fill = Fill::new(1, Duration::ZERO);
    assert_eq!([(); 4].map(|()| fill.count()), [false, false, true, true].map(Some));
    fill.end(Instant::now());
    assert_eq!(fill.count(), Some(false), "one turn with four is not enough");
    for _ in 0..20 {
        (0..3).for_each(|_| _ = fill.count());
        fill.end(Instant::now());
    }
    assert_eq!(fill.count(), Some(true));
    for _ in 0..20 {
        fill.end(Instant::now());
        assert!(fill.average >= 2.0, "a turn without operations says nothing");
    }
    for _ in 0..20 {
        fill.count();
        fill.end(Instant::now());
    }
    assert_eq!(fill.count(), Some(false));
}

#[test]
fn operations_wait_only_for_as_many_as_lanes_are_worth_it_for() {
    for (break_even, company) in [(1, 2.0), (2, 2.0), (3, 3.0), (8, 8.0)] {
        assert_eq!(Fill::new(break_even, Duration::ZERO).company, Some(company));
    }
    for never in [9, usize::MAX] {
        let mut fill = Fill::new(never, Duration::ZERO);
        assert_eq!([(); 9].map(|()| fill.count()), [None; 9]);
    }
}

#[test]
fn batches_wait_only_while_operations_are_frequent() {
    const WAIT: Duration = Duration::from_millis(1);
    let mut now = Instant::now();
    let mut fill = Fill::new(2, WAIT);
    let mut batches = |fill: &mut Fill, apart: Duration| {
        for _ in 0..2_000 {
            fill.count();
            now += apart;
            fill.end(now);
        }
    };
    fill.count();
    assert_eq!(fill.waits_until(), None, "nothing is known yet");
    batches(&mut fill, Duration::from_micros(400));
    assert_eq!(fill.waits_until(), None, "an empty batch");
    let before = Instant::now();
    fill.count();
    assert!(fill.waits_until().is_some_and(|until| until >= before + WAIT && until <= Instant::now() + WAIT));
    for _ in 1..8 {
        assert!(!fill.is_full());
        fill.count();
    }
    assert!(fill.is_full());
    batches(&mut fill, Duration::from_micros(600));
    fill.count();
    assert_eq!(fill.waits_until(), None, "a second one is not expected in time");
}

/// Sets the rates as after batches with many operations.
fn expect_frequent() {
    expect_company();
    WORKER.with_borrow_mut(|worker| worker.fills.iter_mut().for_each(|fill| fill.rate = 1e9));
}

#[test]
fn a_full_batch_is_performed_at_once_and_others_when_their_time_has_passed() {
    if !has_lanes() {
        return;
    }
    let exchanges = async |count: usize| {
        expect_frequent();
        let begun = Instant::now();
        let calls: Vec<_> = (0..count).map(|_| spawn_local(agrees(X25519, kx_group::X25519))).collect();
        for call in calls {
            assert!(call.await.expect("a task"));
        }
        begun.elapsed()
    };
    // `soon` fails after less than an hour.
    gathering_for(Duration::from_hours(1), async move { _ = exchanges(8).await });
    let wait = Duration::from_millis(30);
    gathering_for(wait, async move { assert!(exchanges(3).await >= wait) });
    gathering(async move { _ = exchanges(3).await });
}

#[test]
fn a_kind_that_lanes_are_not_worth_it_for_does_not_wait() {
    gathering(async {
        expect_company();
        WORKER.with_borrow_mut(|worker| worker.fills[Kind::Exchange as usize].company = None);
        for _ in 0..9 {
            let (_client, mut call) = exchange_with(X25519, kx_group::X25519);
            assert!(call.poll_resume(&mut noop()).is_ready());
        }
        assert!(WORKER.with_borrow(|worker| worker.waker.is_some() || !worker.gathers), "no turn is begun");
    });
}

#[test]
fn a_handshake_that_is_alone_does_not_wait() {
    gathering(async {
        for _ in 0..40 {
            let (_client, mut call) = exchange_with(X25519, kx_group::X25519);
            assert!(call.poll_resume(&mut noop()).is_ready());
            yield_now().await;
            yield_now().await;
            yield_now().await;
        }
    });
}

#[test]
fn nothing_waits_on_a_thread_that_does_not_gather() {
    expect_company();
    let (_client, mut call) = exchange_with(X25519, kx_group::X25519);
    assert!(call.poll_resume(&mut noop()).is_ready());
}

#[test]
fn an_abandoned_exchange_is_dropped_and_the_others_are_performed() {
    gathering(async {
        expect_company();
        for _ in 0..3 {
            let (_client, mut call) = exchange_with(X25519, kx_group::X25519);
            assert_eq!(call.poll_resume(&mut noop()).is_pending(), exchanges_wait());
        }
        let calls: Vec<_> = (0..9).map(|_| spawn_local(agrees(X25519, kx_group::X25519))).collect();
        for call in calls {
            assert!(call.await.expect("a task"));
        }
        assert_eq!(WORKER.with_borrow(|worker| worker.exchanges.len() + worker.encapsulations.len()), 0);
    });
}

#[test]
fn what_waits_is_performed_when_turns_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let turns = spawn_local(turns(Duration::ZERO));
        yield_now().await;
        expect_company();
        let (_client, mut call) = exchange_with(X25519, kx_group::X25519);
        let waits = call.poll_resume(&mut noop()).is_pending();
        assert_eq!(waits, exchanges_wait());
        turns.abort();
        drop(turns.await);
        assert!(!is_gathering());
        assert!(WORKER.with_borrow(|worker| worker.stock.pairs.is_empty()));
        if waits {
            assert!(call.poll_resume(&mut noop()).is_ready());
        }
    });
}

#[test]
fn a_key_pair_made_ahead_is_used_once_and_not_when_it_is_old() {
    if !has_lanes() {
        return;
    }
    let mut stock = Stock::default();
    let mut seen = HashSet::new();
    for _ in 0..20 {
        assert!(seen.insert(*stock.take().expect("randomness").public()));
        assert!(stock.pairs.len() < 8);
    }
    assert!(!stock.pairs.is_empty());
    stock.drop_old(Instant::now() + PAIR_AGE);
    assert!(stock.pairs.is_empty());
    stock.take();
    // As in a forked child.
    stock.process += 1;
    let left = *stock.pairs.last().expect("seven are left").public();
    assert_ne!(*stock.take().expect("randomness").public(), left);
}

fn provider(groups: &[&'static dyn SupportedKxGroup]) -> CryptoProvider {
    CryptoProvider { kx_groups: groups.to_vec(), ..default_provider() }
}

/// A client of each kind of handshake, and the expected group.
fn clients(stage: &Stage) -> Vec<(Arc<ClientConfig>, NamedGroup)> {
    let tls13 = |groups: &[&'static dyn SupportedKxGroup]| stage.client_with(provider(groups));
    let clients = [
        (tls13(&[kx_group::X25519]), NamedGroup::X25519),
        (tls13(&[kx_group::X25519MLKEM768]), NamedGroup::X25519MLKEM768),
        (tls13(&[kx_group::SECP256R1]), NamedGroup::SECP256R1),
        // Its share is for a group that the server does not support, so the server sends HelloRetryRequest.
        (tls13(&[kx_group::MLKEM768, kx_group::X25519]), NamedGroup::X25519),
        (stage.client_of(provider(&[kx_group::X25519, kx_group::SECP256R1]), &TLS12), NamedGroup::X25519),
    ];
    let without_sessions = |(mut client, group): (ClientConfig, NamedGroup)| {
        client.resumption = Resumption::disabled();
        (Arc::new(client), group)
    };
    clients.into_iter().map(without_sessions).collect()
}

#[test]
fn handshakes_of_all_kinds_complete_together_on_one_worker() {
    for key in [LeafKey::EcdsaP256, LeafKey::Rsa2048] {
        let stage = Rc::new(Stage::new());
        stage.renew_with(key);
        gathering(async {
            let before = figures();
            let clients = clients(&stage);
            let connections = (0..60).map(|number| {
                let (stage, (client, group)) = (Rc::clone(&stage), clients[number % clients.len()].clone());
                spawn_local(async move {
                    assert_eq!(stage.connect(&client).await.1.facts.group, Some(group));
                })
            });
            for connection in connections.collect::<Vec<_>>() {
                connection.await.expect("a handshake");
            }
            let after = figures();
            assert_eq!(after.faults, before.faults);
            if has_lanes() {
                assert!(after.exchanges.in_lanes > before.exchanges.in_lanes, "{before:?} {after:?}");
                assert!(after.exchanges.batches > before.exchanges.batches, "{before:?} {after:?}");
                let (encapsulations, earlier) = (after.encapsulations, before.encapsulations);
                assert!(encapsulations.in_lanes > earlier.in_lanes, "{before:?} {after:?}");
                let signed = after.signatures.in_lanes - before.signatures.in_lanes;
                assert!(key == LeafKey::Rsa2048 || signed > 0, "{before:?} {after:?}");
            }
        });
    }
}

#[test]
fn handshakes_given_up_while_they_wait_leave_nothing_behind() {
    gathering(async {
        let stage = Rc::new(Stage::new());
        let client = clients(&stage).swap_remove(0).0;
        for _ in 0..5 {
            expect_company();
            let waiting: Vec<_> = (0..20)
                .map(|_| {
                    let (stage, client) = (Rc::clone(&stage), Arc::clone(&client));
                    spawn_local(async move { stage.connect(&client).await })
                })
                .collect();
            // Until an exchange waits, if exchanges wait at all.
            while !waiting.iter().any(tokio::task::JoinHandle::is_finished)
                && WORKER.with_borrow(|worker| worker.exchanges.is_empty())
            {
                yield_now().await;
            }
            for task in waiting {
                task.abort();
                drop(task.await);
            }
        }
        let calls: Vec<_> = (0..9).map(|_| spawn_local(agrees(X25519, kx_group::X25519))).collect();
        for call in calls {
            assert!(call.await.expect("a task"));
        }
    });
}

/// X25519 of a client that sends a point of small order.
#[derive(Debug)]
struct SmallOrder;

impl SupportedKxGroup for SmallOrder {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Self))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> rustls::NamedGroup {
        rustls::NamedGroup::X25519
    }
}

impl ActiveKeyExchange for SmallOrder {
    fn complete(self: Box<Self>, _peer: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&[0; 32][..]))
    }

    fn pub_key(&self) -> &[u8] {
        &[0; 32]
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> rustls::NamedGroup {
        rustls::NamedGroup::X25519
    }
}

/// RFC 8446 section 7.4.2.
#[test]
fn a_point_of_small_order_is_refused_with_an_alert_beside_handshakes_that_complete() {
    let stage = Rc::new(Stage::new());
    for version in [&TLS12, &TLS13] {
        let forged = Arc::new(stage.client_of(provider(&[&SmallOrder, kx_group::SECP256R1]), version));
        let (stage, honest) = (Rc::clone(&stage), clients(&stage).swap_remove(0).0);
        gathering(async move {
            let beside: Vec<_> = (0..10)
                .map(|_| {
                    let (stage, honest) = (Rc::clone(&stage), Arc::clone(&honest));
                    spawn_local(async move { drop(stage.connect(&honest).await) })
                })
                .collect();
            let (near, far) = tcp().await;
            let (client, accepted) = tokio::join!(handshake(&forged, near), stage.accept(far));
            let refusal = accepted.err().expect("a refusal");
            assert_eq!(refusal.outcome, HandshakeOutcome::ProtocolError);
            let error = client.expect_err("no handshake").to_string();
            assert!(error.contains("IllegalParameter"), "{error}");
            for handshake in beside {
                handshake.await.expect("a handshake");
            }
        });
    }
}
