//! Splits of routes: a share of the visitors at another upstream.

use std::collections::BTreeSet;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::brisk::Setup;
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;

/// The servers of most and of some visitors.
struct Servers {
    app: Nginx,
    next: Nginx,
}

impl Servers {
    fn new() -> Self {
        Self { app: Nginx::http(), next: Nginx::http() }
    }

    fn tables(&self, percent: &str) -> String {
        format!(
            "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
             split = {{ upstream = \"next\", percent = {percent}, secret = \"split.key\" }}\n\
             [upstream.app]\nservers = [{:?}]\n[upstream.next]\nservers = [{:?}]\n\
             health = {{ max_failures = 1, failure_pause = \"1h\" }}\n",
            self.app.url(),
            self.next.url()
        )
    }

    fn site(&self, percent: &str) -> Site {
        Site::custom("", &self.tables(percent), with_key)
    }

    /// Whether the response is of the server for some visitors.
    fn is_next(&self, response: &Message) -> bool {
        let names = [&self.app, &self.next].map(|nginx| nginx.address().port().to_string());
        let place = names.iter().position(|name| *name == response.text());
        place.unwrap_or_else(|| panic!("{}", response.text())) == 1
    }

    /// Whether the visitor with this cookie, which is valid, is at the server for some visitors.
    fn keeps(&self, site: &Site, cookie: &str) -> bool {
        let response = get(site, &format!("a=b; {cookie}"));
        assert_eq!(response.header("set-cookie"), None);
        self.is_next(&response)
    }
}

fn with_key(setup: Setup) -> Setup {
    setup.file("split.key", [7; 32])
}

/// The response to a new client connection with these cookies.
fn get(site: &Site, cookies: &str) -> Message {
    let cookies = if cookies.is_empty() { String::new() } else { format!("Cookie: {cookies}\r\n") };
    site.connect().request(&format!("GET /name HTTP/1.1\r\nHost: {NAME}\r\n{cookies}\r\n"))
}

/// The cookie that a response sets, without attributes.
fn cookie(response: &Message) -> String {
    let set = response.header("set-cookie").expect("a cookie");
    assert!(set.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{set}");
    set.split(';').next().expect("a cookie").to_owned()
}

/// New visitors: their cookies, and whether they are at the server for some.
fn visitors(servers: &Servers, site: &Site, number: usize) -> Vec<(String, bool)> {
    let visitor = |_| {
        let response = get(site, "");
        (cookie(&response), servers.is_next(&response))
    };
    (0..number).map(visitor).collect()
}

#[test]
fn a_share_of_the_visitors_is_at_another_upstream_and_stays_there() {
    let servers = Servers::new();
    let site = servers.site("30");
    let all = visitors(&servers, &site, 100);
    let next = all.iter().filter(|(_, is_next)| *is_next).count();
    // More than five standard deviations around 30.
    assert!((6..=54).contains(&next), "{next}");
    let other_gateway = servers.site("30");
    for (cookie, is_next) in &all {
        assert_eq!(servers.keeps(&site, cookie), *is_next);
        assert_eq!(servers.keeps(&other_gateway, cookie), *is_next);
    }
    let curl = site.curl(&["--http2", "--include"], "/name").success().to_lowercase();
    assert!(curl.contains("set-cookie: brisk_split="), "{curl}");
}

#[test]
fn another_percentage_moves_as_few_visitors_as_possible() {
    let servers = Servers::new();
    let at = |percent: &str| servers.site(percent);
    let all = visitors(&servers, &at("40"), 60);
    assert!(all.iter().any(|(_, is_next)| *is_next) && all.iter().any(|(_, is_next)| !is_next));
    let set = |site: &Site| -> BTreeSet<_> {
        all.iter().map(|(cookie, _)| cookie).filter(|cookie| servers.keeps(site, cookie)).collect()
    };
    let sets = ["0", "10", "40", "70", "100"].map(|percent| set(&at(percent)));
    assert!(sets[0].is_empty());
    // Visitors in the same bucket have equal cookies.
    assert_eq!(sets[4], all.iter().map(|(cookie, _)| cookie).collect());
    assert!(sets.windows(2).all(|pair| pair[0].is_subset(&pair[1])), "{sets:?}");
    assert_eq!(sets[2], all.iter().filter(|(_, is_next)| *is_next).map(|(cookie, _)| cookie).collect());
}

#[test]
fn a_reload_changes_the_percentage() {
    let servers = Servers::new();
    let site = servers.site("0");
    let all = visitors(&servers, &site, 4);
    assert!(all.iter().all(|(_, is_next)| !is_next));
    let text = std::fs::read_to_string(site.brisk.folder().join("brisk.toml")).expect("the configuration");
    site.brisk.write("brisk.toml", text.replace("percent = 0", "percent = 100"));
    site.brisk.reload();
    assert!(all.iter().all(|(cookie, _)| servers.keeps(&site, cookie)));
}

#[test]
fn invented_cookies_are_replaced() {
    let servers = Servers::new();
    let site = servers.site("100");
    let (valid, _) = visitors(&servers, &site, 1).remove(0);
    let (name, value) = valid.split_once('=').expect("a name");
    let first = if value.starts_with('A') { "B" } else { "A" };
    for invented in ["AAAAAAAAAAAAAAAAAAAA", "0", "", &format!("{first}{}", &value[1..])] {
        let response = get(&site, &format!("{name}={invented}"));
        assert!(servers.is_next(&response) && response.header("set-cookie").is_some(), "{invented}");
    }
}

#[test]
fn visitors_use_the_upstream_of_the_route_while_no_server_of_the_split_is_available() {
    let servers = Servers::new();
    let site = servers.site("100");
    let (cookie, is_next) = visitors(&servers, &site, 1).remove(0);
    assert!(is_next);
    let Servers { app, next } = servers;
    drop(next);
    // The request that finds out.
    assert_eq!(get(&site, &cookie).status(), 502);
    let response = get(&site, &cookie);
    assert_eq!(response.text(), app.address().port().to_string());
    assert_eq!(response.header("set-cookie"), None, "the bucket is kept");
}
