//! Page views beyond the first load, in Chromium and Firefox: soft navigations, returns from the back/forward cache and
//! prerendered pages. The pages drive themselves and end at a text file, so that no driver changes their behaviour.

use std::fs;
use std::time::{Duration, Instant};

use brisk_behaviour::site::Site;
use brisk_testkit::process::{Process, wait_until};

use crate::chromium::Chromium;
use crate::devtools::Page;
use crate::firefox::firefox;

/// A page with the script of its name.
fn page(name: &str, head: &str) -> String {
    format!(
        "<!doctype html><html><head><meta charset=utf-8><title>{name}</title>{head}</head>\
         <body><h1>page {name}</h1><script src=/{name}.js></script></body></html>"
    )
}

/// A site with these pages and scripts of a host with `visits`.
fn site(pages: &[(&str, &str, &str)]) -> Site {
    let tables = "visits = true\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n";
    Site::custom("visits.enabled = true", tables, |setup| {
        let setup = setup.file("www/index.html", "").option("--log").option("info,brisk_beacon=debug");
        let folder = setup.folder().join("www");
        let script =
            format!("{API}const pause = ms => new Promise(done => setTimeout(done, ms));\n{PAINTED}");
        for (name, head, code) in pages {
            fs::write(folder.join(format!("{name}.html")), page(name, head)).expect("a page");
            fs::write(folder.join(format!("{name}.js")), format!("{script}{code}")).expect("a script");
        }
        fs::write(folder.join("end.txt"), "end").expect("a file");
        setup
    })
}

/// Says whether the browser has the Navigation API. The page may end before the response.
const API: &str = "fetch(`/navigation-${Boolean(window.navigation)}`, { keepalive: true });\n";

/// Resolves after the next frame.
const PAINTED: &str =
    "const painted = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));\n";

/// A joined view, from the log.
#[derive(Debug, PartialEq)]
struct View {
    navigation: String,
    path: String,
    line: String,
}

impl View {
    fn has(&self, metric: &str) -> bool {
        self.line.contains(&format!(" {metric}="))
    }

    fn text(&self, metric: &str) -> &str {
        let value = self.line.split(&format!(" {metric}=")).nth(1);
        value.and_then(|rest| rest.split(' ').next()).unwrap_or_else(|| panic!("{metric} in {}", self.line))
    }

    fn number(&self, metric: &str) -> f64 {
        self.text(metric).parse().expect("a number")
    }

    fn is(&self) -> (&str, &str) {
        (&self.navigation, &self.path)
    }
}

