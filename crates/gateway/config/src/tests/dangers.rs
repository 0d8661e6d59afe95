//! Warnings about dangerous settings, and folders with secrets.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn warnings(text: &str) -> Vec<String> {
    accepted(text).warnings
}

fn warned(text: &str, parts: &[&str]) {
    let warnings = warnings(text);
    let found = warnings.iter().any(|warning| parts.iter().all(|part| warning.contains(part)));
    assert!(found, "{parts:?} is not in {warnings:?}");
}

#[test]
fn settings_that_believe_or_admit_everyone_are_warnings() {
    let with = |listener: &str, keys: &str| {
        format!("[server]\nunknown_host = \"default\"\nhttps = [\"{listener}\"]\n{keys}\n{HOST}")
    };
    let open = |keys: &str| with("0.0.0.0:8443", keys);
    for network in ["0.0.0.0/0", "::/0"] {
        let keys = format!("trusted_proxies = [\"10.0.0.0/8\", \"{network}\"]");
        warned(&open(&keys), &["server.trusted_proxies: ", network, "list your proxies alone"]);
        let keys = format!("proxy_protocol = [\"{network}\"]");
        warned(&open(&keys), &["server.proxy_protocol: ", "0.0.0.0:8443", "10.0.0.0/8"]);
    }
    warned(&open("proxy_protocol = true"), &["server.proxy_protocol: ", "0.0.0.0:8443"]);
    for address in ["0.0.0.0:9443", "[::]:9443", "1.1.1.1:9443"] {
        let keys = format!("[admin]\nlisten = \"{address}\"");
        warned(&open(&keys), &["admin.listen: ", address, "127.0.0.1:9443"]);
    }
    for fine in [
        with("127.0.0.1:8443", "proxy_protocol = true"),
        open("proxy_protocol = [\"10.0.0.0/8\"]"),
        open("trusted_proxies = [\"10.0.0.0/8\"]"),
        open("[admin]\nlisten = \"127.0.0.1:9443\""),
        open("[admin]\nlisten = \"10.0.0.1:9443\""),
    ] {
        let warnings = warnings(&fine);
        let keys = ["server.trusted_proxies", "server.proxy_protocol", "admin.listen"];
        assert!(!warnings.iter().any(|warning| keys.iter().any(|key| warning.contains(key))), "{warnings:?}");
    }
}

#[test]
fn decisions_over_plain_http_to_another_machine_are_a_warning() {
    let with = |url: &str| {
        format!("{LISTENER}{HOST}acme = true\non_demand = {{ names = [\"*.a.test\"], ask = \"{url}\" }}\n")
    };
    warned(&with("http://10.0.0.1/ask"), &["host[0].on_demand.ask: 10.0.0.1 ", "https://"]);
    for fine in
        ["http://127.0.0.1:8000/ask", "http://[::1]/ask", "http://localhost/ask", "https://a.test/ask"]
    {
        let warnings = warnings(&with(fine));
        assert!(!warnings.iter().any(|warning| warning.contains("on_demand.ask")), "{warnings:?}");
    }
}

#[test]
fn permissions_over_plain_http_from_another_machine_are_a_warning() {
    let with = |auth: &str, server: &str| {
        format!(
            "{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nupstream = \"app\"\nforward_auth = {{ {auth} }}\n\
             [upstream.app]\nservers = [\"http://10.0.0.1\"]\n[upstream.auth]\nservers = [\"https://a.test\", \"{server}\"]\n"
        )
    };
    let key = "host[0].route[0].forward_auth.";
    for url in ["http://10.0.0.1/verify?a", "HTTP://10.0.0.1", "h2c://10.0.0.1:1/"] {
        let text = with(&format!("url = \"{url}\""), "http://10.0.0.2");
        warned(&text, &[key, "url: 10.0.0.1 decides", "cookies", "https://"]);
    }
    let by_name = "upstream = \"auth\", path = \"/verify\"";
    warned(&with(by_name, "http://10.0.0.2:1"), &[key, "upstream: 10.0.0.2 decides"]);
    for (auth, server) in [
        ("url = \"https://10.0.0.1/verify\"", "http://10.0.0.2"),
        ("url = \"http://127.0.0.1:9091/verify\"", "http://10.0.0.2"),
        ("url = \"http://LOCALHOST/\"", "http://10.0.0.2"),
        (by_name, "http://[::1]:1"),
        (by_name, "unix:/run/auth.sock"),
    ] {
        let warnings = warnings(&with(auth, server));
        assert!(!warnings.iter().any(|warning| warning.contains("forward_auth")), "{warnings:?}");
    }
}

