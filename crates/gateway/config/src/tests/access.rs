//! Access control of hosts and routes.

use brisk_answer::settings::EarlyDataPolicy;

use super::*;

/// A host with `keys`, and a route with `route`.
fn with(keys: &str, route: &str) -> String {
    format!("{LISTENER}{HOST}{keys}[[host.route]]\npath = \"/\"\nrespond = {{}}\n{route}")
}

#[test]
fn a_route_restricts_networks_in_place_of_its_host() {
    let settings = accepted(&with("allow = [\"10.0.0.0/8\"]\ndeny = [\"10.1.0.0/16\"]\n", "deny = []\n"));
    let host = &settings.settings.service.hosts[0];
    let of_host = host.networks.as_ref().expect("networks of the host");
    assert!(of_host.permits([10, 2, 0, 1].into()) && !of_host.permits([10, 1, 0, 1].into()));
    assert!(host.routes[0].access.networks.as_ref().is_some_and(|networks| networks.is_open()));
    let none = accepted(&with("", "")).settings.service.hosts[0].clone();
    assert!(none.networks.is_none() && none.routes[0].access.networks.is_none());
}

#[test]
fn wrong_lists_of_networks_are_refused() {
    for (route, expected) in [
        (
            "allow = []\n",
            "brisk.toml:8:9: host[0].route[0].allow: no network: write at least one; or deny = [] for all clients, \
             deny = [\"0.0.0.0/0\", \"::/0\"] for none",
        ),
        (
            "allow = [\"10.0.0.0/8\"]\ndeny = [\"10.1.2.3/8\"]\n",
            "brisk.toml:9:8: host[0].route[0].deny: 10.0.0.0/8 is in `allow` already: keep one of the two",
        ),
        (
            "deny = [\"::ffff:10.0.0.0/104\"]\n",
            "brisk.toml:8:9: host[0].route[0].deny[0]: \"::ffff:10.0.0.0/104\" is an IPv4 network: write \"10.0.0.0/8\"",
        ),
        (
            "deny = [\"all\"]\n",
            "brisk.toml:8:9: host[0].route[0].deny[0]: \"all\" is not a network: write one as \"10.0.0.0/8\", \
             \"2001:db8::/32\" or \"192.0.2.1\"",
        ),
    ] {
        refused(&with("", route), expected);
    }
}

#[test]
fn restrictions_by_network_exclude_early_data() {
    const FAULT: &str = "early_data: not with `allow` or `deny`: the address of a client is not verified before the end of a \
                         handshake over QUIC";
    let early = "early_data = \"safe\"\n";
    let deny = "deny = [\"10.0.0.0/8\"]\n";
    refused(&with(deny, early), &format!("brisk.toml:9:14: host[0].route[0].{FAULT}"));
    refused(&with("", &format!("{deny}{early}")), &format!("brisk.toml:9:14: host[0].route[0].{FAULT}"));
    refused(&with(&format!("{deny}{early}"), ""), &format!("brisk.toml:6:14: host[0].{FAULT}"));
    let policy = |text: &str| accepted(text).settings.service.hosts[0].routes[0].early_data.clone();
    assert_eq!(policy(&with(early, deny)), EarlyDataPolicy::Hold);
    assert_eq!(policy(&with(early, "deny = []\n")), EarlyDataPolicy::Safe);
}

#[test]
fn a_route_for_owners_of_certificates_keeps_them_and_needs_authorities() {
    let ca = TestCa::new();
    let folder = folder();
    fs::write(folder.path().join("clients.pem"), ca.root_pem()).expect("written");
    let host = "client_certificates = { mode = \"optional\", ca = \"clients.pem\" }\n";
    let keeps = |route: &str| {
        let settings = checked(folder.path(), &with(host, route)).expect("a right file").settings;
        settings.service.hosts[0].tls.demands.keeps_certificates()
    };
    assert!(keeps("client_certificate = {}\n") && !keeps(""));
    refused(
        &with("", "client_certificate = { names = [\"alice\"] }\n"),
        "brisk.toml:8:22: host[0].route[0].client_certificate: no client has one: write client_certificates = { mode = \
         \"optional\", ca = \"FILE\" } for the host",
    );
    for (rule, expected) in [
        (
            "names = []",
            "brisk.toml:9:32: host[0].route[0].client_certificate.names: empty: write at least one; client_certificate = {} \
             permits every verified certificate",
        ),
        (
            "fingerprints = [\"ab\"]",
            "brisk.toml:9:40: host[0].route[0].client_certificate.fingerprints[0]: \"ab\": a fingerprint has 64 hexadecimal \
             digits, as in the output of `openssl x509 -noout -fingerprint -sha256`",
        ),
    ] {
        let text = with(host, &format!("client_certificate = {{ {rule} }}\n"));
        assert_eq!(checked(folder.path(), &text).expect_err(rule), expected);
    }
}

