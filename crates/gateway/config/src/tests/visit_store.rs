//! `[visits]`: what is said of it.

use std::fs;
use std::time::Duration;

use super::*;

fn with(lines: &str) -> String {
    format!("{LISTENER}{HOST}[visits]\n{lines}\n")
}

#[test]
fn visits_have_a_folder_a_time_and_a_size() {
    for (lines, message) in [
        ("keep = \"1h\"", "6:8: visits.keep: 1h is out of range: write 1d to 400d"),
        ("max_size = \"1MiB\"", "6:12: visits.max_size: 1MiB is out of range: write 16MiB to 1024GiB"),
        ("share = 1.5", "6:9: visits.share: 1.5 is out of range: write 0 to 1"),
    ] {
        refused(&with(lines), &format!("brisk.toml:{message}"));
    }
    assert!(accepted(&with("share = 0.5")).visits.is_none(), "off unless it is asked for");
    let kept =
        accepted(&with("enabled = true\nfolder = \"v\"\nkeep = \"7d\"\nmax_size = \"100MiB\"\nshare = 0.1"));
    let kept = kept.visits.expect("they are kept");
    assert!(kept.folder.ends_with("v") && kept.folder.is_absolute(), "{}", kept.folder.display());
    assert_eq!(kept.settings.keep, Duration::from_hours(7 * 24));
    assert_eq!((kept.settings.max_bytes, kept.settings.share.to_bits()), (100 << 20, 0.1_f64.to_bits()));
}

#[test]
fn a_database_has_room_for_a_day_of_the_hosts_that_are_measured() {
    let ca = TestCa::new();
    let leaf = ca.server(&["*.test"]).issue();
    let with = |size: &str, measured: usize| {
        let host = |number| {
            let visits = if number < measured { "visits = true\n" } else { "" };
            brisk_testkit::brisk::host(&[&format!("h{number}.test")], &[&leaf]) + visits
        };
        let hosts: String = (0..400).map(host).collect();
        format!("{LISTENER}[visits]\nenabled = true\nfolder = \"v\"\nmax_size = \"{size}\"\n{hosts}")
    };
    refused(
        &with("30MiB", 400),
        "brisk.toml:6:12: visits.max_size: 30MiB may not hold a day of 400 hosts with visits: write 44MiB or more",
    );
    for (size, measured) in [("44MiB", 400), ("30MiB", 100), ("16MiB", 10)] {
        assert!(accepted(&with(size, measured)).visits.is_some(), "{size}");
    }
}

#[test]
fn a_wrong_table_of_networks_is_named() {
    let folder = folder();
    let file = folder.path().join("networks");
    fs::write(&file, "192.0.2.0/24 office\n300.0.0.0/8 none\n").unwrap();
    let message =
        checked(folder.path(), &with("enabled = true\nnetworks = \"networks\"")).expect_err("a wrong table");
    assert_eq!(
        message,
        "brisk.toml:7:12: visits.networks: networks: line 2: \"300.0.0.0/8\" is no prefix such as 203.0.113.0/24 or \
         2001:db8::/32"
    );
    fs::write(&file, "192.0.2.0/24 office\n").unwrap();
    let kept =
        checked(folder.path(), &with("enabled = true\nnetworks = \"networks\"")).expect("a right table");
    let networks = kept.visits.expect("they are kept").settings.networks;
    let label = networks.find("192.0.2.7".parse().unwrap());
    assert_eq!(label.label().map(AsRef::as_ref), Some("office"));
    assert!(kept.settings.server.files.contains(&file), "the table is watched");
}
