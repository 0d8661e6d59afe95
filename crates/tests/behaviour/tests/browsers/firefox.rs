//! Headless Firefox.

use std::fs;

use brisk_behaviour::site::{LIMIT, Site};
use brisk_testkit::process::{Process, command, run};

/// Preferences of every profile: one address family, and no requests of its own.
const USUAL: [&str; 5] = [
    "\"network.dns.disableIPv6\", true",
    "\"browser.shell.checkDefaultBrowser\", false",
    "\"datareporting.policy.dataSubmissionEnabled\", false",
    "\"network.captive-portal-service.enabled\", false",
    "\"network.connectivity-service.enabled\", false",
];

/// Firefox with a new profile that trusts the CA of the site and has these preferences, at this path of the site.
pub(crate) fn firefox(site: &Site, preferences: &[String], path: &str) -> Process {
    let profile = site.brisk.folder().join("firefox");
    fs::create_dir(&profile).expect("a folder");
    let database = format!("sql:{}", profile.display());
    let mut trust = command("certutil");
    trust.args(["-A", "-d", &database, "-n", "test", "-t", "C,,", "-i"]).arg(site.ca.root_file());
    run(&mut trust, b"", LIMIT).success();
    let all = preferences.iter().map(String::as_str).chain(USUAL);
    let lines: Vec<_> = all.map(|preference| format!("user_pref({preference});\n")).collect();
    fs::write(profile.join("user.js"), lines.concat()).expect("a file");
    let mut firefox = command("firefox-esr");
    firefox.env("HOME", site.brisk.folder()).args(["--headless", "--no-remote", "--profile"]).arg(&profile);
    Process::start(firefox.arg(format!("https://localhost:{}{path}", site.brisk.https().port())))
}
