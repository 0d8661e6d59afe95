//! Access control beside that of nginx.

use std::path::Path;

use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{command, run};
use rustls::HandshakeKind;

const BRISK: &str = r#"
deny = ["127.0.0.9"]

[[host.route]]
path = "/"
respond = {}

[[host.route]]
path = "/inside"
allow = ["127.0.0.0/8"]
deny = ["127.0.0.0/29"]
respond = {}

[[host.route]]
path = "/one"
allow = ["127.0.0.9"]
respond = {}
"#;

/// The first rule that matches decides in nginx, so the most specific is first.
const NGINX: &str = "
deny 127.0.0.9;
location /x { alias FOLDER/1k; }
location /inside { alias FOLDER/1k; deny 127.0.0.0/29; allow 127.0.0.0/8; deny all; }
location /one { alias FOLDER/1k; allow 127.0.0.9; deny all; }
";

/// Status of a request over HTTP/2 to a server on this machine.
fn status(site: &Site, options: &[&str], url: &str) -> String {
    let silent = ["--http2", "--output", "/dev/null", "--write-out", "%{http_code} %{http_version}"];
    site.curl_url(&[&silent[..], options].concat(), url).success()
}

#[test]
fn networks_have_the_effect_that_they_have_in_nginx() {
    let site = Site::with(BRISK);
    let nginx = Nginx::https_with(&site.ca.server(&["site.test"]).issue(), NGINX);
    let mut seen = Vec::new();
    for client in ["127.0.0.1", "127.0.0.8", "127.0.0.9"] {
        for path in ["/x", "/inside", "/one"] {
            let url = format!("https://site.test:{}{path}", nginx.address().port());
            let options = ["--interface", client];
            let expected = status(&site, &options, &url);
            assert_eq!(status(&site, &options, &site.url(path)), expected, "{client} {path}");
            seen.push(expected);
        }
    }
    let statuses = ["200 2", "403 2", "403 2", "200 2", "200 2", "403 2", "403 2", "200 2", "200 2"];
    assert_eq!(seen, statuses);
}

/// A host that takes client certificates of `clients`, with a route for some of them.
fn for_owners(clients: &TestCa, rule: &str) -> Site {
    let tables = format!(
        "client_certificates = {{ mode = \"optional\", ca = \"clients.pem\" }}\n\
         \n[[host.route]]\npath = \"/\"\nrespond = {{}}\n\
         \n[[host.route]]\npath = \"/owners\"\nclient_certificate = {rule}\nrespond = {{}}\n"
    );
    Site::custom("", &tables, |setup| setup.file("clients.pem", clients.root_pem()))
}

fn as_owner<'a>(leaf: Option<&'a Leaf>, options: &[&'a str]) -> Vec<&'a str> {
    let text = |path: &'a Path| path.to_str().expect("a path in ASCII");
    let files = leaf.map(|leaf| ["--cert", text(&leaf.chain), "--key", text(&leaf.key)]);
    files.iter().flatten().copied().chain(options.iter().copied()).collect()
}

#[test]
fn names_and_fingerprints_of_certificates_decide_about_a_route() {
    let ca = TestCa::new();
    let (alice, bob) = (ca.client("alice").issue(), ca.client("bob").issue());
    let options = ["x509", "-noout", "-fingerprint", "-sha256"];
    let text = run(command("openssl").args(options), bob.certificate_pem.as_bytes(), LIMIT).success();
    let fingerprint = text.trim().rsplit('=').next().expect("a fingerprint").to_owned();
    for (rule, [for_alice, for_bob]) in [
        ("{ names = [\"alice\"] }".to_owned(), ["200", "403"]),
        (format!("{{ names = [\"carol\"], fingerprints = [\"{fingerprint}\"] }}"), ["403", "200"]),
        ("{}".to_owned(), ["200", "200"]),
    ] {
        let site = for_owners(&ca, &rule);
        for (leaf, expected) in [(Some(&alice), for_alice), (Some(&bob), for_bob), (None, "403")] {
            for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
                let seen = |path| {
                    let options = as_owner(leaf, &[option]);
                    status(&site, &options, &site.url(path))
                };
                assert_eq!(seen("/owners"), format!("{expected} {version}"), "{rule}");
                assert_eq!(seen("/"), format!("200 {version}"), "{rule}");
            }
        }
        assert!(site.brisk.logged("\"client-certificate\"").contains("\"status\":403"));
    }
}

#[test]
fn a_resumed_session_has_the_certificate_of_its_first_handshake() {
    let ca = TestCa::new();
    let (alice, bob) = (ca.client("alice").issue(), ca.client("bob").issue());
    let site = for_owners(&ca, "{ names = [\"alice\"] }");
    for is_tls12 in [false, true] {
        for (leaf, expected) in [(&alice, 200), (&bob, 403)] {
            let client = site.client().identity(leaf);
            let client = if is_tls12 { client.tls12() } else { client };
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let mut connection = client.connect(site.brisk.https()).expect("a handshake");
                assert_eq!(connection.get(NAME, "/owners").status(), expected, "TLS 1.2: {is_tls12}");
                kinds.push(connection.tls().handshake_kind());
            }
            assert_eq!(kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
        }
    }
}