const USERS: &str = "alice:$apr1$8charsal$xES.S6d4oPTiVAh2XwVyp/\n";

/// The messages of `brisk check` about a route with `keys` in `basic_auth`, and about the file with these users.
fn with_users(users: &str, keys: &str) -> Result<Resolved, String> {
    let folder = folder();
    fs::write(folder.path().join("users"), users).expect("written");
    fs::set_permissions(folder.path().join("users"), fs::Permissions::from_mode(0o640)).expect("an own file");
    checked(folder.path(), &with("", &format!("basic_auth = {{ file = \"users\"{keys} }}\n")))
}

#[test]
fn users_are_read_watched_and_never_served() {
    let resolved = with_users(USERS, ", realm = \"the \\\"inside\\\"\"").expect("users");
    assert_eq!(resolved.warnings, [""; 0]);
    let route = &resolved.settings.service.hosts[0].routes[0];
    let basic_auth = route.access.basic_auth.as_ref().expect("a file");
    assert_eq!(basic_auth.challenge, "Basic realm=\"the \\\"inside\\\"\", charset=\"UTF-8\"");
    assert!(!basic_auth.forwards);
    assert!(resolved.settings.server.files.iter().any(|file| file.ends_with("users")));
    let empty = with_users("# none\n", "").expect("a file without users");
    let warning = empty.warnings.join("\n");
    assert!(warning.contains("so no client may use the route; `htpasswd -B "), "{warning}");
    let folder = folder();
    fs::create_dir(folder.path().join("www")).expect("created");
    fs::write(folder.path().join("www/users"), USERS).expect("written");
    let text = format!(
        "{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nstatic = \"www\"\nbasic_auth = {{ file = \"www/users\" }}\n"
    );
    let message = checked(folder.path(), &text).expect_err("a served file with users");
    assert!(message.contains("www/users"), "{message}");
}

#[test]
fn wrong_files_of_users_are_refused_with_their_lines() {
    let at = "brisk.toml:8:23: host[0].route[0].basic_auth.file: ";
    for (users, expected) in [
        ("alice\n", format!("{at}users: line 1: no colon: write NAME:HASH, as `htpasswd` does")),
        (
            "# users\nalice:secret\nbob:$2y$17$C4ZddzkBF/vttCyWS1xO/OIl9/DfdpmWyqmg3nHE9AkEPs3beQBlC\n",
            format!(
                "{at}users: line 2: the scheme of the hash is unknown or too weak; known here: bcrypt ($2y$), Argon2id \
                 ($argon2id$), SHA-crypt ($5$, $6$) and apr1 ($apr1$). `htpasswd -B FILE NAME` writes bcrypt\n{at}users: line 3: \
                 the cost of the hash is too high: at most 16 for bcrypt"
            ),
        ),
    ] {
        assert_eq!(with_users(users, "").expect_err(users), expected);
    }
    refused(
        &with("", "basic_auth = { file = \"users\" }\n"),
        &format!("{at}cannot read users: No such file or directory (os error 2)"),
    );
    for (keys, expected) in [
        (
            ", realm = \"\\u00fc\"",
            "brisk.toml:8:40: host[0].route[0].basic_auth.realm: \"\u{fc}\" is no realm: write printable ASCII characters",
        ),
        (
            ", forward = true",
            "brisk.toml:8:42: host[0].route[0].basic_auth.forward: has no effect without `upstream`",
        ),
    ] {
        assert_eq!(with_users(USERS, keys).expect_err(keys), expected);
    }
}

#[test]
fn satisfy_needs_two_restrictions() {
    let fault = "host[0].route[0].satisfy: has no effect: write two of `allow` or `deny`, `client_certificate`, `basic_auth` and `jwt`";
    refused(&with("", "deny = [\"10.0.0.0/8\"]\nsatisfy = \"any\"\n"), &format!("brisk.toml:9:11: {fault}"));
    let denying = "deny = [\"10.0.0.0/8\"]\n";
    for (satisfy, is_any) in [("satisfy = \"any\"\n", true), ("satisfy = \"all\"\n", false), ("", false)] {
        let folder = folder();
        fs::write(folder.path().join("users"), USERS).expect("written");
        let text = with(denying, &format!("basic_auth = {{ file = \"users\" }}\n{satisfy}"));
        let resolved = checked(folder.path(), &text).expect("networks of the host and users");
        let access = &resolved.settings.service.hosts[0].routes[0].access;
        assert_eq!(access.is_any_sufficient, is_any, "{satisfy}");
    }
}

