//! HTTP/3 with Chromium and Firefox: pages, returning connections with early data, and WebSocket.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use brisk_behaviour::h3_client::h3_site;
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_behaviour::websocket::echo;
use brisk_testkit::process::{Process, wait_until};
use serde_json::Value;

use crate::chromium::Chromium;
use crate::firefox::firefox;

/// Requests again each time after its connection was closed.
const PAGE: &str = "<!doctype html><script>
const pause = ms => new Promise(done => setTimeout(done, ms));
(async () => {
  for (let turn = 1; turn <= 1000; turn++) {
    await pause(1500);
    await fetch('/turn-' + turn, {cache: 'no-store'}).catch(() => {});
  }
})();
</script>";

/// Site whose idle connections end soon.
fn returning() -> Site {
    let route = "\n[[host.route]]\npath = \"/\"\nearly_data = \"safe\"\n";
    let page = format!("{route}respond = {{ body = {PAGE:?}, content_type = \"text/html\" }}\n");
    h3_site("server.timeouts.idle = \"300ms\"\n", &page)
}

/// Lines of the access log.
fn lines(site: &Site) -> Vec<Value> {
    let line = |line: String| serde_json::from_str::<Value>(&line).expect("JSON");
    site.brisk.access_log().into_iter().map(line).collect()
}

/// Line of the access log about the request for this path.
fn logged(site: &Site, path: &str) -> Value {
    wait_until(path, || lines(site).into_iter().find(|line| line["path"] == path))
}

/// Checks that returning connections begin with early data.
fn assert_early(site: &Site) {
    // A connection that a busy machine closes or opens late carries a request that is not early, or not over HTTP/3.
    wait_until("two returns with early data over HTTP/3", || {
        let is_early = |line: &&Value| {
            let is_return = line["path"].as_str().is_some_and(|path| path.starts_with("/turn-"));
            is_return && line["protocol"] == "HTTP/3.0" && line["resumption"] == "0-rtt"
        };
        (lines(site).iter().filter(is_early).count() >= 2).then_some(())
    });
}

/// Browsers that are started one after another, until one has a page: a browser gives up if a busy machine is late with the
/// handshake over QUIC.
const BROWSERS: usize = 8;

/// Time for a browser to request a page.
const START: Duration = Duration::from_secs(100);

/// Starts Chromium, anew until it has requested `path` over HTTP/3.
fn chromium(site: &Site, path: &str) -> Process {
    let [quic, address] = forced(site);
    for attempt in 0..BROWSERS {
        let folder = site.brisk.folder().join(format!("visit-{attempt}"));
        fs::create_dir(&folder).expect("a temporary folder");
        let running = Chromium::new(&folder, &site.brisk).start(&[&quic, &address], &site.url(path));
        let until = Instant::now() + START;
        while Instant::now() < until {
            if let Some(line) = lines(site).into_iter().find(|line| line["path"] == path) {
                assert_eq!(line["protocol"], "HTTP/3.0", "{line}");
                return running;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("no request for {path}: {:#?}\n{}", lines(site), site.brisk.process().stderr())
}

/// Options that let Chromium connect by QUIC at once. The name has one address: `localhost` has two, of which QUIC tries
/// only the first.
fn forced(site: &Site) -> [String; 2] {
    let port = site.brisk.https().port();
    [
        format!("--origin-to-force-quic-on={NAME}:{port}"),
        format!("--host-resolver-rules=MAP {NAME} 127.0.0.1"),
    ]
}

#[test]
fn chromium_loads_a_page_over_http3() {
    let site = h3_site("", "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"here\" }\n");
    let file = site.brisk.folder().join("net-log.json");
    let log = format!("--log-net-log={}", file.display());
    let browser = Chromium::new(site.brisk.folder(), &site.brisk);
    let [quic, address] = forced(&site);
    let mut pages = Vec::new();
    // On a busy machine, Chromium may give up the handshake.
    let is_loaded = (0..BROWSERS).any(|_| {
        pages.push(browser.run(&[&quic, &address, &log, "--dump-dom"], &site.url("/page")));
        pages.iter().any(|page| page.contains("here"))
    });
    assert!(is_loaded, "{pages:#?}");
    assert_eq!(logged(&site, "/page")["protocol"], "HTTP/3.0");
    let log: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a net log")).expect("JSON");
    let events = |name: &str| {
        let kind = &log["constants"]["logEventTypes"][name];
        assert!(kind.is_u64(), "{name} is no event");
        log["events"].as_array().expect("events").iter().filter(|event| event["type"] == *kind).count()
    };
    assert!(events("HTTP3_HEADERS_SENT") > 0 && events("HTTP3_HEADERS_DECODED") > 0);
    assert_eq!(events("HTTP2_SESSION_SEND_HEADERS"), 0);
}

#[test]
fn chromium_returns_with_early_data() {
    let site = returning();
    let _running = chromium(&site, "/");
    assert_early(&site);
}

/// Opens a socket, and requests the path that its message names.
const CHAT: &str = r"<script>
const socket = new WebSocket('wss://' + location.host + '/chat');
socket.onopen = () => socket.send('hello');
socket.onmessage = event => fetch('/said-' + event.data);
</script>";

#[test]
fn chromium_has_a_websocket_beside_its_page() {
    let origin = echo();
    let page = format!(
        "\n[[host.route]]\npath = \"/page\"\nrespond = {{ body = {CHAT:?}, content_type = \"text/html\" }}\n\
         \n[[host.route]]\npath = \"/chat\"\nupstream = \"app\"\n{}",
        upstream(&[&origin.url()])
    );
    let site = h3_site("", &page);
    let _running = chromium(&site, "/page");
    assert_eq!(logged(&site, "/said-hello")["protocol"], "HTTP/3.0");
}

#[test]
fn firefox_returns_with_early_data() {
    // Firefox chooses TCP for a page if a busy machine is late with the handshake over QUIC.
    let visit = |_| {
        let site = returning();
        let port = site.brisk.https().port();
        let preferences = [
            format!("\"network.http.http3.alt-svc-mapping-for-testing\", \"localhost;h3=:{port}\""),
            "\"network.http.http3.disable_when_third_party_roots_found\", false".to_owned(),
            "\"network.http.http3.enable\", true".to_owned(),
        ];
        let running = firefox(&site, &preferences, "/");
        (logged(&site, "/")["protocol"] == "HTTP/3.0").then_some((site, running))
    };
    let (site, _running) = (0..BROWSERS).find_map(visit).expect("a page over HTTP/3");
    assert_early(&site);
}
