//! Wrong files and the exact words about them; right files and what becomes of them.

mod access;
mod acme;
mod application_servers;
mod certificates;
mod clients;
mod dangers;
mod dashboard;
mod diversions;
mod documentation;
mod error_pages;
mod foreign;
mod forms;
mod fuzz;
mod http3;
mod include;
mod keyless;
mod keys;
mod limits;
mod links;
mod maps;
mod overload;
mod oversights;
mod pages;
mod routes;
mod sandbox;
mod sessions;
mod tcp;
mod tokens;
mod upstream_path;
mod upstreams;
mod variation;
mod visit_store;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use brisk_answer::settings::{Action, HttpsRedirect, RoutePath, Underscores};
use brisk_certs::UnknownName;
use brisk_gateway::settings::ProxyProtocol;
use brisk_logs::AccessLogTarget;
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_tls::settings::Records;
use brisk_upstream_group::settings::{Balance, HashKey, Retry};
use brisk_wire::HttpVersion;
use brisk_wire::registry::ProtocolVersion;
use tempfile::TempDir;

use super::*;

/// A host that is right, for files that are about something else.
const HOST: &str = "[[host]]\nnames = [\"localhost\"]\n";
const LISTENER: &str = "[server]\nhttps = [\"127.0.0.1:443\"]\n";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// What `brisk check` says of `text`, with paths from the folder of the file on.
fn checked(folder: &Path, text: &str) -> Result<Resolved, String> {
    let file = folder.join("brisk.toml");
    fs::write(&file, text).expect("written");
    check(&file, &Running::default())
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let message = checked(folder().path(), text).expect_err(text);
    assert_eq!(message, expected, "\nin:\n{text}");
}

#[track_caller]
fn accepted(text: &str) -> Resolved {
    checked(folder().path(), text).unwrap_or_else(|message| panic!("{message}\nin:\n{text}"))
}

#[test]
fn an_unknown_key_brings_the_nearest_known_one() {
    refused(
        &format!("[server]\nhtps = [\"127.0.0.1:443\"]\n{HOST}"),
        "brisk.toml:2:1: server.htps: unknown key; did you mean `https`?",
    );
    refused(
        &format!("{LISTENER}[sever]\n{HOST}"),
        "brisk.toml:3:2: sever: unknown key; did you mean `server`?",
    );
    refused(
        &format!("{LISTENER}{HOST}hsts = {{ max_age = \"1d\", include_sub_domains = true }}\n"),
        "brisk.toml:5:26: host[0].hsts.include_sub_domains: unknown key; did you mean `include_subdomains`?",
    );
    refused(
        &format!("{LISTENER}[admin]\nwhere = 1\n{HOST}"),
        "brisk.toml:4:1: admin.where: unknown key; known here: `listen`",
    );
}

#[test]
fn an_unknown_word_brings_the_known_ones() {
    refused(
        &format!("{LISTENER}unknown_host = \"refused\"\n{HOST}"),
        "brisk.toml:3:16: server.unknown_host: \"refused\" is not known here; did you mean `refuse`?",
    );
    refused(
        &format!("{LISTENER}underscores_in_headers = \"keep\"\n{HOST}"),
        "brisk.toml:3:26: server.underscores_in_headers: \"keep\" is not known here; known here: `drop`, `pass`",
    );
    refused(
        &format!("{LISTENER}[tls]\nmin_version = \"1.1\"\n{HOST}"),
        "brisk.toml:4:15: tls.min_version: \"1.1\" is not known here; known here: `1.2`, `1.3`",
    );
    refused(
        &format!("{LISTENER}[tls]\nprotocols = []\n{HOST}"),
        "brisk.toml:4:13: tls.protocols: no protocol: write \"h2\", \"http/1.1\" or both, the preferred one first",
    );
    refused(
        &format!("{LISTENER}[tls]\nprotocols = [\"h2\", \"h2\"]\n{HOST}"),
        "brisk.toml:4:20: tls.protocols[1]: \"h2\" is written already; once is enough",
    );
    refused(
        &format!("{LISTENER}[tls]\nprotocols = [\"h3\"]\n{HOST}"),
        "brisk.toml:4:14: tls.protocols[0]: \"h3\" is not known here; known here: `h2`, `http/1.1`",
    );
    refused(
        &format!("{LISTENER}[tls]\nmin_version = 1.3\n{HOST}"),
        "brisk.toml:4:15: tls.min_version: expected one of \"1.2\", \"1.3\", found the number 1.3",
    );
}

