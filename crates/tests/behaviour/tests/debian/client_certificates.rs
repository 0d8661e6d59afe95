//! Client certificates: revocation and headers for upstreams; and brisk's own certificate for an upstream.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use brisk_behaviour::openssl::{ask, facts_of};
use brisk_behaviour::site::{NAME, Site, proxy_to, setup, upstream};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::{Crls, Leaf, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Finished, wait_until};

const HOUR: Duration = Duration::from_hours(1);
/// RFC 8446 section 6.2.
const REVOKED: &str = "SSL alert number 44";
const UNKNOWN_CA: &str = "SSL alert number 48";

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A host that takes the clients of `ca`, with further keys about them.
fn site(ca: &TestCa, keys: &str, tables: &str, lists: &Crls) -> Site {
    let tables =
        format!("client_certificates = {{ mode = \"optional\", ca = \"clients.pem\"{keys} }}\n{tables}");
    Site::custom("", &tables, |setup| {
        setup.file("clients.pem", ca.root_pem()).file("clients.crl", lists.pem())
    })
}

fn ask_as(site: &Site, leaf: &Leaf, options: &[&str]) -> Finished {
    let (chain, key) = (text(&leaf.chain), text(&leaf.key));
    let files = ["-servername", NAME, "-cert", &chain, "-cert_chain", &chain, "-key", &key];
    ask(&site.ca, &site.brisk, &[&files[..], options].concat())
}

#[test]
fn a_revoked_certificate_is_refused_with_its_alert_and_those_beside_it_are_not() {
    let ca = TestCa::new();
    let (alice, bob) = (ca.client("alice").issue(), ca.client("bob").issue());
    let site = site(&ca, ", crl = [\"clients.crl\"]", "", &ca.crls(&[&alice], HOUR));
    for version in ["-tls1_2", "-tls1_3"] {
        let refused = ask_as(&site, &alice, &[version]);
        assert!(refused.stderr.contains(REVOKED), "{version}: {}", refused.text());
        let subject = facts_of(&ask_as(&site, &bob, &[version]))["tls"]["client_subject"].clone();
        assert_eq!(subject, "CN=bob", "{version}");
    }
}

#[test]
fn a_certificate_revoked_later_loses_its_sessions_when_the_list_changes() {
    let ca = TestCa::new();
    let bob = ca.client("bob").issue();
    let site = site(&ca, ", crl = [\"clients.crl\"]", "", &ca.crls(&[], HOUR));
    let versions = ["-tls1_2", "-tls1_3"];
    let session = |version: &str| text(&site.brisk.folder().join(format!("session{version}")));
    for version in versions {
        let resumed = |option: &str| {
            let output = ask_as(&site, &bob, &[version, option, &session(version)]);
            facts_of(&output)["tls"]["resumption"].as_str().map(str::to_owned)
        };
        assert_eq!(resumed("-sess_out").as_deref(), Some("full"));
        assert_ne!(resumed("-sess_in").as_deref(), Some("full"), "{version}");
    }
    site.brisk.write("clients.crl", ca.crls(&[&bob], HOUR).pem());
    site.brisk.log_with("reloaded: ");
    for version in versions {
        let refused = ask_as(&site, &bob, &[version, "-sess_in", &session(version)]);
        assert!(refused.stderr.contains(REVOKED), "{version}: {}", refused.text());
    }
}

#[test]
fn an_expired_or_missing_list_refuses_unless_the_operator_is_lenient() {
    let ca = TestCa::new();
    let (alice, bob) = (ca.client("alice").issue(), ca.client("bob").issue());
    let expired = ca.expired_crls(&[&alice]);
    let missing = Crls { root_pem: String::new(), ..ca.crls(&[&alice], HOUR) };
    for lists in [&expired, &missing] {
        let strict = site(&ca, ", crl = [\"clients.crl\"]", "", lists);
        let refused = ask_as(&strict, &bob, &[]);
        assert!(refused.stderr.contains(UNKNOWN_CA), "{}", refused.text());
        let lenient = site(&ca, ", crl = [\"clients.crl\"], crl_mode = \"lenient\"", "", lists);
        assert_eq!(facts_of(&ask_as(&lenient, &bob, &[]))["tls"]["client_subject"], "CN=bob");
        let refused = ask_as(&lenient, &alice, &[]);
        assert!(refused.stderr.contains(REVOKED), "{}", refused.text());
    }
}

/// RFC 9440 section 2.1. What is between the lines of PEM is the base64 of the certificate in DER.
fn item(certificate_pem: &str) -> String {
    let lines = certificate_pem.lines().filter(|line| !line.starts_with("-----"));
    format!(":{}:", lines.collect::<String>())
}

