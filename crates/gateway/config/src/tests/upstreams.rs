//! `[upstream.NAME]`: servers and settings of groups.

use std::time::Duration;

use super::*;

fn upstream(lines: &str) -> String {
    format!("{LISTENER}{HOST}[upstream.app]\n{lines}\n")
}

#[test]
fn an_upstream_has_servers_and_settings_that_have_an_effect() {
    let servers = "servers = [\"http://127.0.0.1:1\"]\n";
    refused(
        &upstream("servers = []"),
        "brisk.toml:6:11: upstream.app.servers: no server: write at least one, as \"http://127.0.0.1:8080\"",
    );
    refused(
        &upstream("servers = [{ url = \"http://127.0.0.1:1\", weight = 0 }]"),
        "brisk.toml:6:51: upstream.app.servers[0].weight: 0 is out of range: write 1 to 1000",
    );
    let message =
        checked(folder().path(), &upstream("servers = [\"127.0.0.1:8080\"]")).expect_err("no scheme");
    assert!(
        message.starts_with("brisk.toml:6:12: upstream.app.servers[0]: \"127.0.0.1:8080\" is not a server: ")
    );
    refused(
        &upstream(&format!("{servers}hash_by = \"path\"")),
        "brisk.toml:7:11: upstream.app.hash_by: has no effect without balance = \"consistent_hash\"",
    );
    refused(
        &upstream(&format!("{servers}balance = \"consistent_hash\"\nhash_by = \"ip\"")),
        "brisk.toml:8:11: upstream.app.hash_by: \"ip\" is not known here; write \"client_address\", \"path\", \
         \"header:NAME\" or \"cookie:NAME\"",
    );
    refused(
        &upstream(&format!("{servers}tls = {{ server_name = \"app\" }}")),
        "brisk.toml:7:7: upstream.app.tls: has no effect: none of the servers begins with https:// or tls://",
    );
    for (key, message) in [
        ("head_size = \"2MiB\"", "13: upstream.app.head_size: 2MiB is out of range: write 8KiB to 1MiB"),
        ("headers = 5", "11: upstream.app.headers: 5 is out of range: write 10 to 1000"),
    ] {
        refused(&upstream(&format!("{servers}{key}")), &format!("brisk.toml:7:{message}"));
    }
    refused(
        &upstream(&format!("{servers}timeouts = {{ ping = \"30\" }}")),
        "brisk.toml:7:21: upstream.app.timeouts.ping: \"30\" is not a duration: write one as \"30s\", or \"none\"",
    );
    refused(
        &upstream(&format!("{servers}timeouts = {{ ping = \"1ms\" }}")),
        "brisk.toml:7:21: upstream.app.timeouts.ping: 1ms is out of range: write 100ms to 1d",
    );
    refused(
        &upstream(&format!("{servers}timeouts = {{ attempt = \"2s\", head = \"1s\" }}")),
        "brisk.toml:7:24: upstream.app.timeouts.attempt: 2s is longer than `head`, 1s",
    );
    refused(
        &upstream(&format!("{servers}retry = false\ntimeouts = {{ attempt = \"2s\" }}")),
        "brisk.toml:8:24: upstream.app.timeouts.attempt: has no effect with retry = false: requests are sent once",
    );
    refused(
        &upstream(&format!("{servers}health = {{ interval = \"5s\" }}")),
        "brisk.toml:7:23: upstream.app.health.interval: has no effect without `path`, which is what servers are \
         asked for, or `grpc`",
    );
    refused(
        &upstream(&format!("{servers}health = {{ path = \"/up\", interval = \"1s\", timeout = \"2s\" }}")),
        "brisk.toml:7:53: upstream.app.health.timeout: 2s is longer than the interval of 1s",
    );
}

#[test]
fn a_server_without_verification_is_a_warning_unless_it_is_on_this_machine() {
    let settings = |server: &str| {
        accepted(&format!(
            "{LISTENER}unknown_host = \"default\"\n{HOST}[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\n\
             servers = [\"{server}\"]\ntls = {{ verify = false }}\n"
        ))
    };
    let remote = settings("https://10.0.0.9:8443");
    assert!(remote.settings.upstreams[0].tls.accepts_any_server);
    assert_eq!(
        remote.warnings,
        [
            "upstream.app.tls: verify = false: an attacker in the network can read and change what brisk and https://10.0.0.9:8443 \
             send each other; write ca = \"server.pem\" with the certificate of its authority"
        ]
    );
    for server in ["https://127.0.0.1:8443", "https://[::1]:8443"] {
        assert_eq!(settings(server).warnings, [""; 0], "{server}");
    }
    let trusted = format!("{LISTENER}{HOST}[upstream.app]\nservers = [\"https://10.0.0.9\"]\n");
    assert!(!accepted(&trusted).settings.upstreams[0].tls.accepts_any_server);
}

