//! Resumption, what a fleet shares for it, and early data: wrong values and what is said of them, right ones and what
//! becomes of them.

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::thread;

use brisk_answer::settings::{EarlyDataPolicy, EarlyPath};
use brisk_gateway::settings::SessionSettings;
use brisk_session::{KeySource, RedisTopology};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// `sessions` between a listener and a host, in a folder with a file of each kind; its own lines begin at 3.
fn fleet(sessions: &str) -> (TempDir, Result<Resolved, String>) {
    fleet_with(sessions, HOST)
}

fn fleet_with(sessions: &str, host: &str) -> (TempDir, Result<Resolved, String>) {
    let folder = folder();
    let private = |name: &str, contents: &[u8]| {
        let file = folder.path().join(name);
        fs::write(&file, contents).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a file of ours");
    };
    private("fleet.secret", b"a secret that is long enough for a fleet\n");
    private("short.secret", b"short\n");
    private("a.key", &[1; 80]);
    private("b.key", &[2; 48]);
    private("hex.key", "0a".repeat(80).as_bytes());
    private("password", b"hush\n");
    private("two.password", b"one\ntwo\n");
    private("empty.password", b"\n");
    private("marked.password", b"\xef\xbb\xbfhush\n");
    private("ca.pem", TestCa::new().root_pem().as_bytes());
    let resolved =
        checked(folder.path(), &format!("server.https = [\"127.0.0.1:443\"]\n\n{sessions}\n{host}"));
    (folder, resolved)
}

#[track_caller]
fn fleet_refused(sessions: &str, expected: &str) {
    let message = fleet(sessions).1.expect_err(sessions);
    assert_eq!(message, expected, "\nin:\n{sessions}");
}

#[track_caller]
fn fleet_accepted(sessions: &str) -> (SessionSettings, Vec<String>) {
    let resolved = fleet(sessions).1.unwrap_or_else(|message| panic!("{message}\nin:\n{sessions}"));
    (resolved.settings.sessions, resolved.warnings)
}

const SECRET: &str = "[sessions]\nsecret = \"fleet.secret\"\n";

