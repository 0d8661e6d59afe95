//! Dashboard page in Chromium: its contents, resistance to script injection, and accessibility.

use std::fs;

use brisk_behaviour::dashboard::{ON, WITH_TOKEN, with_token};
use brisk_behaviour::site::{NAME, NAMES, Site, proxy_to, setup};
use brisk_testkit::ca::TestCa;
use brisk_testkit::process::wait_until;
use brisk_testkit::programs::program;
use serde_json::Value;

use crate::chromium::Chromium;
use crate::devtools::Page;
use brisk_testkit::brisk::{Brisk, base, host};

/// Markup that would run a script in several ways.
const PAYLOAD: &str = "<img src=x onerror=globalThis.owned=1><script>globalThis.owned=1</script>";

/// The dashboard of a gateway, open in Chromium.
pub(crate) fn page(brisk: &Brisk) -> Page {
    let chromium = Chromium::new(brisk.folder(), brisk);
    let browser = chromium.start(&[], "about:blank");
    let mut page = Page::of(browser, &brisk.folder().join("profile"));
    page.open(&format!("http://{}/", brisk.dashboard()));
    page
}

#[test]
fn a_connection_just_made_is_on_the_page() {
    let site = Site::custom(ON, "", |setup| setup);
    let mut page = page(&site.brisk);
    page.wait_for("document.getElementById('state-text').textContent === 'live'");
    for _ in 0..3 {
        assert_eq!(site.get("/").status(), 200);
    }
    let has =
        |id: &str, text: &str| format!("document.getElementById('{id}').textContent.includes('{text}')");
    page.wait_for(&has("slow-table", NAME));
    page.wait_for(&has("shake-table", "X25519MLKEM768"));
    page.wait_for(&has("certificate-table", NAME));
    page.wait_for("document.querySelectorAll('#c-requests canvas').length === 1");
    page.wait_for("document.querySelectorAll('#slow-table .steps span').length >= 5");
    // It stands still, and goes on with what it knows.
    let click = "document.getElementById('pause').click()";
    page.script(click);
    page.wait_for("document.getElementById('state-text').textContent === 'paused'");
    page.script(click);
    page.wait_for("document.getElementById('state-text').textContent === 'live'");
    // Nothing was refused by the policy, and nothing came from elsewhere.
    let loaded = page.script("performance.getEntriesByType('resource').map(one => new URL(one.name).origin)");
    let own = format!("http://{}", site.brisk.dashboard());
    assert!(loaded.as_array().expect("a list").iter().all(|origin| *origin == *own), "{loaded}");
    let wide = page.script("document.documentElement.scrollWidth <= innerWidth");
    assert_eq!(wide, true);
    page.screen(390, 844, "dark");
    page.wait_for("document.documentElement.scrollWidth <= innerWidth");
}

#[test]
fn nothing_that_is_shown_is_ever_executed() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let group = "a<b>bold</b>".to_owned() + PAYLOAD;
    let route = format!("\n[[host.route]]\npath = \"/\"\nupstream = {group:?}\n");
    let upstream = format!("\n[upstream.{group:?}]\nservers = [\"http://127.0.0.1:1\"]\n");
    let config = format!("{}{}{route}{upstream}", base(ON), host(&NAMES, &[&leaf]));
    let brisk = setup().config(&config).start();
    let site = Site { ca, brisk };
    // What strangers choose: path, host and user agent of a request that fails, and a name that nobody has.
    let path = format!("/{}", PAYLOAD.replace('<', "%3c").replace('>', "%3e").replace(' ', "%20"));
    let requests = [
        format!(
            "GET {path}?{PAYLOAD} HTTP/1.1\r\nHost: {NAME}\r\nUser-Agent: {PAYLOAD}\r\nConnection: close\r\n\r\n"
        ),
        format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\nUser-Agent: {PAYLOAD}\r\nConnection: close\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {PAYLOAD}\r\nConnection: close\r\n\r\n"),
    ];
    for request in requests {
        let mut stream = site.connect();
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("a server that reads");
        let _ = brisk_testkit::http1::Message::read_response(&mut stream);
    }
    let mut page = page(&site.brisk);
    let shows = |id: &str| {
        format!("document.getElementById('{id}').textContent.includes('onerror=globalThis.owned')")
    };
    for id in ["problem-table", "upstream-table"] {
        page.wait_for(&shows(id));
    }
    assert_eq!(page.script("globalThis.owned === undefined"), true);
    assert_eq!(
        page.script("document.querySelectorAll('main img, main script, main b:not(.tile b)').length"),
        0
    );
}

/// What axe-core finds wrong in earnest.
pub(crate) fn serious(page: &mut Page) -> Vec<Value> {
    let axe = fs::read_to_string(program("axe.min.js")).expect("axe-core");
    page.script(&(axe + "; 1"));
    let found = page.script(
        "axe.run().then(found => found.violations.filter(one => ['serious', 'critical'].includes(one.impact))
         .map(one => [one.id, one.nodes.map(node => node.html + ' ' + node.failureSummary)]))",
    );
    found.as_array().expect("a list").clone()
}

