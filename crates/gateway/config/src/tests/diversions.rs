//! `split` and `mirror` of routes.

use std::time::Duration;

use brisk_answer::settings::{RouteSettings, Share};

use super::*;

const UPSTREAMS: &str = "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n[upstream.next]\nservers = [\"http://127.0.0.1:2\"]\n";

fn with(keys: &str) -> String {
    format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nupstream = \"app\"\n{keys}\n{UPSTREAMS}")
}

fn route(keys: &str) -> RouteSettings {
    let resolved = accepted(&with(keys));
    assert!(!resolved.warnings.iter().any(|warning| warning.contains("next")), "{:?}", resolved.warnings);
    resolved.settings.service.hosts[0].routes[0].clone()
}

#[test]
fn a_split_has_a_share_and_a_cookie() {
    let split = route("split = { upstream = \"next\", percent = 12.5 }").split.expect("a split");
    assert_eq!((split.group.as_str(), Some(split.share)), ("next", Share::of_percent(12.5)));
    assert_eq!(split.cookie.cookie, "brisk_split");
    assert_eq!(split.cookie.attributes, "; Path=/; Secure; HttpOnly; SameSite=Lax");
    let split = "split = { upstream = \"next\", percent = 1, cookie = \"v\", max_age = \"1d\", same_site = \"strict\" }";
    let cookie = route(split).split.expect("a split").cookie.clone();
    assert_eq!(
        (&*cookie.cookie, &*cookie.attributes),
        ("v", "; Path=/; Max-Age=86400; Secure; HttpOnly; SameSite=Strict")
    );
}

#[test]
fn a_mirror_has_limits() {
    let mirror = route("mirror = { upstream = \"next\" }").mirror.expect("a mirror");
    assert_eq!((mirror.group.as_str(), mirror.share, mirror.body_size), ("next", Share::ALL, 64 << 10));
    assert_eq!(mirror.timeout, Duration::from_secs(10));
    let keys =
        "mirror = { upstream = \"next\", percent = 0, body_size = \"0B\", timeout = \"1s\", requests = 2 }";
    let mirror = route(keys).mirror.expect("a mirror");
    assert_eq!((Some(mirror.share), mirror.body_size), (Share::of_percent(0.0), 0));
    assert_eq!(mirror.timeout, Duration::from_secs(1));
}

#[test]
fn wrong_splits_and_mirrors_are_refused() {
    for (keys, message) in [
        (
            "split = { upstream = \"app\", percent = 1 }",
            "8:22: host[0].route[0].split.upstream: \"app\" is the `upstream` of the route: name another one",
        ),
        (
            "split = { upstream = \"next\", percent = 100.5 }",
            "8:40: host[0].route[0].split.percent: 100.5 is no percentage: write a number from 0 to 100, as 12.5",
        ),
        (
            "split = { upstream = \"next\", percent = 1, cookie = \"a b\" }",
            "8:52: host[0].route[0].split.cookie: \"a b\" is not the name of a cookie: write letters, digits, - and _",
        ),
        (
            "mirror = { upstream = \"next\", percent = -1 }",
            "8:41: host[0].route[0].mirror.percent: -1 is no percentage: write a number from 0 to 100, as 12.5",
        ),
        (
            "mirror = { upstream = \"next\", body_size = \"9MiB\" }",
            "8:43: host[0].route[0].mirror.body_size: 9MiB is out of range: write 0B to 8MiB",
        ),
        (
            "mirror = { upstream = \"next\", requests = 1 }",
            "8:42: host[0].route[0].mirror.requests: 1 is out of range: write 2 to 65536",
        ),
        (
            "mirror = { upstream = \"nest\" }",
            "8:23: host[0].route[0].mirror.upstream: \"nest\" is not known here; did you mean `next`?",
        ),
    ] {
        let text = with(keys);
        let message = format!("brisk.toml:{message}");
        let found = checked(folder().path(), &text).expect_err(keys);
        assert!(found.lines().any(|line| line == message), "{keys}: {found}");
    }
    let respond = format!(
        "{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nrespond = {{}}\nmirror = {{ upstream = \"next\" }}\n{UPSTREAMS}"
    );
    let found = checked(folder().path(), &respond).expect_err("no upstream");
    assert!(
        found.contains("host[0].route[0].mirror: has no effect without `upstream` of the route"),
        "{found}"
    );
}