#[test]
fn a_value_out_of_range_brings_the_range() {
    for (line, column, message) in [
        ("workers = 0", 11, "workers: 0 is out of range: write 1 to 1024"),
        ("timeouts.head = \"1ms\"", 17, "timeouts.head: 1ms is out of range: write 100ms to 1d"),
        ("timeouts.hello = \"2d\"", 18, "timeouts.hello: 2d is out of range: write 100ms to 1d"),
        ("limits.hello_size = \"1KiB\"", 21, "limits.hello_size: 1KiB is out of range: write 4KiB to 1MiB"),
        ("limits.h2_streams = 0", 21, "limits.h2_streams: 0 is out of range: write 1 to 10000"),
    ] {
        refused(&format!("{LISTENER}{line}\n{HOST}"), &format!("brisk.toml:3:{column}: server.{message}"));
    }
    refused(
        &format!("{LISTENER}[tls]\nsession_lifetime = \"8d\"\n{HOST}"),
        "brisk.toml:4:20: tls.session_lifetime: 8d is out of range: write 1s to 7d",
    );
}

#[test]
fn a_backlog_out_of_range_is_reported_once_for_all_listeners() {
    refused(
        &format!("{LISTENER}http = [\"127.0.0.1:80\"]\nbacklog = 0\n{HOST}"),
        "brisk.toml:4:11: server.backlog: 0 is out of range: write 1 to 1048576",
    );
}

#[test]
fn buffered_requests_need_an_upstream_and_a_limit() {
    let route = |keys: &str| {
        let upstream = "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
        format!(
            "{LISTENER}unknown_host = \"default\"\n{HOST}[[host.route]]\npath = \"/\"\n{keys}\n{upstream}"
        )
    };
    refused(
        &route("upstream = \"app\"\nbuffer_request = true"),
        "brisk.toml:9:18: host[0].route[0].buffer_request: needs a limit for what is buffered: write body_size = \"10MiB\" \
         beside it",
    );
    refused(
        &route("respond = {}\nbuffer_request = true"),
        "brisk.toml:9:18: host[0].route[0].buffer_request: has no effect without `upstream`",
    );
    let resolved = accepted(&route("upstream = \"app\"\nbuffer_request = true\nbody_size = \"1MiB\""));
    assert_eq!(resolved.settings.protocol.gathered_total, 1 << 30);
    refused(
        &format!("{LISTENER}limits.buffered_requests = \"1KiB\"\n{HOST}"),
        "brisk.toml:3:28: server.limits.buffered_requests: 1KiB is out of range: write 1MiB to 1048576GiB",
    );
}

#[test]
fn a_missing_key_is_reported_at_its_table() {
    refused(
        &format!("{LISTENER}[[host]]\ndefault = true\n"),
        "brisk.toml:3:1: host[0]: the key `names` is missing",
    );
    refused(
        &format!("{LISTENER}{HOST}certificates = [{{ chain = \"a.pem\" }}]\n"),
        "brisk.toml:5:17: host[0].certificates[0]: the key `key` is missing",
    );
    refused(
        &format!("{LISTENER}{HOST}[upstream.app.pool]\nidle_connections = 1\n"),
        "brisk.toml:5:11: upstream.app: the key `servers` is missing",
    );
}

#[test]
fn something_must_listen_and_no_two_at_one_place() {
    refused(
        HOST,
        "brisk.toml: server: nothing listens: write https = [\"0.0.0.0:443\", \"[::]:443\"] in [server]",
    );
    refused(
        &format!("{LISTENER}http = [\"127.0.0.1:443\"]\n{HOST}"),
        "brisk.toml:3:9: server.http[0]: 127.0.0.1:443 is taken by server.https[0] already",
    );
    refused(
        &format!("{LISTENER}[admin]\nlisten = \"127.0.0.1:443\"\n{HOST}"),
        "brisk.toml:4:10: admin.listen: 127.0.0.1:443 is taken by server.https[0] already",
    );
}

