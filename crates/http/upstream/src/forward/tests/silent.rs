//! Requests that wait for a silent server, and leave it or stay.

use std::time::Duration;

use brisk_upstream_group::GroupState;
use brisk_upstream_group::settings::GroupSettings;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use tokio::time::sleep;

use super::harness::{Front, Origin, body_of, eventually, get, post, settings, settings_for, text};

/// Reads requests and responds to none.
async fn silent() -> Origin {
    Origin::raw(async |mut stream, _| while stream.read_head().await.is_some() {}).await
}

async fn good() -> Origin {
    Origin::serve(async |_| text("good")).await
}

/// An attempt takes 100 ms, and servers are never excluded.
fn impatient(mut settings: GroupSettings) -> GroupSettings {
    settings.timeouts.attempt = Some(Duration::from_millis(100));
    settings.health.passive.max_failures = 0;
    settings
}

// On a busy machine, responses of good servers may be late too: then a scenario is repeated with new servers.

#[tokio::test(flavor = "local")]
async fn a_safe_request_leaves_a_silent_server_and_others_stay() {
    eventually(async || {
        let (bad, other) = (silent().await, good().await);
        let mut settings = impatient(settings(&[&bad, &other]));
        settings.timeouts.head = Duration::from_millis(300);
        let mut front = Front::new(settings);
        let mut are_good = true;
        for _ in 0..4 {
            are_good &= body_of(front.send(get("/")).await).await == "good";
            are_good &= front.outcome().server().expect("a server").name() == other.address.to_string();
        }
        let sent = (bad.requests(), other.requests());
        for method in [Method::POST, Method::PUT] {
            let mut statuses = Vec::new();
            for _ in 0..2 {
                let mut request = post("/", "body");
                *request.method_mut() = method.clone();
                statuses.push(front.send(request).await.status());
            }
            assert!(statuses.contains(&StatusCode::GATEWAY_TIMEOUT), "{method}");
            are_good &= statuses.contains(&StatusCode::OK);
        }
        are_good && sent == (2, 4) && (bad.requests(), other.requests()) == (4, 6)
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn a_request_leaves_a_silent_server_of_http2_alone() {
    eventually(async || {
        let bad = Origin::serve_http2(async |request| {
            if request.uri().path() == "/silent" {
                std::future::pending::<()>().await;
            }
            text("slow")
        })
        .await;
        let other = Origin::serve_http2(async |_| text("good")).await;
        let mut front = Front::new(impatient(settings_for("h2c", &[&bad, &other])));
        let mut are_good = true;
        for _ in 0..4 {
            are_good &= body_of(front.send(get("/silent")).await).await == "good";
        }
        let sent = (bad.requests(), other.requests());
        let neighbours =
            [body_of(front.send(get("/")).await).await, body_of(front.send(get("/")).await).await];
        are_good && sent == (2, 4) && neighbours.contains(&"slow".into())
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn without_attempt_a_request_leaves_in_place_of_the_timeout() {
    eventually(async || {
        let (bad, other) = (silent().await, good().await);
        let mut settings = settings(&[&bad, &other]);
        settings.timeouts.head = Duration::from_millis(100);
        let mut front = Front::new(settings);
        let mut are_good = true;
        for _ in 0..2 {
            are_good &= body_of(front.send(get("/")).await).await == "good";
        }
        are_good && bad.requests() == 1
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn silent_servers_get_a_fifth_more_requests_and_a_burst_of_ten() {
    let all = [silent().await, silent().await, silent().await];
    let mut settings = impatient(settings(&[&all[0], &all[1], &all[2]]));
    // Longer than a pause of the machine counts, so that each request can leave its first server before.
    settings.timeouts.head = Duration::from_secs(3);
    let front = Front::new(settings);
    let sent = || all.iter().map(Origin::requests).sum::<usize>();
    let round = async |requests: usize| {
        let before = sent();
        let requests = (0..requests).map(|_| {
            let mut client = front.another();
            async move { client.send(get("/")).await.status() == StatusCode::GATEWAY_TIMEOUT }
        });
        assert!(join_all(requests).await.into_iter().all(|timed_out| timed_out));
        sent() - before
    };
    let (first, second) = (round(40).await, round(40).await);
    // On a busy machine, some requests earn their share after the first ones have spent theirs.
    assert!((50..=58).contains(&first) && (98..=106).contains(&(first + second)), "{first}, {second}");
}

#[tokio::test(flavor = "local")]
async fn a_request_stays_at_a_slow_server_if_no_other_is_available() {
    let slow = Origin::serve(async |_| {
        sleep(Duration::from_millis(400)).await;
        text("slow")
    })
    .await;
    let other = silent().await;
    let mut settings = impatient(settings(&[&slow, &other]));
    settings.health.passive.max_failures = 1;
    settings.health.passive.pause = Duration::from_hours(1);
    let mut front = Front::new(settings);
    exclude(front.group().state(), &other);
    assert_eq!(body_of(front.send(get("/")).await).await, "slow");
    assert_eq!((slow.requests(), other.requests()), (1, 0));
}

/// Excludes a server as a failed request does.
fn exclude(group: &GroupState, origin: &Origin) {
    let servers = group.servers();
    let server = servers.iter().find(|server| server.name() == origin.address.to_string());
    group.record_failure(server.expect("a server of the group"), &"test");
}

#[tokio::test(flavor = "local")]
async fn a_request_leaves_a_server_that_is_excluded_while_it_waits() {
    for late in [false, true] {
        let bad = silent().await;
        let other = Origin::serve(async |request| {
            if request.uri().path() == "/slow" {
                sleep(Duration::from_secs(1)).await;
            }
            text("good")
        })
        .await;
        let mut settings = settings(&[&bad, &other]);
        settings.health.passive.max_failures = 1;
        settings.health.passive.pause = Duration::from_hours(1);
        let mut front = Front::new(settings);
        let (mut client, group) = (front.another(), std::rc::Rc::clone(front.group()));
        let exclusion = async {
            eventually(async || bad.requests() == 1).await;
            if late {
                // After this request to the other server, the first one waits for exclusions.
                assert_eq!(body_of(front.send(get("/slow")).await).await, "good");
            }
            exclude(group.state(), &bad);
        };
        let waiting = async {
            let first = body_of(client.send(get("/")).await).await;
            // Servers take turns: one of two requests waits at the silent one.
            (first, body_of(client.send(get("/")).await).await)
        };
        let ((), (first, second)) = tokio::join!(exclusion, waiting);
        assert_eq!((&first[..], &second[..]), (&b"good"[..], &b"good"[..]));
        assert_eq!(bad.requests(), 1);
        assert_eq!(body_of(front.send(get("/")).await).await, "good");
    }
}
