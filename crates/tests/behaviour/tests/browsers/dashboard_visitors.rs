//! Charts of visitors' waiting times on the dashboard, with marks of deployments.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use brisk_behaviour::dashboard::ON;
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, NAMES, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::process::{run, wait_until};
use brisk_visits::{Browser, Metric, Settings, Visit, Visits};
use brisk_wire::registry::{CipherSuite, ProtocolVersion};
use serde_json::{Value, json};

use crate::dashboard_page::{page, serious};
use crate::devtools::Page;

/// Visits of the last hour: the largest paint takes 5 s, in Firefox 1 s; interactions take 100 ms.
fn visitors(folder: &Path) {
    let visits = Visits::open(folder, Settings::default()).expect("a thread");
    for number in 0..600_u16 {
        let mut visit = Visit::new("site.test".into(), "/".into());
        visit.at = SystemTime::now() - Duration::from_secs(u64::from(number) * 5);
        // The latest minute may have one visit only, which is then one of Chrome.
        visit.browser = if number % 3 == 2 { Browser::Firefox } else { Browser::Chrome };
        visit.page = Some(["site.test/", "site.test/item/*"][usize::from(number % 3 == 2)].into());
        let paint = if visit.browser == Browser::Firefox { 1000.0 } else { 5000.0 };
        let suites = [CipherSuite::TLS_AES_128_GCM_SHA256, CipherSuite::TLS_CHACHA20_POLY1305_SHA256];
        visit.suite = Some(suites[usize::from(visit.browser == Browser::Firefox)]);
        visit.version = Some(ProtocolVersion::TLS1_3);
        for (metric, value) in [
            (Metric::LargestPaint, paint),
            (Metric::FirstPaint, 900.0),
            (Metric::FirstByte, 300.0),
            (Metric::Wait, 200.0),
            (Metric::Interaction, 100.0),
            (Metric::Shift, 0.05),
            (Metric::Load, 2.0 * paint),
        ] {
            assert!(visit.measures.set(metric, value));
        }
        visits.record(visit);
    }
    assert!(visits.close(LIMIT), "{:?}", visits.status());
}

/// Place of a point of the quickest page in the chart by value.
const POINT: &str = "(async () => {
  const over = document.querySelector('#v-lines .u-over');
  over.scrollIntoView({ block: 'center', behavior: 'instant' });
  // Chromium finds the target of a click in the last frame.
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const box = over.getBoundingClientRect();
  // The scale ends 15 % above the highest value, 5 s; the page has 1 s.
  return [box.left + box.width * 0.55, box.top + box.height * (1 - 1 / 5.75)];
})()";

/// Clicks on [`POINT`] as a visitor with a mouse does, until the page shows the figures of the quickest page. A refresh of the page
/// between the search for the point and the click replaces the chart.
fn click_on_point(page: &mut Page) {
    wait_until("the figures of one page", || {
        let place = page.script(POINT);
        for (kind, button) in [("mouseMoved", "none"), ("mousePressed", "left"), ("mouseReleased", "left")] {
            let event =
                json!({ "type": kind, "x": place[0], "y": place[1], "button": button, "clickCount": 1 });
            page.call("Input.dispatchMouseEvent", &event);
        }
        (page.script("document.getElementById('v-page').value") == "site.test/item/*").then_some(())
    });
}