#[test]
fn hosts_have_names_of_their_own() {
    refused(LISTENER, "brisk.toml: host: no host: write at least one [[host]] with its `names`");
    refused(
        &format!("{LISTENER}[[host]]\nnames = []\n"),
        "brisk.toml:4:9: host[0].names: no name: write at least one, as \"example.com\"",
    );
    refused(
        &format!("{LISTENER}{HOST}{HOST}"),
        "brisk.toml:6:10: host[1].names[0]: host[0].names[0] is \"localhost\" already",
    );
    refused(
        &format!("{LISTENER}[[host]]\nnames = [\"*\"]\n"),
        "brisk.toml:4:10: host[0].names[0]: \"*\" is not a host name: write `default = true` for the host that \
         answers all other names",
    );
    refused(
        &format!("{LISTENER}{HOST}default = true\n[[host]]\nnames = [\"::1\"]\ndefault = true\n"),
        "brisk.toml:8:11: host[1].default: host[0] is the default already; there can be one",
    );
}

#[test]
fn hosts_have_certificates_that_fit() {
    let ca = TestCa::new();
    let (one, other) = (ca.server(&["example.com"]).issue(), ca.server(&["example.com"]).issue());
    let host = |chain: &Path, key: &Path| {
        let (chain, key) = (chain.display(), key.display());
        format!(
            "{LISTENER}[[host]]\nnames = [\"example.com\"]\ncertificates = [{{ chain = \"{chain}\", key = \"{key}\" }}]\n"
        )
    };
    refused(
        &format!("{LISTENER}[[host]]\nnames = [\"example.com\"]\n"),
        "brisk.toml:3:1: host[0].certificates: no certificate for \"example.com\": write certificates = \
         [{ chain = \"FILE\", key = \"FILE\" }]; only localhost has a development certificate",
    );
    refused(
        &host(Path::new("no.pem"), &one.key),
        "brisk.toml:5:27: host[0].certificates[0].chain: cannot read no.pem: No such file or directory (os error 2)",
    );
    let message = checked(folder().path(), &host(&one.chain, &other.key)).expect_err("a stranger's key");
    assert!(message.contains(": host[0].certificates[0].key: the key in "), "{message}");
    assert!(message.contains("does not fit the certificate in"), "{message}");

    let text = host(&one.chain, &one.key);
    let resolved = accepted(&text);
    let built_in = "host[0]: everybody gets the built-in page about the visitor's connection at example.com: write routes, as \
                    [[host.route]] path = \"/\" with upstream, static or redirect";
    assert_eq!(resolved.warnings, [built_in]);
    assert_eq!(accepted(&format!("{text}[[host.route]]\npath = \"/\"\nrespond = {{}}\n")).warnings, [""; 0]);
    assert_eq!(resolved.settings.service.hosts[0].tls.certificates.len(), 1);
    assert_eq!(resolved.settings.service.hosts[0].tls.certificates[0].names, ["example.com"]);
    assert!(resolved.settings.server.files.contains(&one.chain));
}

#[test]
fn upstreams_that_get_unknown_names_are_a_warning_unless_they_are_meant_to() {
    let tables = "[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
    assert_eq!(
        accepted(&format!("{LISTENER}{HOST}{tables}")).warnings,
        [
            "server.unknown_host is not written: requests for names that no host has go to the upstreams of \"localhost\", with \
          the client's name as Host; write unknown_host = \"refuse\", or \"default\" if that is meant"
        ]
    );
    for word in ["refuse", "default"] {
        let resolved = accepted(&format!("{LISTENER}unknown_host = {word:?}\n{HOST}{tables}"));
        assert_eq!(resolved.warnings, [""; 0], "{word}");
    }
}

#[test]
fn a_doubtful_certificate_is_a_warning() {
    let ca = TestCa::new();
    let leaf = ca.server(&["other.example"]).key(LeafKey::EcdsaP256).expired().issue();
    let resolved = accepted(&format!(
        "{LISTENER}[[host]]\nnames = [\"example.com\"]\ncertificates = [{{ chain = \"{}\", key = \"{}\" }}]\n",
        leaf.chain.display(),
        leaf.key.display()
    ));
    let has = |text: &str| resolved.warnings.iter().any(|warning| warning.contains(text));
    assert!(has("expired on"), "{:?}", resolved.warnings);
    assert!(has("the certificate is not for \"example.com\""), "{:?}", resolved.warnings);
}

