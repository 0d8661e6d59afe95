//! `[visits]`: the store beside the gateway, and its troubles, of which visitors notice nothing.

use std::fs;

use brisk_testkit::process::wait_until;

use crate::site::Site;

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
