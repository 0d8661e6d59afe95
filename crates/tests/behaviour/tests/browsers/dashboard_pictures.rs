//! Pictures for `docs/dashboard.md`: the dashboard after a minute of mixed load, with a day of invented visitors.
//! `tools/pictures` creates them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brisk_behaviour::dashboard::ON;
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{NAME, NAMES, Site, setup};
use brisk_testkit::ca::LeafKey;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::Process;
use brisk_visits::{
    Arm, Browser, CertificateType, Connection, Device, Experiment, ExperimentId, MarkName, Metric,
    Navigation, Session, Settings, Visit, Visits, Window,
};
use brisk_wire::HttpVersion;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion};

use crate::chromium::Chromium;
use crate::devtools::Page;
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;

/// Where the pictures go.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/dashboard");

const LOAD: Duration = Duration::from_secs(90);

/// Visits of the last day.
const VISITS: usize = 9_000;

/// The experiments of the configuration: one that is decided and one that goes on.
const EXPERIMENTS: &str = "
[experiment.hints]
setting = \"early_hints\"
values = [true]
hosts = [\"shop.example\"]

[experiment.records]
setting = \"tls.growing_records\"
values = [false]
";

/// The same as the store of visits has them.
fn experiments() -> [Experiment; 2] {
    let of = |name: &str, setting: &str, values: [bool; 2], metric| Experiment {
        name: name.into(),
        arms: values.map(|value| format!("{setting} = {value}").into()).to_vec(),
        advice: Vec::new(),
        metric,
        margin: 0.02,
        hosts: Vec::new(),
        share: 1.0,
    };
    [
        of("hints", "early_hints", [false, true], Metric::LargestPaint),
        of("records", "tls.growing_records", [true, false], Metric::FirstByte),
    ]
}

/// Numbers that look random and are the same each time (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About 1, seldom twice as much.
    fn spread(&mut self) -> f64 {
        let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (0.35 * normal).exp()
    }

    /// One of these, each as often as its weight says.
    fn one<T: Copy>(&mut self, of: &[(T, f64)]) -> T {
        let mut left = self.unit() * of.iter().map(|(_, weight)| weight).sum::<f64>();
        let found = of.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        found.unwrap_or(&of[0]).0
    }
}

/// One of the visitors: two thirds come again and resume, phones are slower, and Early Hints of the shop save a tenth.
fn visit(numbers: &mut Numbers, ids: &[ExperimentId], ago: Duration) -> Visit {
    let host = numbers.one(&[(NAME, 0.4), ("shop.example", 0.6)]);
    let mut visit = Visit::new(host.into(), "/".into());
    visit.at = SystemTime::now() - ago;
    visit.browser = numbers.one(&[
        (Browser::Chrome, 0.52),
        (Browser::Safari, 0.27),
        (Browser::Edge, 0.09),
        (Browser::Firefox, 0.12),
    ]);
    visit.device = numbers.one(&[(Device::Phone, 0.58), (Device::Desktop, 0.38), (Device::Tablet, 0.04)]);
    visit.navigation = numbers.one(&[(Navigation::Navigate, 0.8), (Navigation::BackForward, 0.2)]);
    visit.connection = numbers.one(&[(Connection::New, 0.7), (Connection::Reused, 0.3)]);
    visit.session = numbers.one(&[
        (Session::Psk, 0.62),
        (Session::NewVisitor, 0.24),
        (Session::Expired, 0.1),
        (Session::UnknownKey, 0.04),
    ]);
    visit.version = Some(ProtocolVersion::TLS1_3);
    visit.suite = Some(CipherSuite::TLS_AES_128_GCM_SHA256);
    visit.group = Some(numbers.one(&[(NamedGroup::X25519MLKEM768, 0.8), (NamedGroup::X25519, 0.2)]));
    visit.http = Some(numbers.one(&[(HttpVersion::Http2, 0.96), (HttpVersion::Http11, 0.04)]));
    visit.certificate = CertificateType::Ecdsa;
    visit.window = Window::UpTo10;
    let phone = if visit.device == Device::Phone { 1.6 } else { 1.0 };
    let round_trip = 24.0 * phone * numbers.spread();
    let resumed = visit.session.is_resumed() == Some(true);
    let handshake = round_trip * if resumed { 1.1 } else { 1.9 } + 2.0;
    let is_new = visit.connection == Connection::New;
    let wait = round_trip + 40.0 * numbers.spread();
    let mut paint = 5.0 * wait * numbers.spread();
    if is_new {
        for id in ids.iter().skip(usize::from(host == NAME)) {
            let arm = u8::from(numbers.unit() < 0.5);
            assert!(visit.assigned.push(Arm { setting: *id, value: arm }));
            if *id == ids[0] && arm == 1 {
                paint *= 0.9;
            }
        }
        visit.measures.set(Metric::Handshake, handshake);
    }
    let ttfb = wait + if is_new { handshake + 2.0 * round_trip } else { 0.0 };
    let times = [
        (Metric::RoundTrip, round_trip),
        (Metric::Wait, wait),
        (Metric::FirstByte, ttfb),
        (Metric::FirstPaint, ttfb + 0.6 * paint),
        (Metric::LargestPaint, ttfb + paint),
        (Metric::Interaction, 60.0 * phone * numbers.spread()),
        (Metric::Shift, 0.04 * numbers.spread()),
        (Metric::Load, ttfb + 1.5 * paint),
    ];
    for (metric, time) in times {
        visit.measures.set(metric, time);
    }
    visit
}