#[test]
fn a_key_that_others_may_read_or_change_is_a_warning() {
    let leaf = TestCa::new().server(&["example.com"]).issue();
    let config = format!(
        "{LISTENER}[[host]]\nnames = [\"example.com\"]\ncertificates = [{{ chain = \"{}\", key = \"{}\" }}]\n\
         [[host.route]]\npath = \"/\"\nrespond = {{}}\n",
        leaf.chain.display(),
        leaf.key.display()
    );
    let key = leaf.key.display();
    let read = format!("{key}: everyone on this machine may read it; `chmod o= {key}` ends that");
    let change = format!("{key}: others than its owner may change it; `chmod go-w {key}` ends that");
    for (mode, warnings) in [
        (0o600, vec![]),
        (0o640, vec![]),
        (0o644, vec![&read]),
        (0o660, vec![&change]),
        (0o666, vec![&read, &change]),
    ] {
        fs::set_permissions(&leaf.key, fs::Permissions::from_mode(mode)).expect("a file of ours");
        assert_eq!(accepted(&config).warnings.iter().collect::<Vec<_>>(), warnings, "{mode:o}");
    }
}

#[test]
fn preloading_has_conditions() {
    let hsts = |value: &str| format!("{LISTENER}{HOST}hsts = {{ {value} }}\n");
    refused(
        &hsts("max_age = \"180d\", include_subdomains = true, preload = true"),
        "brisk.toml:5:65: host[0].hsts.preload: browsers preload a host only with max_age of \"365d\" or more, \
         not \"180d\"",
    );
    refused(
        &hsts("max_age = \"2y\""),
        "brisk.toml:5:20: host[0].hsts.max_age: \"2y\" is not a duration: write a whole number and a unit, as \
         \"500ms\", \"10s\" or \"180d\"",
    );
    refused(
        &hsts("max_age = \"365d\", preload = true"),
        "brisk.toml:5:38: host[0].hsts.preload: browsers preload a host only with include_subdomains = true",
    );
    accepted(&hsts("max_age = \"365d\", include_subdomains = true, preload = true"));
}

/// A route of a right host at lines 5 and 6, and what follows it.
fn route(lines: &str) -> String {
    format!("{LISTENER}{HOST}[[host.route]]\n{lines}\n")
}

#[test]
fn a_route_names_an_upstream_that_exists() {
    refused(
        &route("path = \"/\"\nupstream = \"apps\"\n[upstream.app]\nservers = [\"http://127.0.0.1:1\"]"),
        "brisk.toml:7:12: host[0].route[0].upstream: \"apps\" is not known here; did you mean `app`?",
    );
    refused(
        &route("path = \"/\"\nupstream = \"app\""),
        "brisk.toml:7:12: host[0].route[0].upstream: there is no upstream: write [upstream.app] with its `servers`",
    );
}

#[test]
fn a_route_has_one_answer() {
    refused(
        &route("path = \"/\""),
        "brisk.toml:5:1: host[0].route[0]: nothing answers: write one of `upstream`, `static`, `respond`, \
         `redirect`",
    );
    refused(
        &route("path = \"/\"\nrespond = {}\nredirect = \"/x\""),
        "brisk.toml:5:1: host[0].route[0]: `respond` and `redirect` cannot both answer: keep one",
    );
    refused(
        &route("path = \"/\"\nstatic = \"www\""),
        "brisk.toml:7:10: host[0].route[0].static: the folder www does not exist",
    );
    refused(
        &route("path = \"/\"\nrespond = { status = 99 }"),
        "brisk.toml:7:22: host[0].route[0].respond.status: 99 is out of range: write 200 to 599",
    );
    refused(
        &route("path = \"/\"\nredirect = { to = \"/x\", status = 200 }"),
        "brisk.toml:7:34: host[0].route[0].redirect.status: 200 is not the status of a redirect: write 301, 302, \
         303, 307 or 308",
    );
}

#[test]
fn a_route_has_a_path_of_its_own() {
    refused(
        &route("path = \"api\"\nrespond = {}"),
        "brisk.toml:6:8: host[0].route[0].path: \"api\" is not the path of a route: it begins with a slash, as \
         \"/api\"",
    );
    refused(
        &route("path = \"/api/*\"\nrespond = {}"),
        "brisk.toml:6:8: host[0].route[0].path: \"/api/*\" is not the path of a route: it needs no \"*\": a path \
         stands for all below it",
    );
    refused(
        &route("path = \"/\"\nrespond = {}\n[[host.route]]\npath = \"/\"\nrespond = {}"),
        "brisk.toml:9:8: host[0].route[1].path: host[0].route[0] has this path already",
    );
}