#[test]
fn a_server_decides_about_requests_by_its_url_or_as_an_upstream() {
    let app = "[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    let upstreams = "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n[upstream.auth]\nservers = [\"http://127.0.0.1:2\"]\n";
    let text = |auth: &str| format!("{LISTENER}{HOST}{app}forward_auth = {{ {auth} }}\n{upstreams}");
    for (auth, group, target) in [
        (
            "url = \"http://127.0.0.1:9/verify?a=b\", copy_headers = [\"Remote-User\"]",
            "http://127.0.0.1:9",
            "/verify?a=b",
        ),
        ("url = \"https://auth.test\"", "https://auth.test", "/"),
        ("upstream = \"auth\", path = \"/verify\"", "auth", "/verify"),
        ("upstream = \"auth\", copy_to_response = [\"Set-Cookie\"]", "auth", "/"),
    ] {
        let resolved = accepted(&text(auth));
        let settings = &resolved.settings.service.hosts[0].routes[0];
        let forward_auth = settings.forward_auth.as_ref().expect("a server");
        assert_eq!((&*forward_auth.group, forward_auth.path.as_str()), (group, target));
        assert!(resolved.settings.upstreams.iter().any(|upstream| upstream.name == group), "{group}");
        assert_eq!(forward_auth.copied.len(), usize::from(auth.contains("copy_headers")));
        assert_eq!(forward_auth.returned.len(), usize::from(auth.contains("copy_to_response")));
    }
    for (auth, expected) in [
        (
            "path = \"/\"",
            "brisk.toml:8:16: host[0].route[0].forward_auth: nothing decides: write either `url`, or the name of an `upstream` \
             and a `path`",
        ),
        (
            "url = \"127.0.0.1:9\"",
            "brisk.toml:8:24: host[0].route[0].forward_auth.url: \"127.0.0.1:9\" is not the URL of a server: write one as \
             \"http://127.0.0.1:9091/verify\"",
        ),
        (
            "upstream = \"ath\"",
            "brisk.toml:8:29: host[0].route[0].forward_auth.upstream: \"ath\" is not known here; known here: `app`, `auth`",
        ),
        (
            "upstream = \"auth\", path = \"verify\"",
            "brisk.toml:8:44: host[0].route[0].forward_auth.path: \"verify\" is not a path: write one as \"/verify\"",
        ),
        (
            "url = \"http://127.0.0.1:9\", path = \"/verify\"",
            "brisk.toml:8:53: host[0].route[0].forward_auth.path: has no effect beside `url`, which contains it",
        ),
        (
            "upstream = \"auth\", copy_headers = [\"Host\", \"a b\"]",
            "brisk.toml:8:53: host[0].route[0].forward_auth.copy_headers[0]: \"Host\" describes a message, not a user\n\
             brisk.toml:8:61: host[0].route[0].forward_auth.copy_headers[1]: \"a b\" is not the name of a header: write one as \
             \"Remote-User\"",
        ),
        (
            "upstream = \"auth\", copy_to_response = [\"Upgrade\"]",
            "brisk.toml:8:57: host[0].route[0].forward_auth.copy_to_response[0]: \"Upgrade\" describes a message, not a user",
        ),
    ] {
        refused(&text(auth), expected);
    }
}

#[test]
fn headers_of_a_permission_may_have_another_name() {
    let text = |names: &str| {
        let keys = format!("upstream = \"auth\", copy_headers = {{ {names} }}");
        let app = "[[host.route]]\npath = \"/\"\nupstream = \"auth\"\n";
        let upstreams = "[upstream.auth]\nservers = [\"http://127.0.0.1:2\"]\n";
        format!("{LISTENER}{HOST}{app}forward_auth = {{ {keys} }}\n{upstreams}")
    };
    let resolved = accepted(&text("Remote-User = \"X-User\""));
    let settings = &resolved.settings.service.hosts[0].routes[0];
    let copied = &settings.forward_auth.as_ref().expect("a server").copied;
    assert_eq!((copied[0].name.as_str(), copied[0].source.as_str()), ("remote-user", "x-user"));
    refused(
        &text("Host = \"X-User\""),
        "brisk.toml:8:61: host[0].route[0].forward_auth.copy_headers.Host: \"Host\" describes a message, not a user",
    );
}

#[test]
fn headers_for_an_upstream_need_one() {
    refused(
        &with("", "forward_auth = { url = \"http://127.0.0.1:9\", copy_headers = [\"a\"] }\n"),
        "brisk.toml:8:61: host[0].route[0].forward_auth.copy_headers: has no effect without `upstream` of the route",
    );
}

/// The path of a JSON Web Key Set, and the result for a route with `jwt`.
fn with_tokens(route: &str, keys: &str) -> Result<Resolved, String> {
    let folder = folder();
    let set = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"0mBRIEMDqyMWIScAUlUGDShYbV3p9se-xBewdIy1New"},
        {"kty":"oct","k":"c2VjcmV0"}]}"#;
    fs::write(folder.path().join("keys.json"), set).expect("written");
    fs::write(folder.path().join("users"), USERS).expect("written");
    checked(folder.path(), &with("", &format!("{route}jwt = {{ {keys} }}\n")))
}

