//! Exclusion of servers by the statuses of their responses, and their return.

use std::fs;
use std::path::PathBuf;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;

/// A server that fails while a file exists.
struct Server {
    nginx: Nginx,
    bad: PathBuf,
}

impl Server {
    fn new() -> Self {
        let nginx =
            Nginx::http_with("location = /app { if (-f FOLDER/bad) { return 503; } return 200 PORT; }");
        let bad = nginx.log().with_file_name("bad");
        Self { nginx, bad }
    }

    fn spoil(&self) {
        fs::write(&self.bad, "").expect("a temporary file");
    }

    fn mend(&self) {
        fs::remove_file(&self.bad).expect("a temporary file");
    }

    fn port(&self) -> String {
        self.nginx.address().port().to_string()
    }
}

fn site(servers: &[&Server], health: &str) -> Site {
    let urls: Vec<_> = servers.iter().map(|server| server.nginx.url()).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let tables = format!("{}health = {{ {health} }}\n", proxy_to(&urls));
    Site::custom("server.workers = 1\n", &tables, |setup| setup)
}

/// The statuses and bodies of a number of requests.
fn answers(site: &Site, requests: usize) -> Vec<(u16, String)> {
    let mut connection = site.connect();
    let mut get = || {
        let response = connection.get(NAME, "/app");
        (response.status(), response.text())
    };
    (0..requests).map(|_| get()).collect()
}

fn healthy(site: &Site) -> f64 {
    site.brisk.metrics().sum("brisk_upstream_healthy", &[])
}

#[test]
fn server_errors_in_a_row_exclude_a_server() {
    let servers = [Server::new(), Server::new()];
    let health = "max_failures = 3, server_errors = true, failure_pause = \"1h\"";
    let site = site(&[&servers[0], &servers[1]], health);
    servers[0].spoil();
    let found = answers(&site, 20);
    assert_eq!(found.iter().filter(|(status, _)| *status == 503).count(), 3, "{found:?}");
    assert!(found[10..].iter().all(|(_, body)| *body == servers[1].port()), "{found:?}");
    site.brisk.log_with("last=status 503");
}

#[test]
fn server_errors_exclude_no_server_without_the_setting() {
    let servers = [Server::new(), Server::new()];
    let site = site(&[&servers[0], &servers[1]], "max_failures = 3");
    servers[0].spoil();
    assert_eq!(answers(&site, 20).iter().filter(|(status, _)| *status == 503).count(), 10);
}

#[test]
fn a_share_of_server_errors_excludes_a_server() {
    // Every second response of the first server is an error, so that they are never in a row.
    let nginx = Nginx::http_with("location = /app { return 503; }\nlocation = /good { return 204; }");
    let healthy_one = Nginx::http_with("location = /app { return 204; }\nlocation = /good { return 204; }");
    let health =
        "health = { max_failures = 3, server_errors = true, error_share = 50, failure_pause = \"1h\" }\n";
    let tables = proxy_to(&[&nginx.url(), &healthy_one.url()]) + health;
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let mut connection = site.connect();
    for _ in 0..60 {
        // Each path reaches both servers in turn.
        for path in ["/app", "/app", "/good", "/good"] {
            connection.get(NAME, path);
        }
    }
    assert!(healthy(&site) < 1.5);
    let last: Vec<_> = (0..8).map(|_| connection.get(NAME, "/app").status()).collect();
    assert_eq!(last, [204; 8]);
}

#[test]
fn a_limited_share_of_servers_is_excluded() {
    let servers = [Server::new(), Server::new()];
    let health = "max_failures = 2, server_errors = true, failure_pause = \"1h\", max_excluded = 50";
    let site = site(&[&servers[0], &servers[1]], health);
    servers.iter().for_each(Server::spoil);
    assert!(answers(&site, 20).iter().all(|(status, _)| *status == 503));
    assert!((healthy(&site) - 1.0).abs() < 0.5);
    // The remaining server gets all requests.
    servers.iter().for_each(Server::mend);
    let mut bodies: Vec<_> = answers(&site, 20).into_iter().map(|(_, body)| body).collect();
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}

#[test]
fn a_server_that_returns_gets_few_requests_at_first() {
    for (slow_start, most) in [("slow_start = \"1h\"", 2), ("max_excluded = 100", 11)] {
        let servers = [Server::new(), Server::new()];
        let health =
            format!("max_failures = 2, server_errors = true, failure_pause = \"200ms\", {slow_start}");
        let site = site(&[&servers[0], &servers[1]], &health);
        servers[0].spoil();
        answers(&site, 10);
        servers[0].mend();
        // A choice notices the end of the pause.
        wait_until("the return of the server", || {
            answers(&site, 1);
            (healthy(&site) > 1.5).then_some(())
        });
        let found = answers(&site, 20);
        let returned = found.iter().filter(|(_, body)| *body == servers[0].port()).count();
        assert!(returned <= most && (most == 2 || returned >= 9), "{slow_start}: {found:?}");
    }
}