/// An upstream whose table begins at line 5.
#[test]
fn all_errors_come_at_once_in_the_order_of_the_file() {
    refused(
        "[server]\nhttps = [\"127.0.0.1:443\"]\nworkrs = 2\n[[host]]\nnames = [\"localhost\"]\n[[host.route]]\n\
         path = 1\nrespond = {}\n[[host.route]]\npath = \"/\"\nupstrem = \"app\"\n[[host.route]]\npath = \"/x\"\n\
         upstream = \"app\"\n[upstream.app]\nservers = [1]\n",
        "brisk.toml:3:1: server.workrs: unknown key; did you mean `workers`?\n\
         brisk.toml:7:8: host[0].route[0].path: expected text in quotes, found the number 1\n\
         brisk.toml:11:1: host[0].route[1].upstrem: unknown key; did you mean `upstream`?\n\
         brisk.toml:16:12: upstream.app.servers[0]: expected a URL in quotes or { url = URL, weight = NUMBER }, \
         found the number 1",
    );
}

#[test]
fn a_hopeless_file_is_cut_short() {
    let keys: Vec<_> = (0..20).map(|number| format!("key{number} = 1")).collect();
    let text = format!("{LISTENER}{}\n{HOST}", keys.join("\n"));
    let message = checked(folder().path(), &text).expect_err("wrong");
    assert_eq!(message.lines().count(), 11);
    assert_eq!(message.lines().last(), Some("brisk.toml: and more"));
    // The reader gives up, so that `https` is not read: it is not reported as missing.
    let routes = keys.join("\n");
    let text = format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nrespond = {{}}\n{routes}\n");
    let message = checked(folder().path(), &text).expect_err("wrong");
    assert!(message.lines().take(10).all(|line| line.contains("unknown key")), "{message}");
}

#[test]
fn little_is_needed() {
    let Resolved { settings, warnings, development, .. } = accepted(&format!("{LISTENER}{HOST}"));
    assert_eq!(warnings, [""; 0]);
    assert!(development.is_none(), "a check makes no certificates");
    assert_eq!(settings.https[0].address.port(), 443);
    assert_eq!(settings.service.redirect, HttpsRedirect::new(443));
    assert_eq!(settings.tls.min_version, ProtocolVersion::TLS1_2);
    assert_eq!(settings.tls.hello_size, 16 << 10);
    assert_eq!(settings.tls.records, Records::Growing);
    assert_eq!(settings.tls.protocols, HttpVersion::OVER_TCP);
    assert_eq!(settings.protocol.timeouts.idle, Duration::from_mins(1));
    assert_eq!(settings.proxy_protocol, ProxyProtocol::Off);
    let targets: Vec<_> = settings.access_log.iter().map(|log| &log.target).collect();
    assert_eq!(targets, [&AccessLogTarget::Stdout]);
    let host = &settings.service.hosts[0];
    assert!(!settings.http3 && host.alt_svc.is_none());
    assert!(settings.server.admin.is_none() && host.tls.default && host.routes.is_empty());
}