/// A day of visitors in the store at `folder`, a tenth of them in the last hour.
fn visitors(folder: &Path) {
    let visits = Visits::open(folder, Settings::default()).expect("a thread");
    let ids = visits.define(&experiments());
    let mut numbers = Numbers(0x5eed_0000_0000_0001);
    for number in 0..VISITS {
        let hours = if number % 10 == 0 { 1.0 } else { 24.0 };
        let ago = Duration::from_secs_f64(numbers.unit() * hours * 3_600.0);
        visits.record(visit(&mut numbers, &ids, ago));
        if number % 3_000 == 2_999 {
            assert!(visits.flush(Duration::from_mins(1)), "{:?}", visits.status());
        }
    }
    assert!(visits.decision(ids[0]).is_some() && visits.decision(ids[1]).is_none(), "one is decided");
    assert!(visits.close(Duration::from_mins(1)), "{:?}", visits.status());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    let deployed = i64::try_from(now.as_secs()).expect("a time") - 1_500;
    let name: MarkName = "v1.4.2".parse().expect("a name");
    name.add_to(folder, deployed).expect("a mark");
}

/// A gateway with a few hosts and upstreams, one of which is out of order.
fn gateway(nginx: &Nginx, folder: &Path) -> Site {
    let ca = TestCa::new();
    let (ecdsa, rsa) = (ca.server(&NAMES).issue(), ca.server(&NAMES).key(LeafKey::Rsa2048).issue());
    let shop = ca.server(&["shop.example", "www.shop.example"]).issue();
    let route =
        |path: &str, name: &str| format!("\n[[host.route]]\npath = \"{path}\"\nupstream = \"{name}\"\n");
    let upstreams = format!(
        "\n[upstream.app]\nservers = [{:?}]\n\n[upstream.reports]\nservers = [\"http://127.0.0.1:1\"]\n",
        nginx.url()
    );
    let measured = "visits = true\n";
    let own = host(&NAMES, &[&ecdsa, &rsa]) + measured + &route("/", "app") + &route("/reports", "reports");
    let shop = host(&["shop.example", "www.shop.example"], &[&shop]) + measured + &route("/", "app");
    let keys = format!("{ON}\nvisits.enabled = true\nvisits.folder = \"{}\"\n", folder.display());
    let config = format!("{}{own}{shop}{upstreams}{EXPERIMENTS}", base(&keys));
    Site { brisk: setup().config(&config).start(), ca }
}

/// Load of `brisk bench` with these words.
fn load(site: &Site, path: &str, words: &[&str]) -> Process {
    let mut bench = Command::new(brisk_program());
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
    let folder = tempfile::tempdir().expect("a temporary folder");
    visitors(folder.path());
    let nginx = Nginx::http();
    let site = gateway(&nginx, folder.path());
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
    page.wait_for("document.getElementById('v-experiments').textContent.includes('decided')");
    fs::create_dir_all(FOLDER).expect("a folder");
    let screens =
        [("light", 1280, 1040, "light"), ("dark", 1280, 1040, "dark"), ("phone", 390, 844, "light")];
    for (part, suffix) in [("main", ""), ("visitors", "-visitors")] {
        for (name, width, height, scheme) in screens {
            // Of the visitors a telephone shows the experiments alone.
            let part = if (name, part) == ("phone", "visitors") { "v-experiments" } else { part };
            page.screen(width, height, scheme);
            page.script(&format!(
                "document.documentElement.style.scrollBehavior = 'auto';
                 document.getElementById({part:?}).scrollIntoView();
                 new Promise(done => setTimeout(done, 2500))"
            ));
            let picture = STANDARD.decode(page.picture(90)).expect("base64");
            assert!(picture.len() < 150_000, "{name}{suffix}: {} bytes", picture.len());
            fs::write(Path::new(FOLDER).join(format!("{name}{suffix}.webp")), picture).expect("a picture");
        }
    }
}
