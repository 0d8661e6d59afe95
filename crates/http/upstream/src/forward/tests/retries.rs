//! What is repeated, what is not, and which server is left out.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use brisk_upstream_group::settings::{Balance, HashKey, Retry, RetryReasons};
use http::StatusCode;

use super::harness::{Front, Origin, body_of, eventually, get, post, settings, text};

/// Answers one request on each connection and closes it when the next one comes.
async fn forgetful() -> Origin {
    Origin::raw(async |mut stream, _| {
        stream.read_head().await;
        stream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        stream.read_head().await;
    })
    .await
}

/// Reads a head and closes.
async fn broken() -> Origin {
    Origin::raw(async |mut stream, _| drop(stream.read_head().await)).await
}

#[tokio::test(flavor = "local")]
async fn a_connection_that_was_closed_under_a_request_is_replaced_once() {
    let origin = forgetful().await;
    let mut front = Front::new(settings(&[&origin]));
    for _ in 0..3 {
        assert_eq!(body_of(front.send(get("/")).await).await, "ok");
    }
    // Each request but the first met a connection that ended, and got a new one.
    assert_eq!((origin.connections(), origin.requests()), (3, 5));
    assert!(front.group().servers()[0].state().is_healthy());
}

#[tokio::test(flavor = "local")]
async fn a_post_is_not_repeated_once_it_was_sent() {
    let origin = forgetful().await;
    let mut front = Front::new(settings(&[&origin]));
    assert_eq!(front.send(post("/", "a")).await.status(), StatusCode::OK);
    let response = front.send(post("/", "b")).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.headers()["x-reason"], "closed");
    assert_eq!((origin.connections(), origin.requests()), (1, 2));
}

#[tokio::test(flavor = "local")]
async fn a_post_is_repeated_when_the_kept_connection_was_closed_before_it() {
    let origin = Origin::serve(async |_| text("ok")).await;
    let mut front = Front::new(settings(&[&origin]));
    assert_eq!(body_of(front.send(get("/")).await).await, "ok");
    let server = Rc::clone(&front.group().servers()[0]);
    origin.close_all();
    let mut kept = server.pool().take().expect("a kept connection");
    eventually(async || kept.found_closed()).await;
    server.pool().put(kept);
    assert_eq!(body_of(front.send(post("/", "b")).await).await, "ok");
    assert_eq!((origin.connections(), origin.requests()), (2, 2));
}

#[tokio::test(flavor = "local")]
async fn an_idempotent_request_goes_to_another_server_and_a_post_does_not() {
    let (bad, good) = (broken().await, Origin::serve(async |_| text("good")).await);
    let mut settings = settings(&[&bad, &good]);
    settings.health.passive.max_failures = 0;
    let mut front = Front::new(settings);
    let mut refused = 0;
    for _ in 0..6 {
        assert_eq!(body_of(front.send(get("/")).await).await, "good");
        assert_eq!(front.outcome().server().expect("a server").name(), good.address.to_string());
        for _ in 0..2 {
            refused += usize::from(front.send(post("/", "x")).await.status() == StatusCode::BAD_GATEWAY);
        }
    }
    // Every second request is tried there first.
    assert_eq!((refused, bad.requests()), (6, 9));
}

#[tokio::test(flavor = "local")]
async fn any_request_goes_to_another_server_when_one_cannot_be_reached() {
    let (absent, good) = (Origin::absent().await, Origin::serve(async |_| text("good")).await);
    let mut front = Front::new(settings(&[&absent, &good]));
    for _ in 0..4 {
        assert_eq!(body_of(front.send(post("/", "x")).await).await, "good");
    }
    assert_eq!(good.requests(), 4);
}

#[tokio::test(flavor = "local")]
async fn a_request_of_a_server_that_ends_goes_to_another_one() {
    let (mortal, good) = (Origin::mortal().await, Origin::serve(async |_| text("good")).await);
    let mut front = Front::new(settings(&[&mortal, &good]));
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(body_of(front.send(get("/")).await).await);
    }
    bodies.sort();
    assert_eq!(bodies, ["good", "good", "good", "ok"]);
    assert_eq!(mortal.requests(), 2);
}

#[tokio::test(flavor = "local")]
async fn a_request_of_a_server_behind_another_one_that_stays_goes_to_another_one() {
    // As a balancer whose only server ends.
    let left = Origin::raw(async |mut stream, number| {
        stream.read_head().await;
        if number == 0 {
            stream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            stream.read_head().await;
        }
    })
    .await;
    let good = Origin::serve(async |_| text("good")).await;
    let mut front = Front::new(settings(&[&left, &good]));
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(body_of(front.send(get("/")).await).await);
    }
    bodies.sort();
    assert_eq!(bodies, ["good", "good", "good", "ok"]);
}

#[tokio::test(flavor = "local")]
async fn no_server_to_be_reached_is_a_bad_gateway() {
    let absent = [Origin::absent().await, Origin::absent().await];
    let mut front = Front::new(settings(&[&absent[0], &absent[1]]));
    let response = front.send(get("/")).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.headers()["x-reason"], "connect");
}

