//! Beacons: measurements of pages in a browser are joined with the gateway's data about their connections.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brisk_behaviour::linked::{link, words_before};
use brisk_behaviour::site::{NAME, Site};
use brisk_link::{Link, SERVER};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::client::TlsStream;
use brisk_testkit::process::{TIMEOUT, wait_until};
use serde_json::Value;

use crate::chromium::Chromium;

/// A page that leads to the next one when it is there, so that its visit ends, over `hops` pages to one that is not HTML.
fn pages(folder: &Path, hops: usize) {
    for hop in 0..hops {
        let next = if hop + 1 == hops { "end.txt".to_owned() } else { format!("{}.html", hop + 1) };
        let script = format!("addEventListener('load', () => setTimeout(() => location = '/{next}', 300))");
        fs::write(folder.join(format!("{hop}.js")), script).expect("a script");
        let page = format!(
            "<!doctype html><html><head><meta charset=utf-8><title>{hop}</title></head>\
             <body><h1>page {hop}</h1><script src=/{hop}.js></script></body></html>"
        );
        fs::write(folder.join(format!("{hop}.html")), page).expect("a page");
    }
    fs::write(folder.join("end.txt"), "end").expect("a file");
}

const POLICY: &str = "response_headers = { set = { Content-Security-Policy = \"default-src 'none'; script-src 'self'; \
                      connect-src 'self'\", Cache-Control = \"no-cache\" } }";

fn site(visits: &str, hops: usize) -> Site {
    let tables = format!("visits = {visits}\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n{POLICY}\n");
    Site::custom("", &tables, |setup| {
        let setup = setup.file("www/index.html", "");
        pages(&setup.folder().join("www"), hops);
        setup
    })
}

/// The sum of the series of a counter.
fn sum(brisk: &Brisk, name: &str, labels: &[&str]) -> u64 {
    brisk.metrics().sum(name, labels) as u64
}

fn joined(brisk: &Brisk) -> u64 {
    sum(brisk, "brisk_beacons_joined_total", &[])
}

