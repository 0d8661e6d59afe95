//! `[keyserver.NAME]` of a gateway, and the file of a key server.

use super::*;
use crate::keyserver;

/// A folder with certificates: `a.pem`, `a.key` and `ca.pem`.
fn files() -> TempDir {
    let (folder, ca) = (folder(), TestCa::new());
    let leaf = ca.server(&["localhost"]).issue();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("written");
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o600)).expect("a mode");
    };
    write("a.pem", &leaf.chain_pem);
    write("a.key", &leaf.key_pem);
    write("ca.pem", &ca.root_pem());
    folder
}

const GATEWAY: &str = "[server]\nhttps = [\"127.0.0.1:443\"]\nunknown_host = \"refuse\"\n";
const SET: &str = "[keyserver.main]\nservers = [\"10.0.0.5:8444\"]\nca = \"ca.pem\"\ncertificate = { chain = \"a.pem\", key = \"a.key\" }\n";
const REMOTE: &str =
    "[[host]]\nnames = [\"localhost\"]\ncertificates = [{ chain = \"a.pem\", key = \"keyserver:main\" }]\n";

#[track_caller]
fn gateway_refused(text: &str, expected: &str) {
    let folder = files();
    let message = checked(folder.path(), text).expect_err(text);
    assert_eq!(message, expected, "\nin:\n{text}");
}

#[test]
fn a_key_on_a_key_server_needs_no_file() {
    let folder = files();
    let resolved = checked(folder.path(), &format!("{GATEWAY}{SET}{REMOTE}")).expect("right");
    let [engine] = &resolved.remote[..] else { panic!("one set of key servers") };
    let settings = engine.settings();
    assert_eq!((settings.name.as_str(), settings.servers.len(), settings.connections.get()), ("main", 1, 1));
    assert_eq!((settings.deadline, settings.hedge), (Duration::from_secs(1), Duration::from_millis(250)));
    assert!(resolved.settings.keystore.is_empty() && resolved.warnings.is_empty(), "{:?}", resolved.warnings);
    assert!(engine.trouble().expect("not connected").contains("10.0.0.5:8444: not connected yet"));
    let more =
        "deadline = \"2s\"\nhedge = \"100ms\"\nconnections = 4\nqueue = 10\nserver_name = \"keys.test\"\n";
    let resolved = checked(folder.path(), &format!("{GATEWAY}{SET}{more}{REMOTE}")).expect("right");
    let settings = resolved.remote[0].settings();
    assert_eq!((settings.deadline, settings.hedge), (Duration::from_secs(2), Duration::from_millis(100)));
    assert_eq!((settings.connections.get(), settings.queue.get()), (4, 10));
    assert_eq!(settings.server_name.as_deref(), Some("keys.test"));
}

#[test]
fn wrong_key_servers_are_one_line_each() {
    gateway_refused(
        &format!("{GATEWAY}{SET}{}", REMOTE.replace("keyserver:main", "keyserver:mian")),
        "brisk.toml:10:42: host[0].certificates[0].key: \"mian\" is not known here; did you mean `main`?",
    );
    gateway_refused(
        &format!("{GATEWAY}{}{REMOTE}", SET.replace("10.0.0.5:8444", "10.0.0.5")),
        "brisk.toml:5:12: keyserver.main.servers[0]: \"10.0.0.5\" is not an address of a key server: write host and port, as \
         \"10.0.0.5:8444\" or \"keys.internal:8444\"",
    );
    gateway_refused(
        &format!("{GATEWAY}{}{REMOTE}", SET.replace("ca = \"ca.pem\"\n", "")),
        "brisk.toml:4:1: keyserver.main: needs `ca`, the file with the authority of the key servers' certificates",
    );
    gateway_refused(
        &format!("{GATEWAY}[keyserver.main]\nservers = [\"10.0.0.5:8444\"]\nca = \"ca.pem\"\n{REMOTE}"),
        "brisk.toml:4:1: keyserver.main: needs `certificate`, the client certificate for the key servers, as certificate = \
         { chain = \"FILE\", key = \"FILE\" }",
    );
    gateway_refused(
        &format!("{GATEWAY}{SET}hedge = \"2s\"\n{REMOTE}"),
        "brisk.toml:8:9: keyserver.main.hedge: is longer than the deadline of 1s",
    );
    gateway_refused(
        &format!("{GATEWAY}{SET}deadline = \"1m\"\n{REMOTE}"),
        "brisk.toml:8:12: keyserver.main.deadline: 1m is out of range: write 10ms to 4s",
    );
    gateway_refused(
        &format!("{GATEWAY}{}", REMOTE.replace("\"keyserver:main\"", "\"a.key\", fallback_key = \"a.key\"")),
        "brisk.toml:6:66: host[0].certificates[0].fallback_key: has no effect: it is for key = \"keyserver:NAME\"",
    );
}

#[test]
fn ml_dsa_keys_are_neither_on_key_servers_nor_in_the_key_process() {
    let folder = files();
    let leaf = TestCa::new().server(&["localhost"]).key(LeafKey::MlDsa44).issue();
    fs::write(folder.path().join("a.pem"), &leaf.chain_pem).expect("written");
    fs::write(folder.path().join("ml.key"), &leaf.key_pem).expect("written");
    let message = "host[0].certificates[0].key: an ML-DSA key can be neither on key servers nor in the process of \
                   keys.isolate: its signatures are too long for their protocol";
    let identity = "{ chain = \"b.pem\", key = \"b.key\" }";
    let other = TestCa::new().client("gateway").issue();
    fs::write(folder.path().join("b.pem"), &other.chain_pem).expect("written");
    fs::write(folder.path().join("b.key"), &other.key_pem).expect("written");
    let set = SET.replace("{ chain = \"a.pem\", key = \"a.key\" }", identity);
    let refused = checked(folder.path(), &format!("{GATEWAY}{set}{REMOTE}")).expect_err("too long");
    assert_eq!(refused, format!("brisk.toml:10:42: {message}"));
    let local = REMOTE.replace("keyserver:main", "ml.key");
    let refused =
        checked(folder.path(), &format!("keys.isolate = true\n{GATEWAY}{local}")).expect_err("too long");
    assert_eq!(refused, format!("brisk.toml:7:42: {message}"));
    checked(folder.path(), &format!("{GATEWAY}{local}")).expect("right");
}