fn seen(site: &Site, origin: &Origin, leaf: Option<&Leaf>, options: &[&str]) -> Message {
    let files = leaf.map(|leaf| [text(&leaf.chain), text(&leaf.key)]);
    let mut curl = vec!["--header", "Client-Cert: :Zm9yZ2Vk:", "--header", "Client-Cert-Chain: :Zm9yZ2Vk:"];
    if let Some([chain, key]) = &files {
        curl.extend(["--cert", chain, "--key", key]);
    }
    site.curl(&[&curl[..], options].concat(), "/").success();
    origin.last_request()
}

#[test]
fn upstreams_get_the_certificates_that_were_verified_and_never_a_forged_one() {
    let ca = TestCa::new();
    let alice = ca.client("alice").issue();
    let (own, above) = (item(&alice.certificate_pem), item(&ca.intermediate_pem()));
    for (forward, expected) in [
        ("", [None, None]),
        (", forward = \"certificate\"", [Some(&own), None]),
        (", forward = \"chain\"", [Some(&own), Some(&above)]),
    ] {
        let origin = Origin::fixed("seen");
        let site = site(&ca, forward, &proxy_to(&[&origin.url()]), &ca.crls(&[], HOUR));
        for http in ["--http1.1", "--http2"] {
            let request = seen(&site, &origin, Some(&alice), &[http]);
            let found = ["client-cert", "client-cert-chain"].map(|name| request.header(name));
            assert_eq!(found, expected.map(|value| value.map(String::as_str)), "{forward} {http}");
            let request = seen(&site, &origin, None, &[http]);
            assert_eq!(request.header("client-cert"), None, "{forward} {http}");
            assert_eq!(request.header("client-cert-chain"), None, "{forward} {http}");
        }
    }
}

#[test]
fn where_certificates_are_forwarded_not_even_a_trusted_proxy_names_others() {
    let ca = TestCa::new();
    let (alice, origin) = (ca.client("alice").issue(), Origin::fixed("seen"));
    let clients =
        "client_certificates = { mode = \"optional\", ca = \"clients.pem\", forward = \"certificate\" }\n";
    let tables = format!("{clients}{}", proxy_to(&[&origin.url()]));
    let site = Site::custom("server.trusted_proxies = [\"127.0.0.0/8\"]\n", &tables, |setup| {
        setup.file("clients.pem", ca.root_pem())
    });
    assert_eq!(seen(&site, &origin, None, &[]).header("client-cert"), None);
    let request = seen(&site, &origin, Some(&alice), &[]);
    assert_eq!(request.header("client-cert"), Some(item(&alice.certificate_pem).as_str()));
    assert_eq!(request.header("client-cert-chain"), None);
}

/// The status of an answer to `host` on this connection.
fn asked_for(connection: &mut TlsStream, host: &str) -> u16 {
    connection.get(host, "/").status()
}

/// The configuration of two hosts, both named in the certificate, with these keys.
fn two_hosts(leaf: &Leaf, keys: [&str; 2]) -> String {
    let [one, other] = ["one.test", "two.test"].map(|name| host(&[name], &[leaf]));
    format!("{}{one}{}{other}{}", base(""), keys[0], keys[1])
}

#[test]
fn a_connection_is_served_by_hosts_of_the_same_demands_only() {
    let (ca, clients) = (TestCa::new(), TestCa::new());
    let leaf = ca.server(&["one.test", "two.test"]).issue();
    let demanding =
        |more: &str| format!("client_certificates = {{ mode = \"optional\", ca = \"clients.pem\"{more} }}\n");
    let (plain, keeping) = (demanding(""), demanding(", forward = \"certificate\""));
    let same_in_other_words = "client_certificates = { ca = \"same.pem\", mode = \"optional\" }\n";
    let whole = demanding(", forward = \"chain\"");
    for (first, second, expected) in [
        ("", "", 200),
        ("", &*plain, 421),
        (&plain, "", 421),
        (&plain, same_in_other_words, 200),
        (&plain, &keeping, 421),
        (&keeping, &plain, 421),
        (&keeping, &whole, 200),
    ] {
        let config = two_hosts(&leaf, [first, second]);
        let setup = setup().file("clients.pem", clients.root_pem()).file("same.pem", clients.root_pem());
        let brisk = setup.config(&config).start();
        let client = TlsClient::new(&ca.root_file(), "one.test");
        let mut connection = client.connect(brisk.https()).expect("a handshake");
        assert_eq!(asked_for(&mut connection, "one.test"), 200, "{first} {second}");
        assert_eq!(asked_for(&mut connection, "two.test"), expected, "{first} {second}");
        assert_eq!(asked_for(&mut connection, "one.test"), 200, "{first} {second}");
    }
}

