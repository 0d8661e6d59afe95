//! Backup servers of upstream groups.

use std::fs;
use std::path::PathBuf;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;

/// A server that is healthy while its file exists, and this file.
fn switchable() -> (Nginx, PathBuf) {
    let nginx = Nginx::http_with("location = /up { if (!-f FOLDER/up) { return 503; } return 204; }");
    let file = nginx.log().with_file_name("up");
    fs::write(&file, "").expect("a temporary file");
    (nginx, file)
}

fn group(servers: &str, more: &str) -> Site {
    Site::with(&format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\nservers = [{servers}]\n{more}"
    ))
}

/// The servers of a number of requests.
fn names(site: &Site) -> Vec<String> {
    let mut connection = site.connect();
    (0..12).map(|_| connection.get(NAME, "/name").text()).collect()
}

#[test]
fn a_backup_gets_requests_only_while_all_other_servers_are_excluded() {
    let (nginx, up) = switchable();
    let backup = Nginx::http_with("location = /up { return 204; }");
    let site = group(
        &format!("{{ url = {:?}, backup = true }}, {:?}", backup.url(), nginx.url()),
        // Three failures are no pause of the machine, which fails one check.
        "health = { path = \"/up\", interval = \"1s\", timeout = \"1s\", unhealthy_after = 3, healthy_after = 1 }\n",
    );
    let becomes = |wanted: f64| {
        wait_until("the verdict of the check", || {
            let server = format!("server=\"{}\"", nginx.address());
            let found = site.brisk.metrics().sum("brisk_upstream_healthy", &[&server]);
            ((found - wanted).abs() < 0.5).then_some(())
        });
    };
    let [own, other] = [&nginx, &backup].map(|server| server.address().port().to_string());
    assert_eq!(names(&site), [&*own; 12]);
    fs::remove_file(&up).expect("remove");
    becomes(0.0);
    assert_eq!(names(&site), [&*other; 12]);
    fs::write(&up, "").expect("write");
    becomes(1.0);
    assert_eq!(names(&site), [&*own; 12]);
}

#[test]
fn a_backup_gets_the_retry_of_a_request_that_the_only_other_server_refused() {
    let (nginx, _) = switchable();
    let backup = Nginx::http();
    let site = group(
        &format!("{:?}, {{ url = {:?}, backup = true }}", nginx.url(), backup.url()),
        "health = { max_failures = 2, failure_pause = \"1h\" }\n",
    );
    let other = backup.address().port().to_string();
    assert_ne!(names(&site), [&*other; 12]);
    drop(nginx);
    // The first requests are repeated; after two failures, the other server is excluded.
    assert_eq!(names(&site), [&*other; 12]);
}
