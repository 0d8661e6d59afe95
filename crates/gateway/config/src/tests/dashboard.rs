//! `[dashboard]`: who may look.

use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef\n";

/// What `brisk check` says of a dashboard with these keys, where `token` is a file of its owner alone.
fn dashboard(keys: &str) -> Result<Resolved, String> {
    let (folder, ca) = (folder(), TestCa::new());
    let leaf = ca.server(&["localhost"]).issue();
    for (from, to) in [(&leaf.chain, "own.pem"), (&leaf.key, "own.key"), (&ca.root_file(), "ca.pem")] {
        fs::copy(from, folder.path().join(to)).expect("a copy");
    }
    for (name, mode) in [("token", 0o600), ("open", 0o644)] {
        let file = folder.path().join(name);
        fs::write(&file, TOKEN).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("its owner's");
    }
    checked(folder.path(), &format!("{LISTENER}{HOST}[dashboard]\n{keys}\n"))
}

const OWN: &str = "certificate = { chain = \"own.pem\", key = \"own.key\" }\n";

#[test]
fn it_is_on_loopback_unless_another_address_is_written_and_off_unless_it_is_written_at_all() {
    let settings = dashboard("").expect("right").settings.dashboard.expect("a dashboard");
    assert_eq!(settings.listen, "127.0.0.1:8440".parse().expect("an address"));
    assert!(settings.is_local() && !settings.or_any_port && settings.token.is_none());
    assert!(accepted(&format!("{LISTENER}{HOST}")).settings.dashboard.is_none());
}

#[test]
fn from_elsewhere_clients_have_to_show_who_they_are() {
    let expected = "brisk.toml:6:10: dashboard.listen: 0.0.0.0:8440 can be reached from elsewhere, and anyone could look: \
                    write token = \"dashboard.token\", a file made with `(umask 077; openssl rand -hex 32 > \
                    dashboard.token)`, or certificate and client_ca, so that browsers show a certificate";
    assert_eq!(dashboard("listen = \"0.0.0.0:8440\"").expect_err("open"), expected);
    // A certificate of its own says nothing about who looks.
    assert_eq!(dashboard(&format!("listen = \"0.0.0.0:8440\"\n{OWN}")).expect_err("open"), expected);
    let open = "listen = \"0.0.0.0:8440\"\n";
    let warnings = |keys: &str| dashboard(&format!("{open}{keys}")).expect(keys).warnings;
    assert_eq!(
        warnings("token = \"token\""),
        [
            "[dashboard]: 0.0.0.0:8440 can be reached from elsewhere, and the token crosses the network in the clear: write \
          certificate = { chain = \"dashboard.pem\", key = \"dashboard.key\" }"
        ]
    );
    assert!(warnings(&format!("token = \"token\"\n{OWN}")).is_empty());
    assert!(warnings(&format!("client_ca = \"ca.pem\"\n{OWN}")).is_empty());
}

#[test]
fn what_is_wrong_with_it_is_said() {
    for (keys, message) in [
        (
            "token = \"open\"",
            "6:9: dashboard.token: open: others than its owner may read or change it (its mode is 0644): `chmod 600 open`",
        ),
        (
            "token = \"none\"",
            "6:9: dashboard.token: cannot read none: No such file or directory (os error 2)",
        ),
        (
            "client_ca = \"ca.pem\"",
            "6:13: dashboard.client_ca: needs the dashboard's own certificate: write certificate = { chain = \
             \"dashboard.pem\", key = \"dashboard.key\" }",
        ),
        (
            "names = [\"https://dash.example\"]",
            "6:10: dashboard.names[0]: \"https://dash.example\" is no name of a host: write it without scheme and port, as \
             \"dash.example.com\"",
        ),
        (
            "listen = \"127.0.0.1:443\"",
            "6:10: dashboard.listen: 127.0.0.1:443 is taken by server.https[0] already",
        ),
    ] {
        assert_eq!(dashboard(keys).expect_err(keys), format!("brisk.toml:{message}"));
    }
}