/// Visits the pages and stays at their end until `count` more beacons have joined. A browser that does not get there, as one
/// on a busy machine may not, gives way to another one.
fn visit(site: &Site, options: &[&str], count: u64) {
    let url = format!("https://localhost:{}/0.html", site.brisk.https().port());
    let wanted = joined(&site.brisk) + count;
    for attempt in 0..3 {
        let folder = site.brisk.folder().join(format!("visit-{wanted}-{attempt}"));
        fs::create_dir(&folder).expect("a temporary folder");
        let _browser = Chromium::new(&folder, &site.brisk).start(options, &url);
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if joined(&site.brisk) >= wanted {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("no beacons: {}", site.brisk.ask_admin("/metrics").text());
}

#[test]
fn beacons_of_pages_join_their_visits() {
    for options in [&[][..], &["--disable-http2"]] {
        let site = site("true", 3);
        visit(&site, options, 3);
        // A page may be on its way to the browser that has been closed.
        let pages = wait_until("scripts in all pages", || {
            let metrics = site.brisk.metrics();
            let pages = metrics.sum("brisk_beacon_ids_total", &[]) as u64;
            let scripts = metrics.sum("brisk_beacon_scripts_total", &["outcome=\"inserted\""]) as u64;
            (scripts == pages).then_some(pages)
        });
        assert!(pages >= 3, "{options:?}");
        assert_eq!(sum(&site.brisk, "brisk_beacons_refused_total", &[]), 0, "{options:?}");
        let by = if options.is_empty() { "protocol=\"h2\"" } else { "protocol=\"h1\"" };
        assert!(sum(&site.brisk, "brisk_page_resources_total", &[by]) >= 3, "{options:?}");
    }
}

/// The facts of the visits that beacons have joined, each with the line of the access log that its request has.
fn visits(brisk: &Brisk, count: usize) -> Vec<(String, Value)> {
    let joined = wait_until("beacons", || {
        let log = brisk.process().stderr();
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains("a beacon joined")).map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    });
    let facts = |line: String| {
        let request =
            line.split("request=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a request");
        let logged = brisk.logged(&format!("\"id\":\"{request}\""));
        (line, serde_json::from_str(&logged).expect("a line of JSON"))
    };
    joined.into_iter().map(facts).collect()
}

/// A number of a line of the log.
fn number(line: &str, key: &str) -> f64 {
    let value = line.split(&format!("{key}=")).nth(1).and_then(|rest| rest.split([' ', '\n']).next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{key} in {line}"))
}

#[test]
fn a_beacon_joins_what_is_known_of_its_own_connection() {
    let tables = format!(
        "visits = true\nearly_data = \"safe\"\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n{POLICY}\n"
    );
    let site = Site::custom("tls.min_version = \"1.2\"", &tables, |setup| {
        let setup = setup.file("www/index.html", "").option("--log").option("info,brisk_beacon=debug");
        pages(&setup.folder().join("www"), 1);
        setup
    });
    for options in [&[][..], &["--ssl-version-max=tls1.2", "--disable-http2"]] {
        visit(&site, options, 1);
    }
    let visits = visits(&site.brisk, 2);
    for (line, logged) in &visits {
        let text = |key: &str| logged[key].as_str().unwrap_or_default().to_owned();
        let resumption = text("resumption");
        let session = match (&*resumption, &*text("resumption_failure")) {
            ("full", "") => "full-new-visitor".to_owned(),
            ("full", failure) => format!("full-{failure}"),
            (resumed, _) => format!("resumed-{resumed}"),
        };
        assert!(line.contains(&format!("session=\"{session}\"")), "{line} {logged}");
        assert_eq!(logged["connection_requests"], 1, "{line} {logged}");
        // Browsers may open a connection ahead: the page says whether it waited for it, by its times or by how long it was held.
        let is_new = line.contains("connection=\"new\"");
        assert!(is_new || !line.contains(" connect=") && !line.contains(" tls="), "{line}");
        assert!(is_new || !line.contains(" handshake="), "{line}");
        assert_eq!(logged["path"], "/0.html");
        // The page waited for at least what the gateway took to answer, and the navigation took longer than that.
        let (wait, ttfb) = (number(line, "wait"), number(line, "ttfb"));
        assert!(wait >= 0.0 && ttfb + 2.0 >= wait, "{line}");
        if is_new && resumption != "0-rtt" {
            let handshake = logged["handshake_us"].as_f64().expect("a time") / 1e3;
            assert!(
                (number(line, "handshake") - handshake).abs() < 0.01 + handshake * 1e-3,
                "{line} {logged}"
            );
        }
    }
    assert!(visits.iter().any(|(_, logged)| logged["resumption"] == "full"));
    for version in ["TLS 1.3", "TLS 1.2"] {
        assert!(visits.iter().any(|(_, logged)| logged["tls"] == version), "{version}");
    }
}

/// At the far end of a link.
fn linked(link: &Link, keys: &str, hops: usize) -> Site {
    let keys = format!("server.https = [\"{SERVER}:0\"]\n{keys}");
    let tables = format!("visits = true\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n{POLICY}\n");
    Site::custom(&keys, &tables, |setup| {
        let setup = setup.file("www/index.html", "").option("--log").option("info,brisk_beacon=debug");
        pages(&setup.folder().join("www"), hops);
        setup.behind(&words_before(&link.server("")))
    })
}

/// A new browser visits the pages over the link, until as many beacons have joined in all. The facts of the last visit.
fn visit_over(link: &Link, site: &Site, count: usize) -> (String, Value) {
    let names = format!("--host-resolver-rules=MAP {NAME} {SERVER}, MAP * ~NOTFOUND");
    let url = format!("https://{NAME}:{}/0.html", site.brisk.https().port());
    let folder = site.brisk.folder().join(format!("visit-{count}"));
    fs::create_dir(&folder).expect("a temporary folder");
    let client = words_before(&link.client(""));
    let _browser = Chromium::behind(&client, &folder, &site.brisk).start(&[&names], &url);
    visits(&site.brisk, count).pop().expect("a visit")
}

#[test]
fn over_a_link_the_wait_of_a_page_is_a_round_trip_and_the_gateways_own_time() {
    let Some(link) = link("delay=100ms,rate=20M,queue=200k") else { return };
    let site = linked(&link, "", 1);
    let mut seen = Vec::new();
    for attempt in 1..=20 {
        let (line, _) = visit_over(&link, &site, attempt);
        let (wait, own, rtt) = (number(&line, "wait"), number(&line, "answered_in"), number(&line, "rtt"));
        // Nothing comes sooner than the link lets it, whatever the machine does meanwhile. Browsers round their clocks.
        assert!(rtt >= 199.0 && wait >= 199.0 && number(&line, "ttfb") >= wait - 2.0, "{line}");
        seen.push((wait, own, rtt));
        // On a busy machine the browser may look at its answer late; on a quiet one the difference is below 5 ms.
        if (wait - own - rtt).abs() <= 100.0 {
            return;
        }
    }
    panic!("the page's wait, the gateway's own time, the round trip: {seen:?}");
}

#[test]
fn a_page_waits_for_the_connection_that_its_browser_opens_before_the_request() {
    let Some(link) = link("delay=25ms,rate=20M,queue=200k") else { return };
    let site = linked(&link, "server.timeouts.idle = \"1s\"", 2);
    // Chromium leaves the first page when it has no connection any more. It knows that the host speaks HTTP/2, so that the request
    // for the second one is held until the connection is there that was opened for the navigation, and has no times of it.
    let leave = "addEventListener('load', () => setTimeout(() => location = '/1.html', 2500))";
    site.brisk.write("www/0.js", leave);
    let mut seen = Vec::new();
    for attempt in 1..=20 {
        let (line, logged) = visit_over(&link, &site, 2 * attempt);
        let is_second = logged["path"] == "/1.html" && logged["resumption"] == "psk";
        if is_second && !line.contains(" connect=") && line.contains("connection=\"new\"") {
            assert!(number(&line, "handshake") >= 49.0, "{line}");
            return;
        }
        // On a busy machine the connection may be opened well before the navigation begins by the browser's clock, and the gateway
        // may close the first one later than the browser needs it.
        seen.push((line, logged));
    }
    panic!("{seen:#?}");
}

/// A page view as a browser asks for it, and the id that its answer has.
fn page_view(stream: &mut TlsStream, more: &str) -> Option<String> {
    let answer = stream.request(&format!(
        "GET /0.html HTTP/1.1\r\nHost: {NAME}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n{more}\r\n"
    ));
    assert_eq!(answer.status(), 200);
    let has_script = answer.text().contains("/.brisk/rum.js?");
    let timings = answer.head.all("server-timing");
    let id = timings.iter().find_map(|value| value.strip_prefix("visit;desc="));
    assert_eq!(id.is_some(), has_script, "{timings:?}");
    id.map(str::to_owned)
}

fn post(stream: &mut TlsStream, host: &str, headers: &str, body: &str) -> u16 {
    let length = body.len();
    let head =
        format!("POST /.brisk/beacon HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.request(&(head + body)).status()
}

const OWN: &str = "Sec-Fetch-Site: same-origin\r\n";

/// Time of a first byte in milliseconds, later than any response of a busy machine, with whose own clock the gateway compares it.
const LATE: u32 = 30_000;

#[track_caller]
fn refused(site: &Site, reason: &str, count: u64) {
    let label = format!("reason=\"{reason}\"");
    assert_eq!(sum(&site.brisk, "brisk_beacons_refused_total", &[&label]), count, "{reason}");
}

#[test]
fn strangers_add_no_visits() {
    let site = site("true", 1);
    let mut stream = site.connect();
    let id = page_view(&mut stream, "").expect("an id");
    let own = format!("id={id}&ttfb={LATE}");
    // What is not from a page of this host.
    for (headers, body) in
        [("", &own), ("Sec-Fetch-Site: cross-site\r\n", &own), ("Origin: https://evil.test\r\n", &own)]
    {
        assert_eq!(post(&mut stream, NAME, headers, body), 204);
    }
    refused(&site, "other-site", 3);
    assert_eq!(post(&mut stream, NAME, &format!("{OWN}Sec-GPC: 1\r\n"), &own), 204);
    refused(&site, "privacy", 1);
    // What nothing was issued for, and what is none.
    let invented = format!("id={}&ttfb=100", "0".repeat(32));
    for (body, reason) in [
        (&*invented, "unknown-id"),
        ("ttfb=100", "unknown-id"),
        ("<script>", "malformed"),
        ("id=1", "malformed"),
    ] {
        let before = sum(&site.brisk, "brisk_beacons_refused_total", &[&format!("reason=\"{reason}\"")]);
        assert_eq!(post(&mut stream, NAME, OWN, body), 204);
        refused(&site, reason, before + 1);
    }
    assert_eq!(joined(&site.brisk), 0);
    // The page itself, once.
    assert_eq!(post(&mut stream, NAME, OWN, &format!("{own}&h2=1")), 204);
    assert_eq!(joined(&site.brisk), 1);
    assert_eq!(post(&mut stream, NAME, OWN, &own), 204);
    refused(&site, "unknown-id", 3);
    // Values that cannot be true.
    for (number, body) in [(1, "ttfb=-1"), (2, "ttfb=5000&lcp=500000"), (3, "load=86400001")] {
        let id = page_view(&mut stream, "").expect("an id");
        assert_eq!(post(&mut stream, NAME, OWN, &format!("id={id}&{body}")), 204);
        refused(&site, "implausible", number);
    }
    assert_eq!(joined(&site.brisk), 1);
    assert!(!site.brisk.ask_admin("/metrics").text().contains("<script>"));
}

#[test]
fn a_visitor_who_asks_for_privacy_is_not_measured() {
    let site = site("true", 1);
    let mut stream = site.connect();
    assert_eq!(page_view(&mut stream, "Sec-GPC: 1\r\n"), None);
    assert!(page_view(&mut stream, "").is_some());
    assert_eq!(sum(&site.brisk, "brisk_beacon_ids_total", &[]), 1);
}

#[test]
fn what_is_no_page_view_and_what_is_not_drawn_stays() {
    let site = site("{ share = 0.0 }", 1);
    let mut stream = site.connect();
    assert_eq!(page_view(&mut stream, ""), None);
    let site = self::site("{ insert = false }", 1);
    let mut stream = site.connect();
    let answer = stream.get(NAME, "/0.html");
    assert_eq!((answer.header("server-timing"), answer.text().contains("rum.js")), (None, false));
    let page_view = format!(
        "GET /0.html HTTP/1.1\r\nHost: {NAME}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\r\n"
    );
    let answer = stream.request(&page_view);
    assert!(answer.header("server-timing").is_some_and(|value| value.starts_with("visit;desc=")));
    assert!(!answer.text().contains("rum.js"), "the page has it already");
}

#[test]
fn a_page_with_thousands_of_views_has_few() {
    let site = site("true", 1);
    let begun = Instant::now();
    let mut stream = site.connect();
    let views =
        |kind: &str| sum(&site.brisk, "brisk_beacon_views_total", &[&format!("navigation=\"{kind}\"")]);
    let id = page_view(&mut stream, "").expect("an id");
    // The load, then views without it, also after a return.
    let load = format!("id={id}&nav=navigate&ttfb={LATE}");
    assert_eq!(
        post(&mut stream, NAME, OWN, &format!("{load}&view=soft&page=/a&inp=8&view=soft&page=/b")),
        204
    );
    assert_eq!((views("navigate"), views("soft")), (1, 2));
    let back = format!("id={id}&view=back_forward_cache&page=/a&ttfb=0&fcp=9&lcp=9&cls=0&view=soft&page=/b");
    assert_eq!(post(&mut stream, NAME, OWN, &back), 204);
    assert_eq!((views("back_forward_cache"), views("soft"), joined(&site.brisk)), (1, 3, 2));
    // Views of unknown kinds, with metrics of a load, or with invalid paths.
    let huge = format!("view=soft&page=/{}", "x".repeat(5000));
    for (number, wrong) in
        ["view=reload", "view=soft&lcp=100", "view=soft&page=a", &huge].into_iter().enumerate()
    {
        assert_eq!(post(&mut stream, NAME, OWN, &format!("id={id}&{wrong}")), 204);
        refused(&site, "malformed", number as u64 + 1);
    }
    assert_eq!(post(&mut stream, NAME, OWN, &format!("id={id}&view=soft&inp=500000")), 204);
    refused(&site, "implausible", 1);
    // Thousands of views of one address, which may have 60, and two more in each second.
    wait_until("refused beacons", || {
        for _ in 0..100 {
            let many: Vec<_> = (0..60).map(|number| format!("&view=soft&page=/p{number}")).collect();
            assert_eq!(post(&mut stream, NAME, OWN, &format!("id={id}{}", many.concat())), 204);
        }
        (sum(&site.brisk, "brisk_beacons_refused_total", &["reason=\"client-rate\""]) > 30).then_some(())
    });
    let most = 64 + 2 * (begun.elapsed().as_secs() + 1);
    assert!(views("soft") <= most, "{} of {most}", views("soft"));
    site.assert_alive();
}

#[test]
fn large_and_many_beacons_cost_their_senders_alone() {
    let site = site("true", 1);
    site.brisk.write("large", "x".repeat(1 << 20));
    let file = format!("@{}", site.brisk.folder().join("large").display());
    let too_large = || sum(&site.brisk, "brisk_beacons_refused_total", &["reason=\"too-large\""]);
    // Without a length, what is too much is seen when it comes.
    for way in [
        ["--http1.1", "X-A: b"],
        ["--http1.1", "Transfer-Encoding: chunked"],
        ["--http2", "X-A: b"],
        ["--http2", "Content-Length:"],
    ] {
        let options =
            ["--header", "Sec-Fetch-Site: same-origin", "--header", "Expect:", "--data-binary", &file];
        let shown = ["--output", "/dev/null", "--write-out", "%{http_code}", way[0], "--header", way[1]];
        // A busy machine may exceed the time for a beacon, or that for the rest of a refused upload.
        let status = wait_until("a response to a large beacon", || {
            let before = too_large();
            let finished = site.curl(&[&options[..], &shown].concat(), "/.brisk/beacon");
            (finished.status.success() && too_large() == before + 1).then_some(finished.stdout)
        });
        assert_eq!(status, "204", "{way:?}");
    }
    // Many from one address: the first are read, then none.
    let mut stream = site.connect();
    for _ in 0..300 {
        assert_eq!(post(&mut stream, NAME, OWN, "ttfb=1"), 204);
    }
    let read = sum(&site.brisk, "brisk_beacons_refused_total", &["reason=\"unknown-id\""]);
    let over = sum(&site.brisk, "brisk_beacons_refused_total", &["reason=\"client-rate\""]);
    assert!(over >= 100 && read + over == 300, "{read} {over}");
    site.assert_alive();
}

/// Ends a flood, also where the test fails meanwhile.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_flood_from_one_address_leaves_the_beacons_of_others_alone() {
    let site = site("true", 1);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&ends);
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stream = site.connect();
                let flood = format!(
                    "POST /.brisk/beacon HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 6\r\n{OWN}\r\nttfb=1"
                )
                .repeat(50);
                while !ends.load(Ordering::SeqCst) {
                    assert_eq!(stream.request(&flood).status(), 204);
                    for _ in 1..50 {
                        assert_eq!(stream.response().status(), 204);
                    }
                }
            });
        }
        wait_until("a flood", || {
            let refused = sum(&site.brisk, "brisk_beacons_refused_total", &["reason=\"client-rate\""]);
            (refused >= 2000).then_some(())
        });
        let other = ["--interface", "127.0.0.2", "--header", "Sec-Fetch-Site: same-origin"];
        let view = [
            "--header",
            "Sec-Fetch-Mode: navigate",
            "--header",
            "Sec-Fetch-Dest: document",
            "--output",
            "/dev/null",
        ];
        let shown = ["--write-out", "%header{server-timing}"];
        let timing = site.curl(&[&other[..], &view, &shown].concat(), "/0.html").success();
        let id = timing.strip_prefix("visit;desc=").expect("an id").to_owned();
        let beacon = format!("id={id}&ttfb={LATE}");
        site.curl(&[&other[..], &["--data", &beacon]].concat(), "/.brisk/beacon").success();
    });
    assert_eq!(joined(&site.brisk), 1);
    assert_eq!(sum(&site.brisk, "brisk_beacons_refused_total", &["reason=\"rate\""]), 0);
    site.assert_alive();
}

