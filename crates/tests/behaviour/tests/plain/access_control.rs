//! Routes for some clients alone.

use std::net::Ipv4Addr;

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h3_client::{self, h3_site};
use brisk_behaviour::site::{NAME, Site, connect_from};

const TABLES: &str = r#"
deny = ["127.0.0.9", "::/0"]

[[host.route]]
path = "/"
exact = true
respond = { body = "root" }

[[host.route]]
path = "/inside"
allow = ["127.0.0.0/8"]
deny = ["127.0.0.0/29"]
respond = { body = "inside" }

[[host.route]]
path = "/all"
deny = []
respond = { body = "all" }
"#;

#[test]
fn networks_decide_about_routes_over_http1_and_http2() {
    let site = Site::with(TABLES);
    for (client, statuses) in [
        ([127, 0, 0, 1], [200, 403, 200, 404]),
        ([127, 0, 0, 8], [200, 200, 200, 404]),
        ([127, 0, 0, 9], [403, 200, 200, 403]),
    ] {
        let source = Ipv4Addr::from(client);
        let mut http1 = site.client().over(connect_from(source, site.brisk.https())).expect("a handshake");
        for (path, status) in ["/", "/inside/x", "/all", "/none"].into_iter().zip(statuses) {
            assert_eq!(http1.get(NAME, path).status(), status, "{client:?} {path}");
            let mut http2 = Client::connect_from(&site, source);
            http2.send(&h2::get(1, path));
            assert_eq!(http2.status(1), status, "{client:?} {path} over HTTP/2");
        }
    }
    assert!(site.brisk.logged("\"client-address\"").contains("\"status\":403"));
}

#[test]
fn networks_decide_about_routes_over_http3() {
    let site = h3_site("", TABLES);
    let mut connection = h3_client::connect(&h3_client::client(&site), site.brisk.https());
    for (path, status) in [("/", "200"), ("/inside/x", "403"), ("/all", "200"), ("/none", "404")] {
        assert_eq!(h3_client::get(&mut connection, path).status(), status, "{path}");
    }
}

#[test]
fn no_header_changes_the_address_of_a_client_except_that_of_a_trusted_proxy() {
    let tables = "\n[[host.route]]\npath = \"/\"\nallow = [\"10.0.0.0/8\"]\nrespond = {}\n";
    let site = Site::custom("server.trusted_proxies = [\"127.0.0.2/32\"]\n", tables, |setup| setup);
    // From a stranger, and from a trusted proxy.
    for (header, statuses) in [
        ("X-Forwarded-For: 10.0.0.1", [403, 200]),
        ("X-Forwarded-For: 10.0.0.1, 192.0.2.1", [403, 403]),
        ("Forwarded: for=10.0.0.1", [403, 200]),
        ("X-Real-IP: 10.0.0.1", [403, 403]),
        ("X_Forwarded_For: 10.0.0.1", [403, 403]),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{header}\r\n\r\n");
        for (source, status) in [[127, 0, 0, 1], [127, 0, 0, 2]].into_iter().zip(statuses) {
            let tcp = connect_from(source.into(), site.brisk.https());
            let mut connection = site.client().over(tcp).expect("a handshake");
            assert_eq!(connection.request(&request).status(), status, "{header} from {source:?}");
        }
    }
}