#[test]
fn tokens_have_keys_and_rules() {
    let resolved = with_tokens(
        "",
        "jwks_file = \"keys.json\", issuer = \"a\", audience = [\"b\"], algorithms = [\"EdDSA\"]",
    );
    let resolved = resolved.expect("a key");
    assert!(
        resolved.settings.service.hosts[0].routes[0]
            .access
            .tokens
            .as_ref()
            .is_some_and(|tokens| tokens.forwards)
    );
    assert_eq!(resolved.settings.service.token_keys().len(), 1);
    assert!(
        resolved.warnings.iter().any(|warning| warning.contains("keys.json is not used: keys[1]: a secret"))
    );
    for keys in
        ["jwks_url = \"https://id.example/keys\"", "jwks_url = \"http://127.0.0.1:1/keys\", leeway = \"0s\""]
    {
        assert!(with_tokens("", keys).is_ok(), "{keys}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn wrong_rules_for_tokens_are_refused() {
    for (route, keys, expected) in [
        ("", "", "jwt: no key verifies the tokens: write one of `jwks_url`, `jwks_file`, `key_file`"),
        (
            "",
            "jwks_file = \"keys.json\", key_file = \"key.pem\"",
            "jwt: the keys come from one place: keep one of `jwks_url`, `jwks_file`, `key_file`",
        ),
        (
            "",
            "key_file = \"users\"",
            "users: no public key in PEM, which begins with -----BEGIN PUBLIC KEY-----",
        ),
        ("", "jwks_file = \"users\"", "users: no JSON Web Key Set, which is {\"keys\": [...]}"),
        (
            "",
            "jwks_url = \"http://id.example/keys\"",
            "jwt.jwks_url: \"http://id.example/keys\": keys come over https, so that no attacker replaces them on the way",
        ),
        (
            "",
            "jwks_url = \"id.example\"",
            "jwt.jwks_url: \"id.example\" is not a URL: write one as \"https://id.example.com/jwks.json\"",
        ),
        ("", "jwks_file = \"keys.json\", ca = \"users\"", "jwt.ca: has no effect without `jwks_url`"),
        ("", "jwks_url = \"https://a.example/\", ca = \"none\"", "jwt.ca: there is no file"),
        (
            "",
            "jwks_file = \"keys.json\", issuer = []",
            "jwt.issuer: empty: write at least one text, or omit the key",
        ),
        (
            "",
            "jwks_file = \"keys.json\", algorithms = [\"none\"]",
            "jwt.algorithms[0]: \"none\" is not accepted: write some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, \
             EdDSA",
        ),
        (
            "",
            "jwks_file = \"keys.json\", algorithms = [\"EdDSA\", \"HS256\"]",
            "jwt.algorithms[1]: \"HS256\" shares its secret with the issuer: write some of",
        ),
        (
            "",
            "jwks_file = \"keys.json\", leeway = \"1h\"",
            "jwt.leeway: \"1h\" is too long: write \"0s\" to \"10m\"",
        ),
        (
            "",
            "jwks_file = \"keys.json\", claims_to_headers = { X-User = \"sub\" }",
            "jwt.claims_to_headers: has no effect without `upstream`",
        ),
        ("", "jwks_file = \"keys.json\", forward = false", "jwt.forward: has no effect without `upstream`"),
        (
            "",
            "jwks_file = \"keys.json\", cookie = \"a b\"",
            "jwt.cookie: not the name of a cookie: write one as \"session\"",
        ),
        (
            "basic_auth = { file = \"users\" }\n",
            "jwks_file = \"keys.json\"",
            "jwt: a request cannot have a password and a token in `Authorization`: write satisfy = \"any\", or the `cookie` with \
             the token",
        ),
    ] {
        let message = with_tokens(route, keys).expect_err(keys);
        assert!(message.contains(expected), "{message}");
    }
}