#[test]
fn a_set_that_no_certificate_names_is_a_warning() {
    let folder = files();
    let host = "[[host]]\nnames = [\"localhost\"]\n";
    let resolved = checked(folder.path(), &format!("{GATEWAY}{SET}{host}")).expect("right");
    assert_eq!(resolved.warnings, ["[keyserver.main]: no certificate has key = \"keyserver:main\""]);
}

const SERVER: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\ncertificate = { chain = \"a.pem\", key = \"a.key\" }\n\
                      client_ca = \"ca.pem\"\nkey_folder = \"keys\"\n";

/// What is said of the file of a key server, in a folder with one key, `keys/site.key`.
fn server(text: &str) -> Result<ResolvedKeyServer, String> {
    let folder = files();
    fs::create_dir(folder.path().join("keys")).expect("a folder");
    fs::copy(folder.path().join("a.key"), folder.path().join("keys/site.key")).expect("a key");
    fs::write(folder.path().join("keys/README"), "no key").expect("written");
    let file = folder.path().join("keyserver.toml");
    fs::write(&file, text).expect("written");
    keyserver(&file, &Running::default())
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

#[test]
fn the_file_of_a_key_server_is_read() {
    let resolved =
        server(&format!("{SERVER}[client.one]\nkeys = [\"site.key\"]\n[client.two]\n")).expect("right");
    assert_eq!(
        (resolved.settings.keystore.len(), resolved.warnings.len()),
        (1, 0),
        "{:?}",
        resolved.warnings
    );
    let key = resolved.settings.keystore.ids().next().expect("a key");
    for (name, known) in [("one", true), ("two", true), ("three", false)] {
        assert_eq!(resolved.settings.policy.client(name).is_some_and(|client| client.may_use(key)), known);
    }
    // The folder, its key, the certificate and its key, the authorities, and the file itself.
    assert_eq!(resolved.settings.server.files.len(), 6);
}

#[test]
fn a_key_server_has_a_sandbox_unless_it_is_off() {
    let server = |sandbox: &str| server(&format!("{SERVER}{sandbox}[client.one]\n")).expect("right").sandbox;
    let rights = server("");
    assert!(rights.is_on && rights.user.is_none() && rights.hardware.is_empty() && !rights.runs_programs);
    assert!(!server("sandbox = \"off\"\n").is_on);
}

/// A link to a missing key was skipped without a word, while all other keys were used.
#[test]
fn a_key_that_cannot_be_examined_is_an_error() {
    let folder = files();
    let keys = folder.path().join("keys");
    fs::create_dir_all(keys.join("folder.key")).expect("a folder, which is no key");
    fs::copy(folder.path().join("a.key"), keys.join("site.key")).expect("a key");
    std::os::unix::fs::symlink("../gone.key", keys.join("link.key")).expect("a link");
    let file = folder.path().join("keyserver.toml");
    fs::write(&file, format!("{SERVER}[client.one]\n")).expect("written");
    let message = keyserver(&file, &Running::default()).expect_err("a missing key").to_string();
    assert!(message.contains("link.key: No such file or directory"), "{message}");
    assert!(!message.contains("folder.key"), "{message}");
}

#[test]
fn a_wrong_file_of_a_key_server_is_refused_line_by_line() {
    for (text, expected) in [
        (
            SERVER.to_owned(),
            "keyserver.toml: client: no client: write [client.NAME], with the common name of a gateway's certificate",
        ),
        (
            format!("{SERVER}[client.one]\nkeys = [\"sit.key\"]\n"),
            "keyserver.toml:7:9: client.one.keys[0]: \"sit.key\" is not known here; did you mean `site.key`?",
        ),
        (
            format!("{SERVER}[client.one]\noperations = [\"tls1.1\"]\n"),
            "keyserver.toml:7:15: client.one.operations[0]: \"tls1.1\" is not known here; did you mean `tls1.2`?",
        ),
        (
            format!("{}[client.one]\n", SERVER.replace("\"keys\"", "\"kesy\"")),
            "keyserver.toml:5:14: server.key_folder: cannot read the folder kesy: No such file or directory (os error 2)",
        ),
        (
            format!("{}[client.one]\n", SERVER.replace("key_folder = \"keys\"\n", "")),
            "keyserver.toml:1:1: server.key_folder: is missing: write key_folder = \"keys\", a folder with private keys, each a \
             file *.key or *.pem",
        ),
        (
            format!("{}[client.one]\n", SERVER.replace("client_ca = \"ca.pem\"\n", "")),
            "keyserver.toml:1:1: server.client_ca: is missing: write client_ca = \"ca.pem\", the authority of the gateways' \
             certificates",
        ),
        (
            format!("{SERVER}operations = 0\n[client.one]\n"),
            "keyserver.toml:6:14: server.operations: 0 is out of range: write 1 to 65535",
        ),
    ] {
        assert_eq!(server(&text).expect_err(&text), expected, "\nin:\n{text}");
    }
}