fn views(site: &Site) -> Vec<View> {
    let text = |line: &str, key: &str| {
        let value = line.split(&format!(" {key}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.unwrap_or_default().to_owned()
    };
    let log = site.brisk.process().stderr();
    let lines = log.lines().filter(|line| line.contains("a beacon joined"));
    lines
        .map(|line| View {
            navigation: text(line, "navigation"),
            path: text(line, "path"),
            line: line.to_owned(),
        })
        .collect()
}

/// Waits until at least `count` views have joined and returns all.
fn wait(site: &Site, count: usize) -> Vec<View> {
    wait_until("views", || Some(views(site)).filter(|views| views.len() >= count))
}

/// Views of a browser that has reached the end of its pages; `None` if a beacon is missing, which Firefox may lose on a busy
/// machine.
fn views_at_end(site: &Site, count: usize) -> Option<Vec<View>> {
    site.brisk.logged("/end.txt");
    // Beacons are sent before the request for the last page, and may arrive after it.
    let until = Instant::now() + Duration::from_mins(1);
    wait_until("views", || {
        let views = views(site);
        if views.len() >= count {
            return Some(Some(views));
        }
        let is_lost = Instant::now() > until;
        if is_lost {
            let refused = site.brisk.metrics().sum("brisk_beacons_refused_total", &[]);
            assert!(refused < 0.5, "brisk refused a beacon");
        }
        is_lost.then_some(None)
    })
}

/// Calls `check` with the views of each browser at `path` of a new site: Chromium, and Firefox with and without the
/// Navigation API.
fn in_browsers(pages: &[(&str, &str, &str)], path: &str, count: usize, check: impl Fn(&str, &[View])) {
    let url = |site: &Site| format!("https://localhost:{}{path}", site.brisk.https().port());
    for (name, has_navigation) in [("Chromium", true), ("Firefox", true), ("Firefox", false)] {
        let visit = |_| {
            let site = site(pages);
            let _browser = if name == "Chromium" {
                Chromium::new(site.brisk.folder(), &site.brisk).start(&[], &url(&site))
            } else {
                let preference = format!("\"dom.navigation.webidl.enabled\", {has_navigation}");
                firefox(&site, &[preference], path)
            };
            let views = views_at_end(&site, count)?;
            site.brisk.logged(&format!("/navigation-{has_navigation}"));
            Some(views)
        };
        let browser = format!("{name}, Navigation API: {has_navigation}");
        let views = (0..4).find_map(visit).unwrap_or_else(|| panic!("{browser} loses a beacon"));
        check(&browser, &views);
    }
}

/// Ten soft navigations, each with a changed state of its entry and a jump within the page, which are no views.
const SOFT: &str = "
addEventListener('load', async () => {
  for (const name of 'abcdefghij') {
    await pause(30);
    history.pushState({}, '', `/app/${name}?id=${name}`);
    history.replaceState({ scroll: 7 }, '');
    history.replaceState({ scroll: 8 }, '', location.href);
    location.hash = 'section';
  }
  await pause(30);
  history.replaceState({}, '', '/app/replaced');
  await pause(30);
  location = '/end.txt';
});";

#[test]
fn ten_soft_navigations_are_ten_views() {
    in_browsers(&[("soft", "", SOFT)], "/soft.html", 11, |browser, views| {
        let found: Vec<_> = views.iter().map(View::is).collect();
        let soft: Vec<_> = "abcdefghij".chars().map(|name| ("soft", format!("/app/{name}"))).collect();
        let expected: Vec<_> = std::iter::once(("navigate", "/soft.html"))
            .chain(soft.iter().map(|(kind, path)| (*kind, path.as_str())))
            .collect();
        assert_eq!(found, expected, "{browser}");
        assert!(
            views[0].has("ttfb") && views[0].has("wait") && views[0].has("load"),
            "{browser}: {views:#?}"
        );
        for view in &views[1..] {
            for metric in ["ttfb", "wait", "load", "fcp", "lcp", "connect", "tls", "handshake"] {
                assert!(!view.has(metric), "{browser}: {metric} in {view:?}");
            }
            assert_eq!(view.has("cls"), views[0].has("cls"), "{browser}: {view:?}");
            assert!(view.line.contains("connection=\"reused\""), "{browser}: {view:?}");
        }
    });
}

/// Routes after `#`, with a jump and a return.
const HASHES: &str = "
addEventListener('load', async () => {
  for (const hash of ['#/inbox', '#/inbox/7', '#top', '#!/sent']) {
    await pause(50);
    location.hash = hash;
  }
  await pause(50);
  history.go(-3);
  await pause(200);
  location = '/end.txt';
});";

#[test]
fn routes_after_a_hash_are_views_and_jumps_are_none() {
    in_browsers(&[("hashes", "", HASHES)], "/hashes.html", 6, |browser, views| {
        let found: Vec<_> = views.iter().map(View::is).collect();
        let of = |path| ("soft", path);
        let expected = [
            ("navigate", "/hashes.html"),
            of("/hashes.html#/inbox"),
            of("/hashes.html#/inbox/*"),
            // The jump leaves the route, and the next entry has one again.
            of("/hashes.html"),
            of("/hashes.html#!/sent"),
            of("/hashes.html#/inbox"),
        ];
        assert_eq!(found, expected, "{browser}");
    });
}

/// Shifts its heading before and after a soft navigation, without input, by different distances. For half a second after a
/// change of the window's size, Chromium counts no shift.
const SHIFTS: &str = "
const push = height => {
  const box = document.createElement('div');
  box.style.height = `${height}px`;
  document.body.prepend(box);
};
addEventListener('load', async () => {
  await pause(1000);
  push(150);
  await painted(); await painted();
  await pause(200);
  history.pushState({}, '', '/app/second');
  await pause(200);
  history.pushState({}, '', '/app/third');
  push(60);
  await painted(); await painted();
  await pause(200);
  location = '/end.txt';
});";

#[test]
fn a_layout_shift_belongs_to_the_view_in_which_it_happens() {
    let site = site(&[("shifts", "", SHIFTS)]);
    let url = format!("https://localhost:{}/shifts.html", site.brisk.https().port());
    let folder = site.brisk.folder();
    let browser = Chromium::new(folder, &site.brisk).start(&[], "about:blank");
    let mut page = Page::of(browser, &folder.join("profile"));
    page.open(&url);
    let views = wait(&site, 3);
    let shifts: Vec<_> = views.iter().map(|view| view.number("cls")).collect();
    assert!(shifts[0] > 0.01 && shifts[1] < 1e-6 && shifts[2] > 0.005, "{views:#?}");
}

/// Goes to the next page, which goes back; then on to the end. A browser that has not kept the page goes elsewhere.
const FIRST: &str = "
const [{ type }] = performance.getEntriesByType('navigation');
addEventListener('load', async () => {
  await pause(500);
  location = type == 'back_forward' ? '/missed.txt' : '/second.html';
});
addEventListener('pageshow', async event => {
  if (!event.persisted) return;
  await painted(); await painted();
  history.pushState({}, '', '/app/after');
  await pause(100);
  location = '/end.txt';
});";
const SECOND: &str = "addEventListener('load', async () => { await pause(500); history.back(); });";

/// Views of a browser that has kept the first page and sent each beacon; `None` if it has not, as on a busy machine, where Firefox
/// loses the beacon of a page that it leaves for a kept one.
fn views_of_return(start: impl FnOnce(&Site) -> Process) -> Option<Vec<View>> {
    let site = site(&[("first", "", FIRST), ("second", "", SECOND)]);
    let _browser = start(&site);
    wait_until("views", || {
        let views = views(&site);
        let missed = site.brisk.access_log().into_iter().any(|line| line.contains("/missed.txt"));
        if missed || views.len() >= 4 {
            return Some((!missed).then_some(views));
        }
        // The last beacon was sent long after the others.
        let lost = views.iter().any(|view| view.path == "/app/after");
        if lost {
            let refused = site.brisk.metrics().sum("brisk_beacons_refused_total", &[]);
            assert!(refused < 0.5, "brisk refused a beacon");
        }
        lost.then_some(None)
    })
}

#[test]
fn a_return_from_the_cache_is_a_view_with_times_of_its_own() {
    for name in ["Chromium", "Firefox"] {
        let start = |site: &Site| match name {
            "Chromium" => {
                let url = format!("https://localhost:{}/first.html", site.brisk.https().port());
                Chromium::new(site.brisk.folder(), &site.brisk).start(&[], &url)
            }
            _ => firefox(site, &[], "/first.html"),
        };
        let views = (0..4)
            .find_map(|_| views_of_return(start))
            .unwrap_or_else(|| panic!("{name} keeps no page, or loses a beacon"));
        let found: Vec<_> = views.iter().map(View::is).collect();
        let expected = [
            ("navigate", "/first.html"),
            ("navigate", "/second.html"),
            ("back_forward_cache", "/first.html"),
            ("soft", "/app/after"),
        ];
        assert_eq!(found, expected, "{name}");
        // The time to the next frame.
        let back = &views[2];
        assert_eq!(back.text("ttfb"), "0.0", "{name}: {back:?}");
        assert!(back.number("lcp") > 0.0 && back.text("lcp") == back.text("fcp"), "{name}: {back:?}");
        assert!(!back.has("wait") && !back.has("load") && !back.has("inp"), "{name}: {back:?}");
        assert!(!views[3].has("lcp") && !views[3].has("ttfb"), "{name}: {:?}", views[3]);
    }
}

/// Prerenders two pages and goes to the first of them.
const RULES: &str = "<script type=speculationrules>{\"prerender\": [{\"urls\": [\"/shown.html\", \"/never.html\"], \"eagerness\": \"immediate\"}]}</script>";
const LEAVE_LATE: &str =
    "addEventListener('load', async () => { await pause(2500); location = '/shown.html'; });";
const SHOWN: &str = "
const leave = async () => { await painted(); await painted(); await pause(100); location = '/end.txt'; };
if (document.prerendering) document.addEventListener('prerenderingchange', leave);
else addEventListener('load', leave);";

#[test]
fn a_prerendered_page_is_a_view_once_it_is_shown() {
    let pages = [
        ("rules", RULES, LEAVE_LATE),
        ("shown", "", SHOWN),
        ("never", "", "history.pushState({}, '', '/app/never');"),
    ];
    let mut seen = Vec::new();
    // On a busy machine, the browser may not have prerendered the page when its time has come.
    for _ in 0..8 {
        let site = site(&pages);
        let url = format!("https://localhost:{}/rules.html", site.brisk.https().port());
        let _browser = Chromium::new(site.brisk.folder(), &site.brisk).start(&[], &url);
        let views = wait(&site, 2);
        assert_eq!(views[0].is(), ("navigate", "/rules.html"));
        // The other page was prerendered too, and the first paint after the page was shown is not late.
        let ids = site.brisk.metrics().sum("brisk_beacon_ids_total", &[]);
        let is_shown = views[1].is() == ("prerender", "/shown.html") && views[1].has("lcp");
        if is_shown && ids > 2.5 && views[1].number("lcp") < 2500.0 {
            // The response came before the page was shown; its paint is as late as that, at least.
            assert_eq!(views[1].text("ttfb"), "0.0", "{views:#?}");
            let until = Instant::now() + Duration::from_secs(1);
            wait_until("the end", || (Instant::now() > until).then_some(()));
            assert_eq!(self::views(&site).len(), 2, "a page that was never shown is no view");
            return;
        }
        seen.push((ids, views));
    }
    panic!("{seen:#?}");
}
