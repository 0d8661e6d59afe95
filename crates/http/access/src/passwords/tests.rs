use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The password of both is `password`.
const FILE: &str = "alice:$apr1$8charsal$xES.S6d4oPTiVAh2XwVyp/\n\
                    bob:$5$rounds=1000$saltstring$S2dlplsLzofRuJ/frAjtaYev58CdqEN6fUby2laILG1\n";

fn credentials(name: &str, password: &str) -> Credentials {
    Credentials::of(name, password)
}

#[tokio::test]
async fn verified_credentials_are_remembered_and_wrong_ones_are_not() {
    let passwords = Passwords::read(FILE).expect("users");
    let threads = PasswordThreads::default();
    for (name, password, is_right) in [
        ("alice", "password", true),
        ("bob", "password", true),
        ("alice", "other", false),
        ("carol", "password", false),
    ] {
        let given = credentials(name, password);
        assert!(passwords.remembered(&given).is_none(), "{name}");
        let user = passwords.verify(given.clone(), CLIENT, &threads).await.expect("a place");
        assert_eq!(user.as_deref(), is_right.then_some(name));
        assert_eq!(passwords.remembered(&given).as_deref(), user.as_deref());
    }
    assert!(passwords.waiting().is_empty());
    let changed = Passwords::read(FILE).expect("users");
    assert!(changed.remembered(&credentials("alice", "password")).is_none(), "another reading of the file");
}

#[tokio::test]
async fn requests_with_the_same_credentials_wait_for_one_verification() {
    let passwords = Passwords::read(FILE).expect("users");
    let threads = PasswordThreads::default();
    let request = || passwords.verify(credentials("alice", "password"), CLIENT, &threads);
    // More than a client has places.
    let mut requests: Vec<_> = (0..100).map(|_| Box::pin(request())).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut pending = Vec::new();
    for mut request in requests.drain(..) {
        match request.as_mut().poll(&mut cx) {
            Poll::Ready(user) => assert_eq!(user.expect("a place").as_deref(), Some("alice")),
            Poll::Pending => pending.push(request),
        }
    }
    for request in pending {
        assert_eq!(request.await.expect("a place").as_deref(), Some("alice"));
    }
}

#[tokio::test]
async fn without_a_place_a_request_is_refused_and_leaves_nothing_behind() {
    let passwords = Passwords::read(FILE).expect("users");
    let threads = PasswordThreads::default();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let wait = || {
        let held = Arc::clone(&held);
        move || _ = held.lock().map(|held| held.recv())
    };
    while threads.run(CLIENT, wait()).is_ok() {}
    let refused = passwords.verify(credentials("alice", "password"), CLIENT, &threads).await;
    assert_eq!(refused, Err(Busy));
    assert!(passwords.waiting().is_empty());
    let other = IpAddr::from([192, 0, 2, 1]);
    let user = passwords.verify(credentials("alice", "password"), other, &threads).await;
    assert_eq!(user.expect("a place of its own").as_deref(), Some("alice"));
    drop(hold);
}

#[test]
fn a_request_that_has_gone_is_not_verified() {
    let passwords = Passwords::read(FILE).expect("users");
    let threads = PasswordThreads::default();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    threads.run(CLIENT, move || _ = held.recv()).expect("a place");
    let given = credentials("alice", "password");
    {
        let mut request = pin!(passwords.verify(given.clone(), CLIENT, &threads));
        assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(hold);
    let (done, is_done) = std::sync::mpsc::channel();
    threads.run(CLIENT, move || done.send(()).expect("a test that listens")).expect("a place");
    assert_eq!(is_done.recv(), Ok(()));
    assert!(passwords.remembered(&given).is_none() && passwords.waiting().is_empty());
}

#[test]
fn the_number_of_remembered_credentials_is_bounded() {
    let passwords = Passwords::read(FILE).expect("users");
    for number in 0..=MOST_REMEMBERED {
        let mut mark = [0; 32];
        mark[..8].copy_from_slice(&number.to_be_bytes());
        passwords.remember(mark);
        assert!(passwords.remembers(&mark));
    }
    assert_eq!(passwords.remembered.read().expect("no panic").len(), MOST_REMEMBERED);
}

#[test]
fn an_unchanged_file_keeps_what_it_remembers() {
    let files = PasswordFiles::default();
    let (one, other) = (Path::new("one"), Path::new("other"));
    let first = files.read(one, FILE).expect("users");
    assert!(Arc::ptr_eq(&first, &files.read(one, FILE).expect("users")));
    assert!(!Arc::ptr_eq(&first, &files.read(other, FILE).expect("users")));
    assert!(files.read(one, "alice").is_err());
    assert!(Arc::ptr_eq(&first, &files.read(one, FILE).expect("users")), "a wrong file changes nothing");
    let changed = files.read(one, &FILE.replace("bob", "carol")).expect("users");
    assert!(!Arc::ptr_eq(&first, &changed));
    drop((first, changed));
    files.read(other, "").expect("no users");
    assert_eq!(files.0.lock().expect("no panic").len(), 1);
}
