//! Pictures of terminals for the documentation: `brisk probe`, its audit, and `brisk bench`, in 80 and 120 columns.
//! `tools/pictures` creates them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brisk_behaviour::linked::{link, words_before};
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{Site, setup};
use brisk_link::SERVER;
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::knot::Knot;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{command, run};
use brisk_testkit::programs::program;

use crate::chromium::Chromium;
use crate::devtools::Page;

/// Where the pictures go.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/pictures");

const NAME: &str = "shop.example";

/// 20 ms of round trip, 20 Mbit/s.
const HALF: &str = "delay=10ms,rate=20M,queue=48k";

const LIMIT: Duration = Duration::from_mins(3);

/// Lines of an audit that fit into a picture.
const LINES: usize = 56;

/// Ends the line of the status that a terminal shows during a run.
const CLEARED: &str = "\u{1b}[2K";

/// The page of a terminal: its colours by the scheme of the browser, and a class for each code of a style that brisk uses.
const STYLE: &str = "<!doctype html><meta charset=utf-8><style>
    :root { --back: #fff; --text: #1a1d23; --c2: #6b7280; --c31: #b3261e; --c32: #1a7f37; --c33: #8f5a00; --c36: #0b6e8a }
    @media (prefers-color-scheme: dark) {
        :root { --back: #1c1f25; --text: #e7e9ed; --c2: #98a0ad; --c31: #f28b82; --c32: #6fcf8b; --c33: #e0ad55; --c36: #5cc8de }
    }
    body { margin: 0; background: var(--back); color: var(--text) }
    pre { margin: 0; padding: 12px 14px; width: max-content; font: 13px/15px 'DejaVu Sans Mono', monospace }
    .s1 { font-weight: bold } .s2 { color: var(--c2) } .s31 { color: var(--c31); font-weight: bold } .s32 { color: var(--c32) }
    .s33 { color: var(--c33) } .s36 { color: var(--c36) }
    </style>";

/// Output of brisk in a terminal of this width: `script` opens it, and runs in `place`. Of `stream`, the rest goes elsewhere.
fn in_terminal(mut place: Command, columns: usize, words: &str, other: &str) -> String {
    let brisk = brisk_program().display();
    let line = format!("stty cols {columns} rows 50; TERM=xterm exec {brisk} {words} {other}>/dev/null");
    place.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    run(&mut place, b"", LIMIT).success().replace("\r\n", "\n")
}

/// The text as HTML. Each style of brisk begins with one code and ends with a reset.
fn page(columns: usize, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default();
    let mut page = format!("{STYLE}<pre style='min-width: {columns}ch'>{first}");
    for part in parts {
        let (code, rest) = part.split_once('m').expect("a style");
        match code.rsplit(';').next() {
            Some("0") | None => page += "</span>",
            Some(code) => write!(page, "<span class=s{code}>").expect("a string takes everything"),
        }
        page += rest;
    }
    page
}

fn draw(browser: &mut Page, folder: &Path, name: &str, columns: usize, text: &str) {
    let file = folder.join("terminal.html");
    fs::write(&file, page(columns, text)).expect("a page");
    browser.open(&format!("file://{}", file.display()));
    let mut size = |side: &str| {
        let side = browser
            .script(&format!("Math.ceil(document.querySelector('pre').getBoundingClientRect().{side})"));
        u32::try_from(side.as_u64().expect("a size")).expect("a size of a screen")
    };
    let (width, height) = (size("width"), size("height"));
    for scheme in ["light", "dark"] {
        browser.screen(width, height, scheme);
        let picture = STANDARD.decode(browser.picture(100)).expect("base64");
        let file = Path::new(FOLDER).join(format!("{name}-{columns}-{scheme}.webp"));
        assert!(picture.len() < 150_000, "{}: {} bytes", file.display(), picture.len());
        fs::write(file, picture).expect("a picture");
    }
}

#[test]
#[ignore = "makes pictures, which takes a minute: tools/pictures"]
fn terminals_of_the_tools() {
    let Some(link) = link(HALF) else { return };
    // An authority that the CAA record does not permit.
    let ca = TestCa::of_organization("Let's Encrypt");
    let leaf = ca.server(&[NAME]).issue();
    let config = base(&format!("server.https = [\"{SERVER}:0\"]\n"))
        + &host(&[NAME], &[&leaf])
        + "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n";
    let page = "<p>A product of this shop</p>\n".repeat(1200);
    let shop = setup().behind(&words_before(&link.server(""))).file("www/index.html", page);
    let far = Site { brisk: shop.config(&config).start(), ca };
    let near = Site::with("");
    let nginx = Nginx::https_with(&leaf, "ssl_protocols TLSv1.2;");
    let knot = Knot::serving("example", "shop CAA 0 issue \"digicert.com\"");
    let root = far.ca.root_file().display().to_string();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let chromium = Chromium::new(folder.path(), &near.brisk).start(&["--hide-scrollbars"], "about:blank");
    let mut browser = Page::of(chromium, &folder.path().join("profile"));
    let mut draw =
        |name: &str, columns: usize, text: &str| draw(&mut browser, folder.path(), name, columns, text);
    fs::create_dir_all(FOLDER).expect("a folder");
    for columns in [80, 120] {
        let words =
            format!("probe https://{NAME}:{} --connect {SERVER} --ca {root}", far.brisk.https().port());
        draw("probe", columns, &in_terminal(link.client(program("script")), columns, &words, "2"));

        let words = format!(
            "probe https://{NAME}:{}/1k --audit --connect 127.0.0.1 --http-port 0 --name-server {} --ca {root}",
            nginx.address().port(),
            knot.address()
        );
        let text = in_terminal(command("script"), columns, &words, "2");
        draw("audit", columns, &text.lines().take(LINES).collect::<Vec<_>>().join("\n"));

        let words = format!(
            "bench {} --connect {} --ca {} -d 6s -c 16 --mix full=35,ticket=20,psk=45 -r 3",
            near.url("/"),
            near.brisk.https(),
            near.ca.root_file().display()
        );
        draw("bench", columns, &in_terminal(command("script"), columns, &words, "2"));
        // The last status that was shown during a longer run.
        let words = words.replace("-d 6s", "-d 25s");
        let text = in_terminal(command("script"), columns, &words, "1");
        let status =
            text.split(CLEARED).filter(|status| status.lines().count() > 3).last().expect("a status");
        draw("bench-live", columns, status.trim_end_matches("\u{1b}[1A"));
    }
}
