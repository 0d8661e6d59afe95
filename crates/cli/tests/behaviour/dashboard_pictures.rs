//! The pictures of `docs/dashboard.md`: the dashboard after a minute of mixed load. `tools/pictures` makes them anew.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brisk_testkit::ca::LeafKey;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::Process;

use crate::chromium::Chromium;
use crate::dashboard::ON;
use crate::devtools::Page;
use crate::site::{NAMES, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;

/// Where the pictures go.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dashboard");

const LOAD: Duration = Duration::from_secs(90);

/// A gateway with a few hosts and upstreams, one of which is out of order.
fn gateway(nginx: &Nginx) -> Site {
    let ca = TestCa::new();
    let (ecdsa, rsa) = (ca.server(&NAMES).issue(), ca.server(&NAMES).key(LeafKey::Rsa2048).issue());
    let shop = ca.server(&["shop.example", "www.shop.example"]).issue();
    let route =
        |path: &str, name: &str| format!("\n[[host.route]]\npath = \"{path}\"\nupstream = \"{name}\"\n");
    let upstreams = format!(
        "\n[upstream.app]\nservers = [{:?}]\n\n[upstream.reports]\nservers = [\"http://127.0.0.1:1\"]\n",
        nginx.url()
    );
    let own = host(&NAMES, &[&ecdsa, &rsa]) + &route("/", "app") + &route("/reports", "reports");
    let shop = host(&["shop.example", "www.shop.example"], &[&shop]) + &route("/", "app");
    let config = format!("{}{own}{shop}{upstreams}", base(ON));
    Site { brisk: setup().config(&config).start(), ca }
}

/// Load of `brisk bench` with these words.
fn load(site: &Site, path: &str, words: &[&str]) -> Process {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_brisk"));
    bench.args([
        "bench",
        &site.url(path),
        "--connect",
        &site.brisk.https().to_string(),
        "-d",
        "300s",
        "--ca",
    ]);
    bench.arg(site.ca.root_file()).args(words);
    Process::start(&mut bench)
}

#[test]
#[ignore = "makes pictures, which takes two minutes: tools/pictures"]
fn the_dashboard_under_load() {
    let nginx = Nginx::http();
    let site = gateway(&nginx);
    let mix = "full=35,ticket=20,psk=45";
    let _load = [
        load(&site, "/1k", &["--rate", "60", "--mix", mix, "-r", "3"]),
        load(&site, "/1k", &["--rate", "25", "--mix", "full=60,psk=40", "--cert", "rsa", "-r", "1"]),
        load(&site, "/reports", &["--rate", "2", "-r", "1"]),
        load(&site, "/1k", &["--rate", "3", "--tls", "1.2", "--group", "P-256", "-r", "1"]),
    ];
    let browser =
        Chromium::new(site.brisk.folder(), &site.brisk).start(&["--hide-scrollbars"], "about:blank");
    let mut page = Page::of(browser, &site.brisk.folder().join("profile"));
    page.screen(1280, 1080, "light");
    page.open(&format!("http://{}/", site.brisk.dashboard()));
    let begun = Instant::now();
    page.wait_for("document.querySelectorAll('#slow-table .steps').length > 8");
    while begun.elapsed() < LOAD {
        std::thread::sleep(Duration::from_secs(1));
    }
    fs::create_dir_all(FOLDER).expect("a folder");
    for (name, width, height, scheme) in
        [("light", 1280, 1080, "light"), ("dark", 1280, 1080, "dark"), ("phone", 390, 844, "light")]
    {
        page.screen(width, height, scheme);
        page.script("new Promise(done => setTimeout(done, 2500))");
        let picture = STANDARD.decode(page.picture()).expect("base64");
        fs::write(Path::new(FOLDER).join(format!("{name}.png")), picture).expect("a picture");
    }
}