#[test]
fn a_connection_from_before_a_demand_is_not_served_after_it_and_new_revocation_lists_end_none() {
    let (ca, clients) = (TestCa::new(), TestCa::new());
    let leaf = ca.server(&["one.test", "two.test"]).issue();
    let clients_keys =
        "client_certificates = { mode = \"optional\", ca = \"clients.pem\", crl = [\"clients.crl\"] }\n";
    let setup =
        setup().file("clients.pem", clients.root_pem()).file("clients.crl", clients.crls(&[], HOUR).pem());
    let brisk = setup.config(&two_hosts(&leaf, ["", ""])).start();
    let connect = || TlsClient::new(&ca.root_file(), "one.test").connect(brisk.https()).expect("a handshake");
    let mut before = connect();
    assert_eq!(asked_for(&mut before, "one.test"), 200);
    brisk.write("brisk.toml", two_hosts(&leaf, [clients_keys, ""]));
    assert!(brisk.reload().contains("reloaded: "));
    let mut after = connect();
    assert_eq!([asked_for(&mut before, "one.test"), asked_for(&mut after, "one.test")], [421, 200]);
    let alice = clients.client("alice").issue();
    brisk.write("clients.crl", clients.crls(&[&alice], HOUR).pem());
    assert!(brisk.reload().contains("reloaded: "));
    assert_eq!(asked_for(&mut after, "one.test"), 200);
}

#[test]
fn an_upstream_that_demands_a_certificate_gets_it_and_a_new_one_when_the_files_change() {
    let (ca, strangers) = (TestCa::new(), TestCa::new());
    let demand = format!(
        "ssl_verify_client on;\nssl_verify_depth 2;\nssl_client_certificate {};",
        text(&ca.root_file())
    );
    let nginx = Nginx::https_with(&ca.server(&["localhost", "127.0.0.1"]).issue(), &demand);
    let (leaf, stranger) = (ca.client("brisk").issue(), strangers.client("mallory").issue());
    let tables = |certificate: &str| {
        let routes = proxy_to(&[&nginx.url()]);
        format!("{routes}timeouts.connect = \"2m\"\ntls.ca = {:?}\n{certificate}", text(&ca.root_file()))
    };
    // nginx's own answer to a client without a certificate.
    assert_eq!(Site::with(&tables("")).get("/1k").status(), 400);
    let certificate = "tls.certificate = { chain = \"up.pem\", key = \"up.key\" }\n";
    let site = Site::custom("", &tables(certificate), |setup| {
        setup.file("up.pem", &leaf.chain_pem).file("up.key", &leaf.key_pem)
    });
    assert_eq!(site.get("/1k").status(), 200);
    // nginx writes its log after its answer.
    wait_until("a certificate that nginx verified", || {
        nginx.requests().iter().any(|line| line.contains("SUCCESS")).then_some(())
    });
    site.brisk.write("up.key", &stranger.key_pem);
    site.brisk.write("up.pem", &stranger.chain_pem);
    assert!(site.brisk.reload().contains("reloaded: "));
    assert_eq!(site.get("/1k").status(), 400);
}

#[test]
fn links_in_a_page_for_one_certificate_are_no_hints_for_others() {
    let ca = TestCa::new();
    let (alice, bob) = (ca.client("alice").issue(), ca.client("bob").issue());
    let has_hints = |first: Option<&Leaf>, second: Option<&Leaf>| {
        let origin = Origin::answering(|_, stream| {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nLink: </a.css>; rel=preload; as=style\r\n";
            write!(stream, "{head}Content-Length: 4\r\n\r\npage")
        });
        let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_hints = true\n".to_owned();
        // Links are learned by each worker for itself.
        let tables = format!(
            "client_certificates = {{ mode = \"optional\", ca = \"clients.pem\" }}\n{}",
            route + &upstream(&[&origin.url()])
        );
        let site =
            Site::custom("server.workers = 1\n", &tables, |setup| setup.file("clients.pem", ca.root_pem()));
        let ask = |leaf: Option<&Leaf>| {
            let files = leaf.map(|leaf| [text(&leaf.chain), text(&leaf.key)]);
            let mut curl = vec!["--http2", "--include", "--header", "Accept: text/html"];
            if let Some([chain, key]) = &files {
                curl.extend(["--cert", chain, "--key", key]);
            }
            site.curl(&curl, "/").success()
        };
        assert!(!ask(first).contains(" 103"), "nothing is learned before the first response");
        let second = ask(second);
        assert!(second.ends_with("page"), "{second}");
        second.starts_with("HTTP/2 103")
    };
    assert!(has_hints(None, None));
    assert!(!has_hints(Some(&alice), Some(&bob)));
    assert!(!has_hints(Some(&alice), None));
}
