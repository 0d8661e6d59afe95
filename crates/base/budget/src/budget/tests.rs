//! Tests of [`Budget`], also with seeded schedules of many clients.

use std::net::Ipv4Addr;
use std::thread;

use super::*;

fn budget(limit: u64) -> Budget {
    Budget::new(Label { name: "test", setting: "none" }, limit)
}

#[expect(clippy::unnecessary_wraps, reason = "as the budget takes it")]
fn client(number: u8) -> Option<IpAddr> {
    Some(Ipv4Addr::new(192, 0, 2, number).into())
}

/// Reserves `bytes` at a time until the budget refuses.
fn take_all(budget: &Budget, client: Option<IpAddr>, bytes: u64) -> Vec<Reservation> {
    std::iter::from_fn(|| budget.reserve(client, bytes).ok()).collect()
}

#[test]
fn one_client_gets_half_and_others_half_of_the_rest() {
    let budget = budget(1000);
    let first = take_all(&budget, client(1), 10);
    assert_eq!(first.len(), 50);
    let second = take_all(&budget, client(2), 10);
    assert_eq!(second.len(), 25);
    assert!(!take_all(&budget, client(3), 10).is_empty());
    assert_eq!(budget.held(), 750, "the reservations of the third client are dropped");
    drop((first, second));
    assert_eq!((budget.held(), budget.clients()), (0, 0));
    assert_eq!(take_all(&budget, client(4), 10).len(), 50);
}

#[test]
fn addresses_of_one_network_are_one_client() {
    let budget = budget(100);
    let address = |text: &str| Some(text.parse().expect("an address"));
    let _first = budget.reserve(address("2001:db8::1"), 50).expect("room");
    assert!(budget.reserve(address("2001:db8::2"), 1).is_err());
    assert!(budget.reserve(address("2001:db8:0:1::1"), 1).is_ok());
    let _mapped = budget.reserve(address("::ffff:192.0.2.1"), 20).expect("room");
    assert!(budget.reserve(client(1), 20).is_err());
}

#[test]
fn many_clients_behind_one_address_may_take_everything() {
    let budget = budget(100);
    let all = budget.reserve(None, 100).expect("room");
    assert!(budget.reserve(None, 1).is_err());
    assert_eq!(budget.clients(), 0);
    drop(all);
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_reservation_grows_and_shrinks() {
    let budget = budget(100);
    let mut held = budget.reserve(client(1), 10).expect("room");
    held.grow(40).expect("half of all");
    assert_eq!(held.grow(1), Err(Full));
    assert_eq!((held.bytes(), budget.held()), (50, 50));
    held.shrink_to(60);
    held.shrink_to(20);
    assert_eq!((held.bytes(), budget.held(), budget.clients()), (20, 20, 1));
    held.shrink_to(0);
    assert_eq!((budget.held(), budget.clients()), (0, 0));
    assert_eq!(held.grow(u64::MAX), Err(Full));
}

#[test]
fn who_holds_much_yields_to_who_holds_little() {
    let budget = budget(100);
    let _large = budget.reserve(client(1), 50).expect("room");
    assert!(budget.reserve(client(1), 1).is_err(), "its own share is used up");
    assert!(!budget.must_yield(client(1)), "no other client needs memory");
    let _small = budget.reserve(client(2), 5).expect("room");
    assert!(budget.reserve(client(3), 46).is_err());
    assert!(budget.must_yield(client(1)));
    assert!(!budget.must_yield(client(2)) && !budget.must_yield(client(3)));
}

#[test]
fn who_holds_much_yields_before_another_client_is_refused() {
    let budget = budget(100);
    let _many: Vec<_> =
        (1..=8).map(|number| budget.reserve(client(number), if number == 1 { 45 } else { 6 })).collect();
    assert_eq!(budget.held(), 87);
    assert!(!budget.must_yield(client(1)));
    let _more = budget.reserve(client(9), 2).expect("room");
    assert!(budget.must_yield(client(1)) && !budget.must_yield(client(2)));
}

#[test]
fn a_budget_of_nothing_refuses() {
    let budget = budget(0);
    assert!(budget.reserve(client(1), 1).is_err() && budget.reserve(None, 1).is_err());
    assert!(!budget.has_room(client(1), 1));
    assert_eq!(budget.clients(), 0);
}

/// Random operations of eight clients and one address of many, checked against plain sums after each of them.
#[test]
fn random_schedules_keep_every_promise() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = random.u64(1..10_000);
        let budget = budget(limit);
        let mut held: Vec<(u8, Reservation)> = Vec::new();
        for _ in 0..500 {
            let who = random.u8(0..9);
            let from = (who > 0).then(|| client(who)).flatten();
            let own: u64 =
                held.iter().filter(|(of, _)| *of == who && who > 0).map(|(_, held)| held.bytes()).sum();
            let total = budget.held();
            match random.u8(0..4) {
                0 | 1 => {
                    let bytes = random.u64(1..=limit / 2 + 1);
                    let fits = own + bytes <= limit - total;
                    assert_eq!(budget.has_room(from, bytes), fits, "seed {seed}");
                    let reserved = budget.reserve(from, bytes);
                    assert_eq!(reserved.is_ok(), fits, "seed {seed}");
                    held.extend(reserved.ok().map(|reserved| (who, reserved)));
                }
                2 if !held.is_empty() => drop(held.swap_remove(random.usize(..held.len()))),
                _ => {
                    if let Some((_, one)) = held.last_mut() {
                        one.shrink_to(random.u64(..=one.bytes()));
                    }
                }
            }
            let sum: u64 = held.iter().map(|(_, held)| held.bytes()).sum();
            assert_eq!(budget.held(), sum, "seed {seed}");
            assert!(sum <= limit, "seed {seed}");
            let holders = (1..9).filter(|who| held.iter().any(|(of, held)| of == who && held.bytes() > 0));
            assert_eq!(budget.clients(), holders.count(), "seed {seed}");
        }
        held.clear();
        assert_eq!((budget.held(), budget.clients()), (0, 0), "seed {seed}");
    }
}

#[test]
fn threads_never_exceed_the_limit_together() {
    let budget = budget(1000);
    thread::scope(|scope| {
        for number in 0..4_u8 {
            let budget = &budget;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number.into());
                let mut held = Vec::new();
                for _ in 0..20_000 {
                    if random.bool() {
                        held.extend(budget.reserve(client(number / 2), random.u64(1..100)).ok());
                    } else if !held.is_empty() {
                        held.swap_remove(random.usize(..held.len()));
                    }
                    assert!(budget.held() <= 1000);
                }
            });
        }
    });
    assert_eq!((budget.held(), budget.clients()), (0, 0));
}