#[test]
fn what_is_written_is_what_is_meant() {
    let Resolved { settings, .. } = accepted(
        "[server]\nhttps = [\"[::1]:0\", \"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nhttp3 = true\nworkers = 3\nfast_open = false\n\
         proxy_protocol = [\"10.0.0.0/8\"]\nunknown_host = \"refuse\"\nunderscores_in_headers = \"pass\"\nlimits.body_size = \"1MiB\"\n\
         [tls]\nmin_version = \"1.3\"\nprotocols = [\"http/1.1\"]\ntickets = false\nsession_cache = { entries = 5, size = \"2MiB\" }\n\
         [access_log]\nformat = \"off\"\n[admin]\nlisten = \"127.0.0.1:9443\"\n\
         [[host]]\nnames = [\"LOCALHOST\"]\n[[host]]\nnames = [\"::1\"]\ndefault = true\n\
         [[host.route]]\npath = \"/a\"\nexact = true\nupstream = \"app\"\nstrip_prefix = true\n\
         [[host.route]]\npath = \"/b/\"\nredirect = \"https://{host}/c{path}\"\nbody_size = \"none\"\n\
         [upstream.app]\nservers = [\"h2c://[::1]:1\", { url = \"http://app\", weight = 3 }]\n\
         balance = \"consistent_hash\"\nhash_by = \"header:X-User\"\nretry = false\n\
         health = { path = \"/up\", max_failures = 0 }\n",
    );
    assert_eq!((settings.https.len(), settings.http.len(), settings.server.workers.get()), (2, 1, 3));
    assert_eq!(settings.https[0].fast_open, None);
    assert!(settings.http3 && settings.tls.quic);
    assert_eq!(
        settings.proxy_protocol,
        ProxyProtocol::Trusted(vec!["10.0.0.0/8".parse().expect("a network")])
    );
    assert_eq!(settings.tls.unknown_host, UnknownName::Refuse);
    assert_eq!(settings.service.underscores, Underscores::Pass);
    assert_eq!(settings.tls.min_version, ProtocolVersion::TLS1_3);
    assert_eq!(settings.tls.protocols, [HttpVersion::Http11, HttpVersion::Http10]);
    assert!(!settings.tls.tickets && !settings.tls.key_log && settings.access_log.is_empty());
    assert_eq!((settings.sessions.memory.max_sessions, settings.sessions.memory.max_bytes), (5, 2 << 20));
    assert_eq!(settings.service.hosts[0].tls.names, ["localhost"]);
    assert_eq!((settings.service.hosts[0].tls.default, settings.service.hosts[1].tls.default), (false, true));
    let [first, second] = &settings.service.hosts[1].routes[..] else { panic!("two routes") };
    assert_eq!((&first.path, first.body.limit), (&RoutePath::Exact("/a".to_owned()), Some(1 << 20)));
    assert!(matches!(&first.action, Action::Upstream(_)));
    assert_eq!((&second.path, second.body.limit), (&RoutePath::Prefix("/b/".to_owned()), None));
    let group = &settings.upstreams[0];
    assert_eq!((group.name.as_str(), group.servers[0].weight, group.servers[1].weight), ("app", 1, 3));
    assert_eq!(
        group.balance,
        Balance::ConsistentHash { by: HashKey::Header("x-user".parse().expect("a name")) }
    );
    assert_eq!((group.retry.clone(), group.health.passive.max_failures), (Retry::Never, 0));
    assert!(group.health.active.is_some());
}

#[test]
fn a_first_run_needs_no_file() {
    let state = folder();
    let line =
        CommandLine { state_dir: Some(state.path().to_owned()), key_log: true, ..CommandLine::default() };
    let Resolved { settings, development, .. } = line.settings(&Running::default()).expect("right");
    assert!(development.is_some_and(|ca| ca.created()) && settings.service.hosts[0].routes.is_empty());
    assert_eq!(settings.service.hosts[0].tls.names, ["localhost", "127.0.0.1", "::1"]);
    assert_eq!(settings.service.hosts[0].tls.certificates.len(), 2);
    assert!(settings.https.iter().all(|listener| listener.address.ip().is_loopback()));
    assert!(settings.service.redirect == HttpsRedirect::new(8443) && settings.tls.key_log);
}

#[test]
fn the_command_line_comes_before_the_file() {
    let folder = folder();
    let file = folder.path().join("brisk.toml");
    fs::write(&file, format!("[server]\nhttps = [\"127.0.0.1:1\"]\nworkers = 1\n{HOST}")).expect("written");
    let line = CommandLine {
        file: Some(file.clone()),
        listen: vec!["127.0.0.1:2".parse().expect("an address")],
        state_dir: Some(folder.path().join("state")),
        workers: Some(2),
        access_log: Some(AccessLogFormat::Off),
        ..CommandLine::default()
    };
    let Resolved { settings, .. } = line.settings(&Running::default()).expect("right");
    assert_eq!(settings.https.iter().map(|listener| listener.address.port()).collect::<Vec<_>>(), [2]);
    assert_eq!(settings.server.workers.get(), 2);
    assert!(settings.access_log.is_empty() && folder.path().join("state/ca.pem").exists());
    assert!(settings.server.files.contains(&file));
}

#[test]
fn an_upstream_of_the_command_line_answers_everything() {
    let state = folder();
    let upstream = Some("http://127.0.0.1:8080".parse().expect("a URL"));
    let line = CommandLine { upstream, state_dir: Some(state.path().to_owned()), ..CommandLine::default() };
    let Resolved { settings, .. } = line.settings(&Running::default()).expect("right");
    let route = &settings.service.hosts[0].routes[0];
    assert_eq!(route.path, RoutePath::Prefix("/".to_owned()));
    assert!(matches!(&route.action, Action::Upstream(to) if to.group == settings.upstreams[0].name));
}