#[test]
fn all_can_use_it() {
    let site = Site::custom(ON, &proxy_to(&["http://127.0.0.1:1"]), |setup| setup);
    assert_eq!(site.get("/").status(), 502);
    let mut page = page(&site.brisk);
    page.wait_for("document.querySelectorAll('#problem-table rect').length > 0");
    page.wait_for("document.querySelectorAll('#slow-table .steps').length > 0");
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light")] {
        page.screen(width, 900, scheme);
        page.script("document.querySelectorAll('details').forEach(one => one.open = true)");
        assert_eq!(serious(&mut page), Vec::<Value>::new(), "{width} {scheme}");
    }
    // By keyboard alone: the first stop leads past the navigation.
    let key = |kind: &str| serde_json::json!({ "type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9 });
    page.call("Input.dispatchKeyEvent", &key("keyDown"));
    page.call("Input.dispatchKeyEvent", &key("keyUp"));
    page.wait_for("document.activeElement.className === 'skip'");
}

/// Elements that are wider than the page, or whose content is cut off. Content that scrolls is not cut off, but scrolls sideways
/// on telephones only.
const CUT: &str = "[...document.querySelectorAll('body *')].filter(one => {
    const style = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    if (!box.width || one.closest('svg, .u-wrap, .hidden, .skip, .switch input')) return false;
    const cut = one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 && style.overflowX !== 'visible';
    const outside = box.right > innerWidth + 1 && !one.closest('.scroll, pre');
    return outside || (cut && (innerWidth > 600 || style.overflowX !== 'auto'));
}).map(one => one.outerHTML.slice(0, 200))";

#[test]
fn nothing_is_cut_off_on_any_screen() {
    let site = Site::custom(ON, &proxy_to(&["http://127.0.0.1:1"]), |setup| setup);
    assert_eq!(site.get("/").status(), 502);
    let mut page = page(&site.brisk);
    page.wait_for("document.querySelectorAll('#problem-table rect').length > 0");
    page.wait_for("document.querySelectorAll('#slow-table .steps').length > 0");
    page.wait_for("document.querySelectorAll('.plot canvas').length === 4");
    for width in [1600, 1280, 390] {
        page.screen(width, 900, "light");
        page.wait_for(&format!("{CUT}.length === 0"));
        // Charts precede tables.
        let order = "document.querySelector('.plot').compareDocumentPosition(document.getElementById('problem-table')) & 4";
        assert_eq!(page.script(order), 4);
    }
}

#[test]
fn steps_of_connections_have_no_colour_of_a_failure() {
    let site = Site::custom(ON, "", |setup| setup);
    assert_eq!(site.get("/").status(), 200);
    let mut page = page(&site.brisk);
    page.wait_for("document.querySelectorAll('#l-steps li').length === 6");
    for scheme in ["light", "dark"] {
        page.screen(1280, 900, scheme);
        // Red and amber have much more red than blue.
        let warm = page.script(
            "[...document.querySelectorAll('#l-steps li')].map(one => getComputedStyle(one, '::before').backgroundColor)
             .filter(colour => { const [red, , blue] = colour.match(/\\d+/g).map(Number); return red > blue + 20 })",
        );
        assert_eq!(warm, serde_json::json!([]), "{scheme}");
    }
}

#[test]
fn the_documentation_and_the_first_page_are_for_all() {
    let brisk =
        setup().option("--listen").option("127.0.0.1:0").option("--state-dir").option("state").start();
    let mut page = page(&brisk);
    let pages = [
        format!("https://localhost:{}/", brisk.https().port()),
        format!("http://{}/docs/", brisk.dashboard()),
        format!("http://{}/docs/dashboard", brisk.dashboard()),
        format!("http://{}/docs/configuration", brisk.dashboard()),
    ];
    for url in pages {
        page.open(&url);
        assert_eq!(page.script("document.querySelectorAll('h1').length"), 1, "{url}");
        for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light")] {
            page.screen(width, 900, scheme);
            assert_eq!(serious(&mut page), Vec::<Value>::new(), "{url} {width} {scheme}");
            page.wait_for("document.documentElement.scrollWidth <= innerWidth");
        }
    }
}

#[test]
fn all_can_log_in() {
    let site = Site::custom(WITH_TOKEN, "", with_token);
    let mut page = page(&site.brisk);
    page.wait_for("document.getElementById('token') !== null");
    for scheme in ["light", "dark"] {
        page.screen(390, 844, scheme);
        assert_eq!(serious(&mut page), Vec::<Value>::new(), "{scheme}");
    }
    page.script("document.getElementById('token').value = 'correct-horse-battery-staple'; setTimeout(() => document.forms[0].requestSubmit())");
    page.wait_for("document.getElementById('state-text')?.textContent === 'live'");
    assert_eq!(page.script("document.cookie"), "", "no script reads the cookie");
    page.script("setTimeout(() => document.querySelector('#logout button').click())");
    page.wait_for("document.getElementById('token') !== null");
}

#[test]
fn experiments_are_on_the_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let keys = format!("{ON}\nvisits.enabled = true\nvisits.folder = \"{}\"\n", folder.path().display());
    let tables =
        "visits = true\n\n[experiment.tickets]\nsetting = \"tls.tickets_per_handshake\"\nvalues = [2]\n";
    let site = Site::custom(&keys, tables, |setup| setup);
    wait_until("the experiment", || {
        (site.brisk.metrics().sum("brisk_experiment_decision", &[]) > 0.0).then_some(())
    });
    let mut page = page(&site.brisk);
    for text in [
        "tickets, by first byte",
        "tls.tickets_per_handshake = 1",
        "tls.tickets_per_handshake = 2",
        "running",
        "Nothing to compare: no page view of its hosts was measured yet.",
    ] {
        page.wait_for(&format!("document.getElementById('v-experiments').textContent.includes('{text}')"));
    }
    page.script("document.querySelectorAll('details').forEach(one => one.open = true)");
    assert_eq!(serious(&mut page), Vec::<Value>::new());
}