#[tokio::test(flavor = "local")]
async fn nothing_is_repeated_where_that_is_configured() {
    let (bad, good) = (broken().await, Origin::serve(async |_| text("good")).await);
    let mut settings = settings(&[&bad, &good]);
    settings.retry = Retry::Never;
    let mut front = Front::new(settings);
    for _ in 0..4 {
        front.send(get("/")).await;
    }
    assert_eq!((bad.requests(), good.requests()), (2, 2));
}

#[tokio::test(flavor = "local")]
async fn requests_are_shared_fairly() {
    let origins = [
        Origin::serve(async |_| text("0")).await,
        Origin::serve(async |_| text("1")).await,
        Origin::serve(async |_| text("2")).await,
    ];
    let mut front = Front::new(settings(&[&origins[0], &origins[1], &origins[2]]));
    for _ in 0..30 {
        front.send(get("/")).await;
    }
    assert_eq!(origins.each_ref().map(Origin::requests), [10, 10, 10]);
}

#[tokio::test(flavor = "local")]
async fn a_hash_keeps_a_path_on_its_server() {
    let origins = [Origin::serve(async |_| text("0")).await, Origin::serve(async |_| text("1")).await];
    let mut settings = settings(&[&origins[0], &origins[1]]);
    settings.balance = Balance::ConsistentHash { by: HashKey::Path };
    let mut front = Front::new(settings);
    for path in (0..32).map(|number| format!("/{number}")) {
        let first = body_of(front.send(get(&path)).await).await;
        assert_eq!(body_of(front.send(get(&path)).await).await, first, "{path}");
    }
    assert!(origins.iter().all(|origin| origin.requests() > 0));
}

#[tokio::test(flavor = "local")]
async fn a_server_that_fails_is_left_out_and_comes_back() {
    let working = Rc::new(Cell::new(false));
    let switch = Rc::clone(&working);
    let sick = Origin::raw(async move |mut stream, _| {
        while stream.read_head().await.is_some() && switch.get() {
            stream.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsick").await;
        }
    })
    .await;
    let well = Origin::serve(async |_| text("well")).await;
    let mut settings = settings(&[&sick, &well]);
    settings.health.passive.max_failures = 3;
    settings.health.passive.pause = Duration::from_secs(3);
    let mut front = Front::new(settings);
    let sick_server = Rc::clone(&front.group().servers()[0]);
    while sick_server.state().is_healthy() {
        assert_eq!(body_of(front.send(get("/")).await).await, "well");
        assert!(sick.requests() <= 3, "still asked after {} failures", sick.requests());
    }
    assert_eq!(sick.requests(), 3);
    working.set(true);
    eventually(async || body_of(front.send(get("/")).await).await == "sick").await;
    assert!(sick_server.state().is_healthy());
}

/// Responds with 503.
async fn failing() -> Origin {
    Origin::serve(async |_| {
        let mut response = text("failed");
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    })
    .await
}

fn after_503(unsafe_methods: bool) -> Retry {
    let statuses = [StatusCode::SERVICE_UNAVAILABLE].into();
    Retry::OnceFor(Box::new(RetryReasons { statuses, unsafe_methods }))
}

#[tokio::test(flavor = "local")]
async fn a_listed_status_is_a_reason_for_another_server() {
    let (bad, good) = (failing().await, Origin::serve(async |_| text("good")).await);
    let mut settings = settings(&[&bad, &good]);
    settings.retry = after_503(false);
    let mut front = Front::new(settings);
    for _ in 0..4 {
        assert_eq!(body_of(front.send(get("/")).await).await, "good");
    }
    assert!(bad.requests() > 0);
    let before = bad.requests() + good.requests();
    for _ in 0..2 {
        front.send(post("/", "")).await;
    }
    assert_eq!(bad.requests() + good.requests(), before + 2, "a POST is not repeated");
}

#[tokio::test(flavor = "local")]
async fn an_unsafe_method_is_repeated_where_that_is_configured() {
    let (bad, good) = (failing().await, Origin::serve(async |_| text("good")).await);
    let mut settings = settings(&[&bad, &good]);
    settings.retry = after_503(true);
    let mut front = Front::new(settings);
    for _ in 0..4 {
        assert_eq!(body_of(front.send(post("/", "")).await).await, "good");
    }
    // A body that was not gathered is gone.
    let sent = bad.requests() + good.requests();
    for _ in 0..2 {
        front.send(post("/", "body")).await;
    }
    assert_eq!(bad.requests() + good.requests(), sent + 2);
}

#[tokio::test(flavor = "local")]
async fn the_response_of_the_last_server_is_sent_whatever_its_status() {
    for count in [1, 3] {
        let all = [failing().await, failing().await, failing().await];
        let origins: Vec<_> = all.iter().take(count).collect();
        let mut settings = settings(&origins);
        settings.retry = after_503(false);
        let response = Front::new(settings).send(get("/")).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body_of(response).await, "failed");
        assert_eq!(all.iter().map(Origin::requests).sum::<usize>(), count.min(2));
    }
}