/// A file with users of every scheme that nginx has too, made by other programs. The password of each is its name twice.
fn users() -> (String, Vec<&'static str>) {
    let names = vec!["bcrypt", "apr1", "openssl-apr1", "sha256", "sha512"];
    let line = |name: &&str| {
        let password = name.repeat(2);
        let run = |program: &str, options: &[&str]| run(command(program).args(options), b"", LIMIT).success();
        let line = match *name {
            "bcrypt" => run("htpasswd", &["-nbBC", "4", name, &password]),
            "apr1" => run("htpasswd", &["-nbm", name, &password]),
            "openssl-apr1" => format!("{name}:{}", run("openssl", &["passwd", "-apr1", &password])),
            "sha256" => format!("{name}:{}", run("openssl", &["passwd", "-5", &password])),
            _ => format!("{name}:{}", run("openssl", &["passwd", "-6", &password])),
        };
        line.trim().to_owned() + "\n"
    };
    (names.iter().map(line).collect(), names)
}

#[test]
fn users_of_htpasswd_and_openssl_pass_as_in_nginx() {
    let (file, names) = users();
    let tables = "\n[[host.route]]\npath = \"/\"\nbasic_auth = { file = \"users\" }\nrespond = {}\n";
    let site = Site::custom("", tables, |setup| setup.file("users", &file));
    let path = site.brisk.folder().join("users");
    let directives = format!(
        "location /x {{ alias FOLDER/1k; auth_basic inside; auth_basic_user_file {}; }}",
        path.display()
    );
    let nginx = Nginx::https_with(&site.ca.server(&["site.test"]).issue(), &directives);
    let url = format!("https://site.test:{}/x", nginx.address().port());
    let mut seen = Vec::new();
    for name in names.into_iter().chain(["nobody"]) {
        let password = name.repeat(2);
        for wrong in ["", "x"] {
            let user = format!("{name}:{password}{wrong}");
            let options = ["--user", &user];
            let expected = status(&site, &options, &url);
            assert_eq!(status(&site, &options, &site.url("/x")), expected, "{user}");
            seen.push(expected);
        }
    }
    assert_eq!(seen, [["200 2", "401 2"].repeat(5), ["401 2"; 2].to_vec()].concat());
    assert_eq!(status(&site, &[], &site.url("/x")), status(&site, &[], &url));
}

#[test]
fn one_or_all_restrictions_are_required_as_in_nginx() {
    let users = run(command("htpasswd").args(["-nbBC", "4", "alice", "password"]), b"", LIMIT).success();
    let tables = ["any", "all"].map(|satisfy| {
        format!(
            "\n[[host.route]]\npath = \"/{satisfy}\"\nallow = [\"127.0.0.1\"]\nsatisfy = \"{satisfy}\"\n\
             basic_auth = {{ file = \"users\" }}\nrespond = {{}}\n"
        )
    });
    let site = Site::custom("", &tables.concat(), |setup| setup.file("users", &users));
    let path = site.brisk.folder().join("users");
    let locations = ["any", "all"].map(|satisfy| {
        format!(
            "location /{satisfy} {{ alias FOLDER/1k; allow 127.0.0.1; deny all; satisfy {satisfy}; auth_basic inside; \
             auth_basic_user_file {}; }}\n",
            path.display()
        )
    });
    let nginx = Nginx::https_with(&site.ca.server(&["site.test"]).issue(), &locations.concat());
    let mut seen = Vec::new();
    for satisfy in ["/any", "/all"] {
        for client in ["127.0.0.1", "127.0.0.2"] {
            for user in [None, Some("alice:password"), Some("alice:wrong")] {
                let user: Vec<_> = user.map(|user| ["--user", user]).into_iter().flatten().collect();
                let options = [&["--interface", client][..], &user].concat();
                let url = format!("https://site.test:{}{satisfy}", nginx.address().port());
                let expected = status(&site, &options, &url);
                assert_eq!(status(&site, &options, &site.url(satisfy)), expected, "{satisfy} {options:?}");
                seen.push(expected);
            }
        }
    }
    let any = ["200 2", "200 2", "200 2", "401 2", "200 2", "401 2"];
    let all = ["401 2", "200 2", "401 2", "403 2", "403 2", "403 2"];
    assert_eq!(seen, [any, all].concat());
}

#[test]
fn a_certificate_or_a_password_is_sufficient_if_the_operator_says_so() {
    let ca = TestCa::new();
    let (alice, bob) = (ca.client("alice").issue(), ca.client("bob").issue());
    let users = run(command("htpasswd").args(["-nbBC", "4", "carol", "password"]), b"", LIMIT).success();
    let tables = "client_certificates = { mode = \"optional\", ca = \"clients.pem\" }\n[[host.route]]\npath = \"/\"\n\
                  client_certificate = { names = [\"alice\"] }\nsatisfy = \"any\"\n\
                  basic_auth = { file = \"users\" }\nrespond = {}\n";
    let site =
        Site::custom("", tables, |setup| setup.file("clients.pem", ca.root_pem()).file("users", &users));
    let password = ["--user", "carol:password"];
    for (leaf, options, expected) in [
        (Some(&alice), &[][..], "200 2"),
        (Some(&bob), &[], "401 2"),
        (Some(&bob), &password, "200 2"),
        (None, &password, "200 2"),
        (None, &[], "401 2"),
    ] {
        assert_eq!(status(&site, &as_owner(leaf, options), &site.url("/")), expected, "{options:?}");
    }
}