#[test]
fn reports_of_browsers_are_counted_by_type() {
    let site = site("{ network_errors = true }", 1);
    let mut stream = site.connect();
    let answer = stream.request(&format!(
        "GET /0.html HTTP/1.1\r\nHost: {NAME}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\r\n"
    ));
    let group = answer.header("report-to").expect("a group of endpoints");
    assert!(
        group.contains(&format!("https://{NAME}/.brisk/beacon")) && answer.header("nel").is_some(),
        "{group}"
    );
    let json =
        "[{\"type\":\"network-error\",\"age\":1,\"body\":{\"type\":\"tcp.reset\"}},{\"type\":\"<b>\"}]";
    let kind = "Content-Type: application/reports+json\r\n";
    assert_eq!(post(&mut stream, NAME, kind, json), 204);
    assert_eq!(sum(&site.brisk, "brisk_network_errors_total", &["type=\"tcp.reset\""]), 1);
    assert_eq!(sum(&site.brisk, "brisk_browser_reports_total", &["type=\"other\""]), 1);
    assert_eq!(sum(&site.brisk, "brisk_beacons_refused_total", &[]), 0);
}

#[test]
fn the_script_is_kept_by_browsers_under_the_name_of_its_version() {
    let site = site("true", 1);
    let page = site
        .curl(&["--header", "Sec-Fetch-Mode: navigate", "--header", "Sec-Fetch-Dest: document"], "/0.html")
        .success();
    let path = page.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
    let head = site.curl(&["--head"], path).success().to_lowercase();
    for line in
        ["cache-control: public, max-age=31536000, immutable", "content-type: text/javascript; charset=utf-8"]
    {
        assert!(head.contains(line), "{line} is missing: {head}");
    }
    let by_hand = site.curl(&["--head"], "/.brisk/rum.js").success().to_lowercase();
    assert!(by_hand.contains("cache-control: public, max-age=3600"), "{by_hand}");
    let size: usize = site
        .curl(
            &[
                "--output",
                "/dev/null",
                "--write-out",
                "%{size_download}",
                "--header",
                "Accept-Encoding: gzip",
            ],
            path,
        )
        .success()
        .parse()
        .expect("a size");
    assert!(size < 2048, "{size}");
    let other = site.curl(
        &["--request", "PUT", "--output", "/dev/null", "--write-out", "%{http_code} %header{allow}"],
        "/.brisk/beacon",
    );
    assert_eq!(other.success(), "405 GET, POST");
    site.brisk.logged("/.brisk/beacon");
}

#[test]
fn ids_outlive_a_reload_and_are_of_one_host() {
    let site = site("true", 1);
    let mut stream = site.connect();
    let id = page_view(&mut stream, "").expect("an id");
    let config = fs::read_to_string(site.brisk.folder().join("brisk.toml")).expect("the configuration");
    site.brisk.write("brisk.toml", config.replace("visits = true", "visits = { share = 1.0 }"));
    site.brisk.reload();
    let mut stream = site.connect();
    assert_eq!(post(&mut stream, NAME, OWN, &format!("id={id}&ttfb={LATE}")), 204);
    assert_eq!(joined(&site.brisk), 1);
}
