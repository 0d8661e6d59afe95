//! `[visits]`: the store beside the gateway, and its failures, which visitors do not notice.

use std::fs;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::process::wait_until;
use brisk_visits::{Settings, Visits};

fn with_store(lines: &str, folder: &str) -> Site {
    Site::with(&format!("\n[visits]\nenabled = true\nfolder = {folder:?}\n{lines}\n"))
}

#[test]
fn a_store_is_made_and_on_the_page_of_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("visits");
    let site = with_store("", inside.to_str().expect("UTF-8"));
    wait_until("the size of the database", || {
        (site.brisk.metrics().sum("brisk_visits_store_bytes", &[]) > 0.0).then_some(())
    });
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_visits_store_failing", &[]).abs() < 0.5);
    assert!(metrics.sum("brisk_visits_dropped_total", &[]).abs() < 0.5);
    assert!(inside.join("visits.db").is_file());
    site.assert_alive();
}

#[test]
fn a_store_that_cannot_be_opened_is_reported_and_everything_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocked = folder.path().join("file");
    fs::write(&blocked, "no folder").expect("written");
    let site = with_store("", blocked.to_str().expect("UTF-8"));
    site.brisk.log_with("visits are not stored: cannot make the folder ");
    wait_until("the metric", || {
        (site.brisk.metrics().sum("brisk_visits_store_failing", &[]) > 0.5).then_some(())
    });
    site.assert_alive();
}

#[test]
fn a_damaged_store_is_moved_away_and_everything_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("visits.db"), vec![0x7f; 20_000]).expect("written");
    let site = with_store("", folder.path().to_str().expect("UTF-8"));
    site.brisk.log_with("the database of visits is damaged");
    wait_until("a new one", || {
        (site.brisk.metrics().sum("brisk_visits_store_bytes", &[]) > 0.0).then_some(())
    });
    assert_eq!(fs::read(folder.path().join("visits.db.damaged")).expect("the old one"), vec![0x7f; 20_000]);
    site.assert_alive();
}

#[test]
fn a_gateway_beside_one_that_still_runs_has_the_same_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().to_str().expect("UTF-8");
    let mut old = with_store("", name);
    let new = with_store("", name);
    for site in [&old, &new] {
        wait_until("the size of the database", || {
            (site.brisk.metrics().sum("brisk_visits_store_bytes", &[]) > 0.0).then_some(())
        });
        assert!(site.brisk.metrics().sum("brisk_visits_store_failing", &[]).abs() < 0.5);
        site.assert_alive();
    }
    old.brisk.terminate();
    assert!(old.brisk.wait().success());
    assert!(new.brisk.metrics().sum("brisk_visits_store_failing", &[]).abs() < 0.5);
    new.assert_alive();
}

#[test]
fn a_visit_is_in_the_store_when_the_gateway_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("\n[visits]\nenabled = true\nfolder = {:?}\n", folder.path());
    let route = "visits = true\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n";
    let mut site = Site::custom("", &format!("{route}{store}"), |setup| {
        setup.file("www/index.html", "<!doctype html><html><head><title>page</title></head></html>")
    });
    let mut client = site.connect();
    let page = client.request(&format!(
        "GET / HTTP/1.1\r\nHost: {NAME}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\r\n"
    ));
    let timings = page.head.all("server-timing");
    let id = timings.iter().find_map(|value| value.strip_prefix("visit;desc=")).expect("an id");
    let body = format!("id={id}&wait=5000&ttfb=5000");
    let answer = client.request(&format!(
        "POST /.brisk/beacon HTTP/1.1\r\nHost: {NAME}\r\nSec-Fetch-Site: same-origin\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(answer.status(), 204);
    wait_until("the beacon", || {
        (site.brisk.metrics().sum("brisk_beacons_joined_total", &[]) > 0.5).then_some(())
    });
    drop(client);
    site.brisk.terminate();
    assert!(site.brisk.wait().success());
    let visits = Visits::open(folder.path(), Settings::default()).expect("a thread");
    assert_eq!(visits.reader().expect("a store").hosts().expect("an answer"), [NAME]);
}