#[test]
fn charts_have_thresholds_lines_by_value_and_marks_of_deployments() {
    let folder = tempfile::tempdir().expect("a folder");
    visitors(folder.path());
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let keys = format!("{ON}\nvisits.enabled = true\nvisits.folder = \"{}\"\n", folder.path().display());
    let config = format!("{}{}visits = true\n", base(&keys), host(&NAMES, &[&leaf]));
    let site = Site { brisk: setup().config(&config).start(), ca };
    let mark = |name: &str| {
        let mut mark = Command::new(brisk_program());
        run(mark.args(["mark", name, "--config"]).arg(site.brisk.folder().join("brisk.toml")), b"", LIMIT)
    };
    mark("v1.4.2").success();
    assert_eq!(mark("two\nlines").status.code(), Some(2));

    let mut page = page(&site.brisk);
    page.screen(1280, 1000, "light");
    page.wait_for("document.querySelectorAll('#v-vitals canvas').length === 6");
    let says = |metric: &str| format!("document.getElementById('v-{metric}-name').textContent");
    // The histograms of the store have an error of 1 %.
    page.wait_for(&format!("/^largest paint \\(LCP\\): 5\\.0.* s, poor$/.test({})", says("lcp")));
    page.wait_for(&format!("{} === 'layout shift (CLS): 0.05, good'", says("cls")));
    page.wait_for("document.querySelectorAll('#v-lines canvas').length === 1");
    // By browser.
    let choose = |id: &str, value: &str| {
        format!(
            "{{ const of = document.getElementById('{id}'); of.value = '{value}'; of.dispatchEvent(new Event('change')); }} 0"
        )
    };
    page.script(&choose("v-metric", "lcp"));
    page.script(&choose("v-by", "browser"));
    let legend = "document.getElementById('l-lines').textContent";
    page.wait_for(&format!("{legend}.includes('chrome (400)') && {legend}.includes('firefox (200)')"));
    // One page, by its row, and all again.
    page.script("document.querySelector('#v-pages button[value=\"site.test/item/*\"]').click()");
    page.wait_for("document.getElementById('v-lcp-name').textContent.startsWith('largest paint (LCP): 1.0')");
    page.wait_for(&format!("{legend}.includes('firefox (200)') && !{legend}.includes('chrome')"));
    let spread = "document.getElementById('v-spread').textContent";
    page.wait_for(&format!("{spread}.includes('of site.test/item/*')"));
    assert_eq!(
        page.script(&format!("/largest paint \\(LCP\\)2001\\.0\\d s100 %0 %0 %/.test({spread})")),
        true
    );
    page.script(&choose("v-page", ""));
    page.wait_for(&format!("{legend}.includes('chrome (400)')"));
    // One page, by a click on a point of its line.
    page.script(&choose("v-by", "page"));
    page.wait_for(&format!("{legend}.includes('site.test/ (400)')"));
    click_on_point(&mut page);
    page.wait_for("document.getElementById('v-lcp-name').textContent.startsWith('largest paint (LCP): 1.0')");
    page.script(&choose("v-page", ""));
    page.wait_for(&format!("{legend}.includes('site.test/ (400)')"));
    // Time of the load event by version and suite, as the published measurements group it.
    page.script(&choose("v-metric", "load"));
    page.script(&choose("v-by", "version"));
    page.script(&choose("v-and", "suite"));
    let pairs = "document.getElementById('v-pairs').textContent";
    for part in
        ["by version and suite", "TLS_CHACHA20_POLY1305_SHA256", "10.0", " s (400)", "2.0", " s (200)"]
    {
        page.wait_for(&format!("{pairs}.includes('{part}')"));
    }
    // Before and after the deployment.
    page.wait_for(
        "[...document.getElementById('v-at').options].some(one => one.textContent.endsWith('v1.4.2'))",
    );
    page.script(
        "{ const at = document.getElementById('v-at'); at.value = at.options[1].value; at.dispatchEvent(new Event('change')); } 0",
    );
    page.wait_for("document.getElementById('v-change').textContent.includes('largest paint (LCP)')");
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light")] {
        page.screen(width, 900, scheme);
        page.wait_for("document.documentElement.scrollWidth <= innerWidth");
        assert_eq!(serious(&mut page), Vec::<Value>::new(), "{width} {scheme}");
    }
    // A reload is a mark too.
    assert!(site.brisk.reload().contains("reloaded"));
    wait_until("the marks of the deployment and of the reload", || {
        let marks = std::fs::read_to_string(folder.path().join("marks")).expect("marks");
        marks.lines().filter_map(|line| line.split(' ').nth(1)).eq(["deployment", "reload"]).then_some(())
    });
}
