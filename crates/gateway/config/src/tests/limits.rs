//! `[limit.NAME]`, and `limits` of hosts and routes.

use brisk_answer::settings::LimitKey;

use super::*;

fn with(host: &str, route: &str, tables: &str) -> String {
    format!("{LISTENER}{HOST}{host}[[host.route]]\npath = \"/\"\nrespond = {{}}\n{route}{tables}")
}

#[test]
fn a_limit_has_a_rate_by_client_unless_written_otherwise() {
    let tables = "[limit.a]\nrate = \"10/s burst 20\"\n[limit.b]\nconcurrency = 3\nby = \"{request.header.x-key}\"\nstatus = 503\n";
    let resolved = accepted(&with("limits = [\"a\"]\n", "limits = [\"a\", \"b\"]\n", tables));
    let host = &resolved.settings.service.hosts[0];
    let [of_host] = &*host.limits else { panic!("{:?}", host.limits) };
    let [a, b] = &*host.routes[0].limits else { panic!("{:?}", host.routes[0].limits) };
    assert!(std::sync::Arc::ptr_eq(&of_host.limit, &a.limit), "one limit");
    assert!(matches!(a.by, LimitKey::Client) && matches!(b.by, LimitKey::Template(_)));
    assert_eq!((a.status.as_u16(), b.status.as_u16()), (429, 503));
    assert_eq!(a.limit.settings().rate.map(|rate| rate.burst), Some(20));
    assert_eq!(b.limit.settings().concurrency, Some(3));
}

#[test]
fn a_route_has_the_limits_of_its_host_or_its_own() {
    let tables = "[limit.a]\nconcurrency = 1\n";
    let limits = |route: &str| {
        accepted(&with("limits = [\"a\"]\n", route, tables)).settings.service.hosts[0].routes[0].limits.len()
    };
    assert_eq!((limits(""), limits("limits = []\n")), (1, 0));
}

#[test]
fn wrong_keys_and_unknown_limits_are_named_beside_all_other_mistakes() {
    let text = format!(
        "{LISTENER}{HOST}[[host.route]]\npath = \"api\"\nstatic = \"/no/such/folder\"\nlimits = [\"b\"]\nbandwidth = {{ rate = \"1B\" }}\n\
         [limit.a]\nrate = \"often\"\nby = \"{{client.adress}}\"\n"
    );
    let message = checked(folder().path(), &text).expect_err("mistakes");
    for place in [
        "route[0].path:",
        "route[0].static:",
        "route[0].limits[0]:",
        "bandwidth.rate:",
        "limit.a.rate:",
        "limit.a.by:",
    ] {
        assert!(message.contains(place), "{place} in {message}");
    }
}

#[test]
fn wrong_limits_are_refused() {
    let a = "[limit.a]\nrate = \"1/s\"\n";
    for (route, tables, expected) in [
        (
            "limits = [\"a\"]\n",
            "",
            "8:11: host[0].route[0].limits[0]: there is no limit: write [limit.a] with its `rate` or `concurrency`",
        ),
        (
            "limits = [\"b\"]\n",
            a,
            "8:11: host[0].route[0].limits[0]: \"b\" is not known here; known here: `a`",
        ),
        (
            "limits = [\"a\", \"a\"]\n",
            a,
            "8:16: host[0].route[0].limits[1]: \"a\" is in the list already: once is enough",
        ),
        (
            "limits = [\"a\"]\n",
            "[limit.a]\n",
            "9:1: limit.a: limits nothing: write rate = \"10/s burst 20\", or concurrency = 10, or both",
        ),
        (
            "limits = [\"a\"]\n",
            "[limit.a]\nconcurrency = 0\nkeys = 5\nstatus = 200\n",
            "10:15: limit.a.concurrency: 0 is out of range: write 1 to 1000000",
        ),
        (
            "limits = [\"a\"]\n",
            "[limit.a]\nrate = \"1/s\"\nby = \"\"\n",
            "11:6: limit.a.by: empty: write the key of a request, as \"{client.address}\", or a fixed text for all requests together",
        ),
        (
            "limits = [\"a\"]\n",
            "[limit.a]\nrate = \"1/s\"\nby = \"{upstream.address}\"\n",
            "11:6: limit.a.by: values of the response are known with the response only",
        ),
        (
            "limits = [\"a\"]\n",
            "[limit.a]\nrate = \"1/s\"\nby = \"{client.adress}\"\n",
            "11:6: limit.a.by: {client.adress} is no variable; did you mean {client.address}?",
        ),
        (
            "limits = [\"a\"]\n",
            "[limit.a]\nrate = \"1/s\"\nby = \"{client.address} {user}\"\n",
            "11:6: limit.a.by: the user is verified after the limits: write a header or {client.address}",
        ),
        (
            "limits = [\"a\"]\n",
            "[limit.a]\nrate = \"1/s\"\nby = \"{map.x}\"\n[map.x]\nfrom = \"{request.host}\"\nvalues = { a = \"{map.y}\" }\n\
             [map.y]\nfrom = \"{user}\"\nvalues = { b = \"c\" }\n",
            "11:6: limit.a.by: the user is verified after the limits: write a header or {client.address}",
        ),
    ] {
        let message = checked(folder().path(), &with("", route, tables)).expect_err(tables);
        assert!(message.contains(&format!("brisk.toml:{expected}")), "{message}\nin:\n{tables}");
    }
}

