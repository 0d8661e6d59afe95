//! Sticky cookies of upstream groups.

use std::collections::BTreeSet;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;

fn site(servers: &[&Nginx], more: &str) -> Site {
    let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let tables = proxy_to(&urls) + "sticky = { secret = \"sticky.key\" }\n" + more;
    Site::custom("", &tables, |setup| setup.file("sticky.key", [7; 32]))
}

/// The response to a new client connection with these cookies.
fn get(site: &Site, path: &str, cookies: &str) -> Message {
    let cookies = if cookies.is_empty() { String::new() } else { format!("Cookie: {cookies}\r\n") };
    site.connect().request(&format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{cookies}\r\n"))
}

/// The cookie that a response sets, without attributes.
fn cookie(response: &Message) -> String {
    let set = response.header("set-cookie").expect("a cookie");
    assert!(set.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{set}");
    set.split(';').next().expect("a cookie").to_owned()
}

#[test]
fn a_client_returns_to_its_server() {
    let servers = [Nginx::http(), Nginx::http(), Nginx::http()];
    let site = site(&[&servers[0], &servers[1], &servers[2]], "");
    let firsts: Vec<_> = (0..9).map(|_| get(&site, "/name", "")).collect();
    let cookies: BTreeSet<_> = firsts.iter().map(cookie).collect();
    assert_eq!(cookies.len(), 3, "{cookies:?}");
    for first in firsts {
        for _ in 0..3 {
            let again = get(&site, "/name", &format!("a=b; {}; c=d", cookie(&first)));
            assert_eq!(again.text(), first.text());
            assert_eq!(again.header("set-cookie"), None);
        }
    }
}

#[test]
fn gateways_with_one_secret_understand_each_other() {
    let servers = [Nginx::http(), Nginx::http(), Nginx::http()];
    let [one, two] = [0, 1].map(|_| site(&[&servers[0], &servers[1], &servers[2]], ""));
    for _ in 0..6 {
        let first = get(&one, "/name", "");
        assert_eq!(get(&two, "/name", &cookie(&first)).text(), first.text());
    }
}

#[test]
fn another_server_takes_over_if_the_own_one_is_gone() {
    let (gone, other) = (Nginx::http(), Nginx::http());
    let site = site(&[&gone, &other], "health = { max_failures = 1, failure_pause = \"1h\" }\n");
    let name = gone.address().port().to_string();
    let mut clients = (0..).map(|_| get(&site, "/name", ""));
    let first = clients.find(|response| response.text() == name).expect("a response of the server");
    drop(gone);
    // The first request is repeated, the second finds the server excluded.
    for _ in 0..2 {
        let response = get(&site, "/name", &cookie(&first));
        assert_eq!(response.text(), other.address().port().to_string());
        assert_ne!(cookie(&response), cookie(&first));
    }
    // A value of no server is replaced too.
    assert_eq!(get(&site, "/name", "brisk_server=AAAAAAAAAAAAAAAA").status(), 200);
}

#[test]
fn cookies_of_the_server_are_kept() {
    let nginx = Nginx::http_with("location = /cookie { add_header Set-Cookie own=1; return 200 ok; }");
    let site = site(&[&nginx], "");
    for option in ["--http1.1", "--http2"] {
        let headers = site.curl(&[option, "--include"], "/cookie").success().to_lowercase();
        assert!(headers.contains("set-cookie: own=1\r\n"), "{headers}");
        assert!(headers.contains("set-cookie: brisk_server="), "{headers}");
    }
}
