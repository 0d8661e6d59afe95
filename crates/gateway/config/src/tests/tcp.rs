//! `[[tcp]]`.

use brisk_gateway::settings::TcpTls;

use super::*;

const DB: &str = "[[tcp]]\nlisten = [\"127.0.0.1:5432\"]\nupstream = \"tcp://127.0.0.1:1\"\n";

/// Checks the message about `text` without its position in the file.
#[track_caller]
fn refused(text: &str, expected: &str) {
    let message = checked(folder().path(), text).expect_err(text);
    let (position, message) = message.split_once(": ").expect("a position");
    assert!(position.starts_with("brisk.toml:"), "{position}");
    assert_eq!(message, expected, "\nin:\n{text}");
}

/// The file with `text` after its listener and its host.
fn with(text: &str) -> String {
    format!("{LISTENER}{HOST}{text}")
}

#[test]
fn a_file_may_have_no_host() {
    let settings = accepted(DB).settings;
    let [tcp] = &settings.tcp[..] else { panic!("{:?}", settings.tcp) };
    assert!(matches!(tcp.tls, TcpTls::None) && tcp.is_default);
    assert_eq!((tcp.name.as_str(), tcp.upstream.as_str()), ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"));
    assert_eq!(tcp.idle_timeout, Duration::from_mins(10));
    assert_eq!(settings.upstreams[0].name, tcp.upstream);
}

#[test]
fn names_mean_that_tls_is_passed_on() {
    let text = with(
        "[[tcp]]\nnames = [\"*.A.test\", \"*\"]\nupstream = \"db\"\n[upstream.db]\nservers = [\"tcp://127.0.0.1:1\"]\n",
    );
    let settings = accepted(&text).settings;
    let tcp = &settings.tcp[0];
    assert!(matches!(tcp.tls, TcpTls::Passthrough) && tcp.is_default && tcp.listen.is_empty());
    assert_eq!(tcp.names, ["*.a.test"]);
}

#[test]
fn clients_of_some_networks_are_permitted() {
    let networks =
        &accepted(&format!("{DB}allow = [\"10.0.0.0/8\"]\ndeny = [\"10.1.0.0/16\"]\n")).settings.tcp[0]
            .networks;
    let permits = |text: &str| networks.permits(text.parse().expect("an address"));
    assert!(permits("10.2.0.1") && !permits("10.1.0.1") && !permits("127.0.0.1"));
    assert!(accepted(DB).settings.tcp[0].networks.is_open());
    refused(
        &format!("{DB}allow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.0/8\"]\n"),
        "tcp[0].deny: 10.0.0.0/8 is in `allow` already: keep one of the two",
    );
    refused(&format!("{DB}allow = []\n"), "tcp[0].allow: no network: write at least one, as \"10.0.0.0/8\"");
}

#[test]
fn a_connection_belongs_to_one_place() {
    let pass = |keys: &str| format!("[[tcp]]\nupstream = \"tcp://127.0.0.1:1\"\n{keys}\n");
    refused(
        &with(&pass("names = [\"localhost\"]")),
        "tcp[0].names[0]: host[0].names[0] is \"localhost\" already; a client gets one of the two",
    );
    accepted(&with(&pass("names = [\"localhost\"]\nalpn = [\"xmpp-client\"]")));
    refused(
        &with(
            &(pass("names = [\"a.test\"]\nalpn = [\"h2\"]")
                + &pass("names = [\"a.test\"]\nalpn = [\"x\", \"h2\"]")),
        ),
        "tcp[1].names[0]: tcp[0].names[0] is \"a.test\" already; a client gets one of the two",
    );
    refused(
        &with(&pass("names = [\"a.test\"]\nlisten = [\"127.0.0.1:443\"]")),
        "tcp[0].listen[0]: 127.0.0.1:443 is taken by server.https[0] already: leave out `listen`, and connections with these \
         `names` belong here",
    );
    refused(
        &format!("{DB}{}", DB.replace("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")),
        "tcp[1].listen[0]: 127.0.0.1:5432 is taken by tcp[0].listen[0] already, which takes all connections",
    );
}

#[test]
fn keys_that_contradict_each_other_are_mistakes() {
    for (keys, message) in [
        ("upstream = \"tcp://127.0.0.1:1\"", "tcp[0]: nothing listens: write listen = [\"0.0.0.0:5432\"]"),
        (
            "upstream = \"tcp://127.0.0.1:1\"\ntls = \"passthrough\"",
            "tcp[0]: no name: without `listen`, connections of `server.https` with these `names` belong here; write names = \
             [\"db.example.com\"], or `listen`",
        ),
        (
            "listen = [\"127.0.0.1:1\"]",
            "tcp[0]: no upstream: write upstream = \"tcp://127.0.0.1:5432\", or the name of an [upstream.NAME]",
        ),
        (
            "listen = [\"127.0.0.1:1\"]\nupstream = \"tcp://a:1\"\ntls = \"terminate\"",
            "tcp[0].tls: no certificate: write certificates = [{ chain = \"FILE\", key = \"FILE\" }]",
        ),
        (
            "listen = [\"127.0.0.1:1\"]\nupstream = \"tcp://a:1\"\ntls = \"none\"\nnames = [\"a\"]",
            "tcp[0].names: has no effect with tls = \"none\": without TLS, a connection has no server name",
        ),
        (
            "listen = [\"127.0.0.1:1\"]\nupstream = \"tcp://a\"",
            "tcp[0].upstream: \"tcp://a\" is not a server: it has to name a port, such as \"http://127.0.0.1:8080\", \
             \"https://app.internal\", \"h2c://[::1]:50051\" or \"unix:/run/app.sock\"",
        ),
        (
            "listen = [\"127.0.0.1:1\"]\nupstream = \"http://a\"",
            "tcp[0].upstream: http://a is for requests: a server of [[tcp]] is written as \"tcp://127.0.0.1:5432\", or with tls:// \
             or tcp+unix:",
        ),
        (
            "listen = [\"127.0.0.1:1\"]\nupstream = \"tcp://a:1\"\nalpn = [\"\"]",
            "tcp[0].alpn[0]: \"\" is no protocol of ALPN: write one as \"h2\" or \"postgresql\"",
        ),
    ] {
        refused(&with(&format!("[[tcp]]\n{keys}\n")), message);
    }
}

#[test]
fn servers_are_for_requests_or_for_bytes() {
    let group = |servers: &str, more: &str| format!("[upstream.db]\nservers = [{servers}]\n{more}");
    refused(
        &with(&format!(
            "[[host.route]]\npath = \"/\"\nupstream = \"db\"\n{}",
            group("\"tcp://127.0.0.1:1\"", "")
        )),
        "host[0].route[0].upstream: the servers of \"db\" get bytes of [[tcp]] instead of requests: write those of a route as \
         \"http://127.0.0.1:8080\"",
    );
    let table = "[[tcp]]\nlisten = [\"127.0.0.1:1\"]\nupstream = \"db\"\n";
    refused(
        &with(&format!("{table}{}", group("\"tcp://a:1\", \"http://b\"", ""))),
        "upstream.db.servers[1]: is not for the same connections as tcp://a:1: tcp:// and tls:// are for [[tcp]], all others for \
         routes; write a second upstream",
    );
    refused(
        &with(&format!("{table}{}", group("\"tcp://a:1\"", "health = { path = \"/\" }\n"))),
        "upstream.db.health.path: has no effect: servers of [[tcp]] are checked by connecting; write `interval` alone",
    );
    let text = with(&format!("{table}{}", group("\"tcp://a:1\"", "health = { interval = \"1s\" }\n")));
    let checks = accepted(&text).settings.upstreams[0].health.active.clone().expect("checks");
    assert_eq!(checks.interval, Duration::from_secs(1));
    assert!(
        accepted(&with(&format!("{table}{}", group("\"tcp://a:1\"", "")))).settings.upstreams[0]
            .health
            .active
            .is_none()
    );
}

#[test]
fn a_listener_has_one_destination_for_other_names() {
    let pass = |keys: &str| {
        format!("[[tcp]]\nlisten = [\"127.0.0.1:5432\"]\nupstream = \"tcp://127.0.0.1:1\"\n{keys}\n")
    };
    let all = pass("tls = \"passthrough\"");
    refused(
        &with(&(all.clone() + &all)),
        "tcp[1].names: tcp[0].names is \"*\" already; a client gets one of the two",
    );
    accepted(&with(&(all + &pass("names = [\"a.test\"]"))));
}