#[test]
fn a_limit_without_a_route_brings_a_warning() {
    let warnings = accepted(&with("", "", "[limit.a]\nconcurrency = 1\n")).warnings;
    assert!(
        warnings.contains(&"[limit.a]: no host and no route has limits = [\"a\"]".to_owned()),
        "{warnings:?}"
    );
}

#[test]
fn wrong_limits_of_fleets_are_refused() {
    for (tables, expected) in [
        (
            "rate = \"1/s\"\nfleet = true\n",
            "11:9: limit.a.fleet: needs [sessions.redis] with the `servers` that the gateways of the fleet share",
        ),
        (
            "rate = \"1/s\"\non_failure = \"deny\"\n",
            "11:14: limit.a.on_failure: has no effect without fleet = true",
        ),
        (
            "concurrency = 1\nfleet = true\n",
            "11:9: limit.a.fleet: has no effect without `rate`: requests at a time are counted by each gateway",
        ),
    ] {
        let text = with("", "limits = [\"a\"]\n", &format!("[limit.a]\n{tables}"));
        let message = checked(folder().path(), &text).expect_err(tables);
        assert!(message.contains(&format!("brisk.toml:{expected}")), "{message}\nin:\n{tables}");
    }
}

#[test]
fn a_route_has_timeouts_and_a_bandwidth() {
    let keys = "timeouts = { head = \"5s\", request = \"30s\" }\nbandwidth = { rate = \"1MiB\", after = \"10MiB\" }\n";
    let text = with(
        "",
        keys,
        "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\npool = { max_connections = 1, queue = { size = 0, timeout = \"1s\" } }\n",
    );
    let resolved = accepted(&text.replace("respond = {}", "upstream = \"app\""));
    let route = &resolved.settings.service.hosts[0].routes[0];
    assert_eq!(route.timeouts.upstream.head, Some(Duration::from_secs(5)));
    assert_eq!((route.timeouts.upstream.body, route.timeouts.request), (None, Some(Duration::from_secs(30))));
    assert_eq!(route.bandwidth.map(|pace| (pace.rate.get(), pace.after)), Some((1 << 20, 10 << 20)));
    let queue = &resolved.settings.upstreams[0].pool.queue;
    assert_eq!((queue.size, queue.timeout), (0, Some(Duration::from_secs(1))));
}

#[test]
fn wrong_timeouts_bandwidths_and_queues_are_refused() {
    refused(
        &with("", "timeouts = { head = \"5s\" }\n", ""),
        "brisk.toml:8:12: host[0].route[0].timeouts: has no effect without `upstream`",
    );
    refused(
        &with("", "bandwidth = { rate = \"10B\" }\n", ""),
        "brisk.toml:8:22: host[0].route[0].bandwidth.rate: 10B is out of range: write 1KiB to 1024GiB",
    );
    refused(
        &with(
            "",
            "",
            "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\npool = { queue = { size = 1 } }\n",
        ),
        "brisk.toml:10:18: upstream.app.pool.queue: has no effect without `max_connections`: no request waits for a connection",
    );
}