#[test]
fn one_machine_needs_nothing() {
    let (settings, warnings) = fleet_accepted("");
    assert!(matches!(settings.ticket_keys, KeySource::Generated(_)) && settings.fleet.is_none());
    assert_eq!(settings.ticket_keys.lifetime(), Duration::from_hours(24));
    assert_eq!((settings.memory.max_sessions, settings.memory.max_bytes), (100_000, 64 << 20));
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn ticket_keys_come_from_where_they_are_written_to_come() {
    let (settings, _) = fleet_accepted(&format!("{SECRET}ticket_keys = \"secret\""));
    assert!(matches!(settings.ticket_keys, KeySource::Derived { .. }));
    let (settings, _) = fleet_accepted("[sessions]\nticket_keys = [\"a.key\", \"b.key\"]");
    assert!(matches!(settings.ticket_keys, KeySource::Files { keys, .. } if keys.len() == 2));
    let (settings, _) = fleet_accepted(&format!(
        "{SECRET}ticket_keys = \"redis\"\nredis = {{ servers = [\"redis://127.0.0.1\"] }}"
    ));
    assert!(matches!(settings.ticket_keys, KeySource::Shared { .. }));
    let (settings, _) = fleet_accepted("tls.tickets = false");
    assert!(matches!(settings.ticket_keys, KeySource::Files { keys, .. } if keys.is_empty()));
}

#[test]
fn a_source_of_ticket_keys_needs_what_it_is_made_of() {
    fleet_refused(
        "[sessions]\nticket_keys = \"secret\"",
        "brisk.toml:4:15: sessions.ticket_keys: needs `secret`, a file that is the same on all machines, as secret = \
         \"fleet.secret\"",
    );
    fleet_refused(
        "[sessions]\nticket_keys = \"redis\"",
        "brisk.toml:4:15: sessions.ticket_keys: needs [sessions.redis] with its `servers`",
    );
    fleet_refused(
        "[sessions]\nticket_keys = []",
        "brisk.toml:4:15: sessions.ticket_keys: no file: write at least one, made with `openssl rand -out FILE 80`",
    );
    fleet_refused(
        "[sessions]\nticket_keys = \"secrets\"",
        "brisk.toml:4:15: sessions.ticket_keys: \"secrets\" is not known here; did you mean `secret`?",
    );
    fleet_refused(
        "[sessions]\nticket_keys = \"a.key\"",
        "brisk.toml:4:15: sessions.ticket_keys: key files are written as a list: [\"a.key\"]",
    );
    fleet_refused(
        "[sessions]\nticket_keys = true",
        "brisk.toml:4:15: sessions.ticket_keys: expected \"memory\", \"secret\", \"redis\" or a list of files, found \
         `true`",
    );
}

#[test]
fn files_with_secrets_are_read_at_once() {
    fleet_refused(
        "[sessions]\nsecret = \"none.secret\"\nticket_keys = \"secret\"",
        "brisk.toml:4:10: sessions.secret: cannot read none.secret: No such file or directory (os error 2)",
    );
    fleet_refused(
        "[sessions]\nsecret = \"short.secret\"\nticket_keys = \"secret\"",
        "brisk.toml:4:10: sessions.secret: short.secret: a fleet secret has 32 to 4096 bytes, not 5; `openssl rand \
         -base64 48` makes a good one",
    );
    fleet_refused(
        "[sessions]\nticket_keys = [\"a.key\", \"hex.key\"]",
        "brisk.toml:4:25: sessions.ticket_keys[1]: hex.key: a ticket key file has 48 or 80 bytes, as `openssl rand 80` \
         writes them; this one has 160 and is text: leave out -hex and -base64",
    );
    fleet_refused(
        "[sessions]\nticket_keys = [\"a.key\", \"a.key\"]",
        "brisk.toml:4:25: sessions.ticket_keys[1]: a.key: a file before it holds this key already",
    );
}

#[test]
fn a_secret_that_everyone_may_read_is_a_warning_and_a_changed_one_a_reload() {
    let (folder, _) = fleet("");
    let secret = folder.path().join("fleet.secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).expect("a file of ours");
    let text = format!("{LISTENER}{SECRET}ticket_keys = \"secret\"\n{HOST}");
    let resolved = checked(folder.path(), &text).expect("right");
    let shown = secret.display();
    let expected = format!("{shown}: everyone on this machine may read it; `chmod o= {shown}` ends that");
    assert_eq!(resolved.warnings, [expected]);
    assert!(resolved.settings.server.files.contains(&secret));
}

#[test]
fn what_has_no_effect_is_no_riddle() {
    fleet_refused(
        SECRET,
        "brisk.toml:4:10: sessions.secret: has no effect: it is for ticket_keys = \"secret\" and for [sessions.redis]",
    );
    fleet_refused(
        "tls.tickets = false\nsessions.ticket_keys = \"memory\"",
        "brisk.toml:4:24: sessions.ticket_keys: has no effect with tls.tickets = false",
    );
    fleet_refused(
        "tls.ticket_rotation = \"1h\"\nsessions.ticket_keys = [\"a.key\"]",
        "brisk.toml:3:23: tls.ticket_rotation: has no effect on key files: they change when you replace them",
    );
    fleet_refused(
        "tls.stateful = true\ntls.session_cache.entries = 0",
        "brisk.toml:3:16: tls.stateful: nothing keeps sessions: session_cache.entries is 0, and there is no \
         [sessions.redis]",
    );
    fleet_refused(
        "tls.early_data_size = \"32KiB\"",
        "brisk.toml:3:23: tls.early_data_size: has no effect: no route has `early_data`",
    );
}

#[test]
fn keys_change_often_enough_and_not_too_often() {
    fleet_refused(
        "tls.ticket_rotation = \"1m\"",
        "brisk.toml:3:23: tls.ticket_rotation: 1m is too short for tickets that live for 1d: write \"48m\" or more, or a \
         shorter session_lifetime",
    );
    fleet_refused(
        "tls.ticket_rotation = \"500ms\"",
        "brisk.toml:3:23: tls.ticket_rotation: 500ms is out of range: write 1s to 7d",
    );
    fleet_refused(
        &format!(
            "tls = {{ ticket_rotation = \"5s\", session_lifetime = \"1m\" }}\n{}",
            redis("servers = [\"redis://a\"]")
        ),
        "brisk.toml:3:27: tls.ticket_rotation: 5s is too short for keys to reach all machines through Redis: write \
         \"12s\" or more",
    );
    fleet_accepted("tls.ticket_rotation = \"1s\"\ntls.session_lifetime = \"30s\"");
    fleet_accepted("tls.ticket_rotation = \"7d\"\ntls.session_lifetime = \"1h\"");
}

/// A `[sessions.redis]` that is right but for `lines`, which begin at line 7.
fn redis(lines: &str) -> String {
    format!("{SECRET}ticket_keys = \"redis\"\n[sessions.redis]\n{lines}")
}

#[test]
fn redis_is_what_is_written() {
    let (settings, warnings) = fleet_accepted(&redis(
        "servers = [\"rediss://a\", \"rediss://[::1]:7000\"]\ntopology = \"sentinel\"\nservice = \"mymaster\"\n\
         username = \"brisk\"\npassword_file = \"password\"\nca = \"ca.pem\"\ndeadline = \"10ms\"\nprefix = \"a:\"",
    ));
    let fleet = settings.fleet.expect("a fleet");
    let servers: Vec<_> = fleet.redis.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["a:26379", "[::1]:7000"]);
    assert_eq!(fleet.redis.topology, RedisTopology::Sentinel { service: "mymaster".to_owned() });
    assert!(fleet.redis.tls.is_some() && fleet.redis.sentinel_credentials.is_none());
    let user = fleet.redis.credentials.expect("a user");
    assert_eq!((user.username.as_deref(), user.password.as_str()), (Some("brisk"), "hush"));
    assert_eq!((fleet.redis.deadline, fleet.redis.prefix.as_str()), (Duration::from_millis(10), "a:"));
    assert_eq!(warnings, [""; 0]);

    let (settings, _) = fleet_accepted(&redis("servers = [\"redis://a\"]"));
    let redis = settings.fleet.expect("a fleet").redis;
    assert_eq!((redis.servers[0].port, redis.topology), (6379, RedisTopology::Single));
    assert!(redis.tls.is_none() && redis.credentials.is_none());
    assert_eq!((redis.deadline, redis.prefix.as_str()), (Duration::from_millis(5), "brisk:"));
}

#[test]
fn redis_has_servers_that_belong_together() {
    fleet_refused(&redis(""), "brisk.toml:6:1: sessions.redis: the key `servers` is missing");
    fleet_refused(
        &redis("servers = []"),
        "brisk.toml:7:11: sessions.redis.servers: no server: write at least one, as \"redis://127.0.0.1:6379\"",
    );
    fleet_refused(
        &redis("servers = [\"127.0.0.1:6379\"]"),
        "brisk.toml:7:12: sessions.redis.servers[0]: \"127.0.0.1:6379\" is not a server of Redis: write \
         \"redis://HOST:PORT\", or \"rediss://HOST:PORT\" where it speaks TLS",
    );
    fleet_refused(
        &redis("servers = [\"redis://a\", \"redis://b\"]"),
        "brisk.toml:7:11: sessions.redis.servers: several servers are Sentinels, with topology = \"sentinel\", or nodes \
         of a cluster, with topology = \"cluster\"",
    );
    fleet_refused(
        &redis("servers = [\"redis://a\", \"redis://a:6379\"]\ntopology = \"cluster\""),
        "brisk.toml:7:25: sessions.redis.servers[1]: sessions.redis.servers[0] is a:6379 already",
    );
    fleet_refused(
        &redis("servers = [\"redis://a\", \"rediss://b\"]\ntopology = \"cluster\""),
        "brisk.toml:7:25: sessions.redis.servers[1]: either all servers are reached by TLS (rediss://), or none \
         (redis://)",
    );
    fleet_refused(
        &redis("servers = [\"redis://a\"]\ntopology = \"clusters\""),
        "brisk.toml:8:12: sessions.redis.topology: \"clusters\" is not known here; did you mean `cluster`?",
    );
    fleet_refused(
        &redis("servers = [\"redis://a\"]\nserver = 1"),
        "brisk.toml:8:1: sessions.redis.server: unknown key; did you mean `servers`?",
    );
}

#[test]
fn redis_has_keys_that_act_on_something() {
    let with = |lines: &str| redis(&format!("servers = [\"redis://a\"]\n{lines}"));
    fleet_refused(
        &with("topology = \"sentinel\""),
        "brisk.toml:8:12: sessions.redis.topology: needs `service`: the name of what the Sentinels watch, as service = \
         \"mymaster\"",
    );
    for key in ["service", "sentinel_username", "sentinel_password_file"] {
        let message = fleet(&with(&format!("{key} = \"password\""))).1.expect_err(key);
        let expected = format!("sessions.redis.{key}: has no effect without topology = \"sentinel\"");
        assert!(message.contains(&expected), "{message}");
    }
    fleet_refused(
        &with("ca = \"ca.pem\""),
        "brisk.toml:8:6: sessions.redis.ca: has no effect: none of the servers begins with rediss://",
    );
    fleet_refused(
        &with("username = \"brisk\""),
        "brisk.toml:8:12: sessions.redis.username: needs `password_file`, a file with the user's password",
    );
    fleet_refused(
        &with("password_file = \"empty.password\""),
        "brisk.toml:8:17: sessions.redis.password_file: empty.password: no password in it; write it as the only line",
    );
    fleet_refused(
        &with("password_file = \"marked.password\""),
        "brisk.toml:8:17: sessions.redis.password_file: marked.password: line 1 begins with a byte order mark: remove it \
         with `sed -i '1s/^\\xEF\\xBB\\xBF//'`, or save the file as UTF-8 without it",
    );
    fleet_refused(
        &with("password_file = \"two.password\""),
        "brisk.toml:8:17: sessions.redis.password_file: two.password: more than one line; the password is the only one",
    );
    fleet_refused(
        &with("deadline = \"2s\""),
        "brisk.toml:8:12: sessions.redis.deadline: 2s is out of range: write 1ms to 1s",
    );
    fleet_refused(
        &with("prefix = \"{brisk}\""),
        "brisk.toml:8:10: sessions.redis.prefix: \"{brisk}\" is not a prefix: write up to 64 letters, digits and \
         \":._-\"",
    );
    let message = fleet("[sessions.redis]\nservers = [\"redis://a\"]").1.expect_err("no secret");
    assert_eq!(
        message,
        "brisk.toml:3:1: sessions.redis: needs `secret` in [sessions]: what is kept in Redis is sealed with a key \
         derived from it"
    );
}

#[test]
fn what_is_not_shared_although_it_looks_so_is_a_warning() {
    let (_, warnings) = fleet_accepted(&format!("{SECRET}redis = {{ servers = [\"redis://a\"] }}"));
    assert!(warnings[0].contains("tickets still resume only where they were made"), "{warnings:?}");
    let (_, warnings) =
        fleet_accepted(&format!("{SECRET}ticket_keys = \"memory\"\nredis = {{ servers = [\"redis://a\"] }}"));
    assert_eq!(warnings, [""; 0]);
    let (_, warnings) = fleet_accepted(&format!("tls.stateful = true\n{SECRET}ticket_keys = \"secret\""));
    assert!(warnings[0].contains("TLS 1.3 resume only where they were made"), "{warnings:?}");
}

#[test]
fn early_data_beside_shared_tickets_without_a_common_store_is_a_warning() {
    let host = HOST.replace("[[host]]", "[[host]]\nearly_data = \"safe\"");
    let with = |keys: &str| fleet_with(&format!("{SECRET}{keys}"), &host).1.expect("accepted").warnings;
    let warnings = with("ticket_keys = \"secret\"");
    assert!(warnings[0].starts_with("host[0], ") && warnings[0].contains("early_data keeps"), "{warnings:?}");
    let files = fleet_with("[sessions]\nticket_keys = [\"a.key\"]", &host).1.expect("accepted").warnings;
    assert!(files[0].contains("sessions.ticket_keys = [...] shares TLS 1.2 only"), "{files:?}");
    assert_eq!(with("ticket_keys = \"redis\"\nredis = { servers = [\"redis://a\"] }"), [""; 0]);
    assert_eq!(fleet_with("", &host).1.expect("accepted").warnings, [""; 0]);
    assert_eq!(fleet_accepted("[sessions]\nticket_keys = [\"a.key\"]").1, [""; 0]);
}

/// A route with these lines from line 6 on.
fn early(lines: &str) -> String {
    route(&format!("path = \"/api\"\nrespond = {{}}\n{lines}"))
}

#[test]
fn early_data_is_off_unless_a_route_wants_it() {
    let of = |text: &str| {
        let Resolved { settings, .. } = accepted(text);
        let policies: Vec<_> = settings
            .service
            .hosts
            .iter()
            .flat_map(|host| &host.routes)
            .map(|r| r.early_data.clone())
            .collect();
        (settings.service.hosts.iter().map(|host| host.tls.early_data).collect::<Vec<_>>(), policies)
    };
    assert_eq!(of(&early("")), (vec![0], vec![EarlyDataPolicy::Hold]));
    assert_eq!(of(&early("early_data = \"no\"")), (vec![0], vec![EarlyDataPolicy::Hold]));
    assert_eq!(of(&early("early_data = \"safe\"")), (vec![16 << 10], vec![EarlyDataPolicy::Safe]));
    let paths = EarlyDataPolicy::Paths(vec![
        EarlyPath::Exact("/api/search".to_owned()),
        EarlyPath::Prefix("/api/img/".to_owned()),
    ]);
    let text = early("early_data = [\"/api/search\", \"/api/img/*\"]\n[tls]\nearly_data_size = \"4KiB\"");
    assert_eq!(of(&text), (vec![4 << 10], vec![paths]));
}

#[test]
fn a_host_speaks_for_routes_that_say_nothing_and_for_the_page() {
    let host = format!("{LISTENER}{HOST}early_data = \"safe\"\n");
    let route =
        |path: &str, early: &str| format!("[[host.route]]\npath = {path:?}\nrespond = {{}}\n{early}\n");
    let text = format!("{host}{}{}", route("/a", ""), route("/b", "early_data = \"no\""));
    let Resolved { settings, .. } = accepted(&text);
    let policies: Vec<_> = settings.service.hosts[0].routes.iter().map(|route| &route.early_data).collect();
    assert_eq!(policies, [&EarlyDataPolicy::Safe, &EarlyDataPolicy::Hold]);
    assert_eq!(accepted(&host).settings.service.hosts[0].tls.early_data, 16 << 10);
}

#[test]
fn early_data_that_cannot_be_is_refused() {
    refused(
        &early("early_data = \"saef\""),
        "brisk.toml:8:14: host[0].route[0].early_data: \"saef\" is not known here; did you mean `safe`?",
    );
    refused(
        &early("early_data = true"),
        "brisk.toml:8:14: host[0].route[0].early_data: expected \"no\", \"safe\" or a list of paths, found `true`",
    );
    refused(
        &early("early_data = \"/api\""),
        "brisk.toml:8:14: host[0].route[0].early_data: paths are written as a list: [\"/api\"]",
    );
    refused(
        &early("early_data = []"),
        "brisk.toml:8:14: host[0].route[0].early_data: no path: write at least one, as \"/api/search\", or \"no\"",
    );
    for (path, message) in [
        ("api", "\"api\" is not a path for early data: a path begins with a slash"),
        (
            "/api/*/x",
            "\"/api/*/x\" is not a path for early data: a path has no \"*\" but at its end, where it stands for \
             whatever follows",
        ),
        ("/api?x", "\"/api?x\" is not a path for early data: it ends before \"?\" and \"#\""),
        ("/img/*", "the route takes nothing of \"/img/*\": its path is \"/api\""),
    ] {
        refused(
            &early(&format!("early_data = [{path:?}]")),
            &format!("brisk.toml:8:15: host[0].route[0].early_data[0]: {message}"),
        );
    }
}

#[test]
fn early_data_needs_sessions_that_are_kept_and_no_proof_of_the_client() {
    let with = |tls: &str| early(&format!("early_data = \"safe\"\n[tls]\n{tls}"));
    refused(
        &with("session_cache.entries = 0"),
        "brisk.toml:8:14: host[0].route[0].early_data: nothing keeps the sessions that early data comes with: \
         tls.session_cache.entries is 0, and there is no [sessions.redis]",
    );
    refused(
        &with("tickets_per_handshake = 0"),
        "brisk.toml:8:14: host[0].route[0].early_data: has no effect with tls.tickets_per_handshake = 0: no client can \
         resume",
    );
    refused(
        &with("early_data_size = \"2MiB\""),
        "brisk.toml:10:19: tls.early_data_size: 2MiB is out of range: write 1KiB to 1MiB",
    );
    let ca = TestCa::new();
    let host = format!("{HOST}client_certificates = {{ mode = \"optional\", ca = {:?} }}\n", ca.root_file());
    let text =
        format!("{LISTENER}{host}[[host.route]]\npath = \"/\"\nrespond = {{}}\nearly_data = \"safe\"\n");
    refused(
        &text,
        "brisk.toml:9:14: host[0].route[0].early_data: not on a host with client_certificates: a request would be \
         answered before its client has proved again who it is",
    );
}

#[test]
fn a_pipe_with_a_wrong_secret_is_opened_once() {
    let folder = folder();
    let pipe = folder.path().join("short.pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    thread::spawn(move || fs::write(pipe, "short\n"));
    let (sender, result) = mpsc::channel();
    thread::spawn(move || {
        let text = format!("{LISTENER}\n[sessions]\nsecret = \"short.pipe\"\n\n{HOST}");
        sender.send(checked(folder.path(), &text)).expect("a test that waits");
    });
    let message =
        result.recv_timeout(Duration::from_mins(1)).expect("a check that ends").expect_err("a short secret");
    assert!(message.starts_with("brisk.toml:5:10: sessions.secret: "), "{message}");
}