#[test]
fn a_group_has_a_server_that_is_no_backup() {
    let backup = "{ url = \"http://127.0.0.1:1\", backup = true }";
    refused(
        &upstream(&format!("servers = [{backup}]")),
        "brisk.toml:6:11: upstream.app.servers: every server is a backup: remove `backup` from those that should get \
         requests at all times",
    );
    let group = &accepted(&upstream(&format!("servers = [{backup}, \"http://app\"]"))).settings.upstreams[0];
    assert_eq!(group.servers.iter().map(|server| server.is_backup).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn connections_with_a_proxy_header_are_not_shared() {
    let servers = "servers = [\"http://127.0.0.1:1\"]\n";
    refused(
        &upstream(&format!("{servers}proxy_protocol = \"v3\"")),
        "brisk.toml:7:18: upstream.app.proxy_protocol: \"v3\" is not known here; known here: `v1`, `v2`",
    );
    refused(
        &upstream(&format!("{servers}proxy_protocol = \"v2\"\npipeline = 4")),
        "brisk.toml:8:12: upstream.app.pipeline: has no effect with `proxy_protocol`, with which clients do not share \
         connections: remove one of the two",
    );
    let resolved = accepted(&upstream(&format!("{servers}proxy_protocol = \"v1\"")));
    assert_eq!(
        resolved.settings.upstreams[0].proxy_protocol,
        Some(brisk_upstream_group::settings::ProxyVersion::V1)
    );
}

#[test]
fn names_of_servers_are_resolved_where_there_are_names() {
    let named = "servers = [{ url = \"http://app.internal\", resolve = true }]\n";
    for (lines, message) in [
        (
            "servers = [{ url = \"http://127.0.0.1:1\", resolve = true }]",
            "6:52: upstream.app.servers[0].resolve: has no effect: http://127.0.0.1:1 has no name that DNS could resolve",
        ),
        (
            "servers = [{ url = \"unix:/run/app.sock\", resolve = true }]",
            "6:52: upstream.app.servers[0].resolve: has no effect: unix:/run/app.sock has no name that DNS could resolve",
        ),
        (
            "servers = [{ url = \"srv+http://_http._tcp.app\", weight = 2 }]",
            "6:58: upstream.app.servers[0].weight: has no effect: the weights of a service come from its SRV records",
        ),
        (
            "servers = [\"http://app.internal\"]\ndns = { min_ttl = \"2s\" }",
            "7:7: upstream.app.dns: has no effect: write a server as { url = \"http://app.internal\", resolve = true }, or as \
             \"srv+http://_http._tcp.app.internal\"",
        ),
        (
            &format!("{named}dns = {{ min_ttl = \"2m\", max_ttl = \"1m\" }}"),
            "7:35: upstream.app.dns.max_ttl: 1m is shorter than `min_ttl`, 2m",
        ),
        (
            &format!("{named}dns = {{ servers = [\"10.0.0.53\"] }}"),
            "7:20: upstream.app.dns.servers[0]: \"10.0.0.53\" is not an address: write IP address and port, as \
             \"0.0.0.0:443\" or \"[::]:443\"",
        ),
    ] {
        refused(&upstream(lines), &format!("brisk.toml:{message}"));
    }
    let lines = format!(
        "{named}dns = {{ servers = [\"10.0.0.53:53\"], min_ttl = \"10m\", ipv6 = false, max_addresses = 8 }}"
    );
    let group = &accepted(&upstream(&lines)).settings.upstreams[0];
    assert!(group.servers[0].resolves && !group.dns.resolver.uses_ipv6);
    assert_eq!((group.dns.min_ttl, group.dns.max_ttl), (Duration::from_mins(10), Duration::from_mins(10)));
    assert_eq!((group.dns.resolver.servers.len(), group.dns.resolver.max_addresses), (1, 8));
}

#[test]
fn shares_of_failed_requests_and_of_servers_are_percentages() {
    let servers = "servers = [\"http://127.0.0.1:1\"]\n";
    refused(
        &upstream(&format!("{servers}health = {{ error_share = 0, max_excluded = 101 }}")),
        "brisk.toml:7:26: upstream.app.health.error_share: 0 is out of range: write 1 to 100\n\
         brisk.toml:7:44: upstream.app.health.max_excluded: 101 is out of range: write 1 to 100",
    );
    let keys = "{ server_errors = true, error_share = 30, max_excluded = 50, slow_start = \"30s\" }";
    let health = &accepted(&upstream(&format!("{servers}health = {keys}"))).settings.upstreams[0].health;
    assert!(health.passive.counts_server_errors);
    assert_eq!((health.passive.error_share, health.passive.max_excluded), (Some(30), 50));
    assert_eq!(health.slow_start, Some(Duration::from_secs(30)));
}

#[test]
fn a_sticky_cookie_has_attributes_that_browsers_accept() {
    let group = |sticky: &str| upstream(&format!("servers = [\"http://127.0.0.1:1\"]\nsticky = {sticky}"));
    refused(
        &group("{ cookie = \"a b\" }"),
        "brisk.toml:7:21: upstream.app.sticky.cookie: \"a b\" is not the name of a cookie: write letters, digits, - and _",
    );
    refused(
        &group("{ same_site = \"none\", secure = false }"),
        "brisk.toml:7:41: upstream.app.sticky.secure: browsers refuse this cookie without Secure: remove `secure`, or \
         change `same_site` and the prefix",
    );
    let settings =
        |sticky: &str| accepted(&group(sticky)).settings.upstreams[0].sticky.clone().expect("settings");
    let usual = settings("{}");
    assert_eq!(usual.cookie, "brisk_server");
    assert_eq!(usual.attributes, "; Path=/; Secure; HttpOnly; SameSite=Lax");
    assert_eq!(usual, settings("{}"), "one random key for the process");
    let other =
        "{ cookie = \"s\", max_age = \"1h\", same_site = \"strict\", secure = false, http_only = false }";
    assert_eq!(settings(other).attributes, "; Path=/; Max-Age=3600; SameSite=Strict");
}

#[test]
fn the_secret_of_a_sticky_cookie_is_long_enough() {
    let folder = folder();
    let text = upstream("servers = [\"http://127.0.0.1:1\"]\nsticky = { secret = \"sticky.key\" }");
    let file = folder.path().join("sticky.key");
    fs::write(&file, [7; 31]).expect("a file");
    let message = checked(folder.path(), &text).expect_err("too short");
    assert_eq!(
        message,
        "brisk.toml:7:21: upstream.app.sticky.secret: sticky.key has 31 bytes, fewer than 32: write a random secret, as \
         with `openssl rand -out FILE 32`"
    );
    fs::write(&file, [7; 32]).expect("a file");
    let settings = checked(folder.path(), &text).expect("valid").settings.upstreams[0].sticky.clone();
    assert_eq!(settings.expect("settings").key.as_slice(), [7; 32]);
}

#[test]
fn a_grpc_check_needs_http_2() {
    let grpc = |server: &str, keys: &str| {
        upstream(&format!("servers = [\"{server}\"]\nhealth = {{ grpc = \"app.Api\"{keys} }}"))
    };
    refused(
        &grpc("http://127.0.0.1:1", ""),
        "brisk.toml:7:19: upstream.app.health.grpc: gRPC needs HTTP/2: write the servers with h2c://, or with https:// and \
         tls.protocol = \"h2\"",
    );
    refused(
        &grpc("h2c://127.0.0.1:1", ", status = 200"),
        "brisk.toml:7:39: upstream.app.health.status: has no effect with `grpc`: remove one of the two",
    );
    let checks = accepted(&grpc("h2c://127.0.0.1:1", "")).settings.upstreams[0].health.active.clone();
    assert_eq!(checks.expect("checks").grpc.as_deref(), Some("app.Api"));
}

#[test]
fn hedging_has_a_delay_and_a_share() {
    let hedge = |more: &str| upstream(&format!("servers = [\"http://127.0.0.1:1\"]\n{more}"));
    let settings = |more: &str| accepted(&hedge(more)).settings.upstreams[0].hedge.clone().expect("settings");
    let usual = settings("hedge = { after = \"80ms\" }");
    assert_eq!((usual.after, usual.percent), (Duration::from_millis(80), 5));
    assert_eq!(settings("hedge = { after = \"1ms\", percent = 100 }").percent, 100);
    for (more, message) in [
        ("hedge = { percent = 5 }", "brisk.toml:7:9: upstream.app.hedge: the key `after` is missing"),
        (
            "hedge = { after = \"2m\" }",
            "brisk.toml:7:19: upstream.app.hedge.after: 2m is out of range: write 1ms to 1m",
        ),
        (
            "hedge = { after = \"1s\", percent = 0 }",
            "brisk.toml:7:35: upstream.app.hedge.percent: 0 is out of range: write 1 to 100",
        ),
        (
            "retry = false\nhedge = { after = \"1s\" }",
            "brisk.toml:8:9: upstream.app.hedge: has no effect with retry = false: requests are sent once",
        ),
    ] {
        refused(&hedge(more), message);
    }
}