#[test]
fn folders_of_the_system_are_warnings() {
    for folder in ["/", "/etc", "/proc", "/sys", "/var"] {
        let text = format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nstatic = \"{folder}\"\n");
        warned(&text, &["host[0].route[0].static: ", &format!("read {folder} as a whole")]);
    }
}

#[test]
fn a_served_folder_must_not_contain_a_secret() {
    let (folder, ca) = (folder(), TestCa::new());
    let leaf = ca.server(&["localhost"]).issue();
    for inner in ["www", "www/keys", "www/.keys", "keys"] {
        fs::create_dir(folder.path().join(inner)).expect("a folder");
        fs::copy(&leaf.chain, folder.path().join(inner).join("a.pem")).expect("a copy");
        fs::copy(&leaf.key, folder.path().join(inner).join("a.key")).expect("a copy");
    }
    let text = |keys: &str, root: &str, server: &str| {
        format!(
            "{LISTENER}{server}{HOST}certificates = [{{ chain = \"{keys}/a.pem\", key = \"{keys}/a.key\" }}]\n\
             [[host.route]]\npath = \"/\"\nstatic = \"{root}\"\n"
        )
    };
    for (keys, root, server, secret) in [
        ("www", "www", "", "www/a.key"),
        ("www/keys", "www", "", "www/keys/a.key"),
        ("keys", ".", "", "keys/a.key"),
        ("keys", "www", "state_dir = \"www/keys\"\n", "www/keys"),
    ] {
        let message = checked(folder.path(), &text(keys, root, server)).expect_err("a secret is served");
        let parts = ["host[0].route[0].static: clients could request ", secret, "serve another folder"];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    for keys in ["keys", "www/.keys"] {
        checked(folder.path(), &text(keys, "www", "")).expect("no secret is served");
    }
}

/// The message of `brisk check` for a host that serves `root`, in a folder with `www`, `names/inner` and `state/inner`.
fn refusal(root: &str, server: &str, host: &str, tables: &str) -> Option<String> {
    let (folder, ca) = (folder(), TestCa::new());
    let leaf = ca.server(&["localhost"]).issue();
    for inner in ["keys", "www/names", "names/inner", "state/inner"] {
        fs::create_dir_all(folder.path().join(inner)).expect("a folder");
    }
    for inner in ["keys", "www"] {
        fs::copy(&leaf.chain, folder.path().join(inner).join("a.pem")).expect("a copy");
        fs::copy(&leaf.key, folder.path().join(inner).join("a.key")).expect("a copy");
        let token = folder.path().join(inner).join("token");
        fs::write(&token, "0123456789abcdef0123456789abcdef").expect("written");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("permissions");
    }
    let text = format!(
        "{LISTENER}{server}{HOST}certificates = [{{ chain = \"keys/a.pem\", key = \"keys/a.key\" }}]\n{host}\n\
         [[host.route]]\npath = \"/\"\nstatic = \"{root}\"\n{tables}"
    );
    checked(folder.path(), &text).err()
}

#[test]
fn served_folders_and_folders_of_keys_are_apart() {
    let (state, names) = ("state_dir = \"state\"\n", "certificate_folder = \"names\"");
    for (root, server, host, folder) in [
        ("www", "", "certificate_folder = \"www/names\"", "www/names"),
        ("names", "", names, "names"),
        ("names/inner", "", names, "names"),
        ("state/inner", state, "", "state"),
        ("www", "state_dir = \"www/new/state\"\n", "", "www/new/state"),
    ] {
        let message = refusal(root, server, host, "").expect(root);
        let parts = ["host[0].route[0].static: clients could request ", folder, "serve "];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    assert_eq!(refusal("www", state, names, ""), None);
}

#[test]
fn tokens_and_keys_of_the_dashboard_and_of_upstreams_are_not_served() {
    let tables = |folder: &str| {
        let certificate =
            format!("certificate = {{ chain = \"{folder}/a.pem\", key = \"{folder}/a.key\" }}\n");
        [
            (format!("[dashboard]\ntoken = \"{folder}/token\"\n"), "www/token"),
            (format!("[dashboard]\n{certificate}"), "www/a.key"),
            (format!("[upstream.app]\nservers = [\"https://127.0.0.1:1\"]\ntls.{certificate}"), "www/a.key"),
        ]
    };
    for (tables, secret) in tables("www") {
        let message = refusal("www", "", "", &tables).expect(secret);
        let expected = format!("host[0].route[0].static: clients could request {secret}, ");
        assert!(message.contains(&expected), "{message}");
    }
    for (tables, _) in tables("keys") {
        assert_eq!(refusal("www", "", "", &tables), None);
    }
}
