//! `brisk probe --page`: five planted faults on each of three sites, and none on a right one.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, NAMES, Site, proxy_to};
use brisk_testkit::brisk::Setup;
use brisk_testkit::ca::TestCa;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::run;
use serde_json::Value;

const FAULTS: [&str; 5] =
    ["blocking-font", "missing-priority", "not-cached", "not-compressed", "other-origin"];

/// A picture that is large enough for Largest Contentful Paint, and a font.
fn assets() -> (PathBuf, PathBuf) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    (
        repository.join("docs/dashboard/light.webp"),
        PathBuf::from("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),
    )
}

/// Makes a page with a style sheet, a font and a large picture in `folder`. Faults: a font without `font-display`, a picture
/// without `fetchpriority`, and a picture of the origin `other`.
fn make(folder: &Path, other: Option<&str>) {
    fs::create_dir_all(folder).expect("a folder");
    let (picture, font) = assets();
    fs::copy(picture, folder.join("large.webp")).expect("a picture");
    fs::copy(font, folder.join("text.ttf")).expect("a font");
    let (display, priority) =
        if other.is_some() { ("", "") } else { ("font-display: swap;", "fetchpriority=high") };
    let mut style = format!(
        "@font-face {{ font-family: Text; src: url(/text.ttf); {display} }}\nbody {{ font-family: Text }}\n"
    );
    for number in 0..200 {
        let _ = writeln!(style, ".class-{number} {{ margin: {number}px }}");
    }
    fs::write(folder.join("page.css"), style).expect("a style sheet");
    let elsewhere =
        other.map(|origin| format!("<img src='{origin}/small.png' width=20 height=20>")).unwrap_or_default();
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>page</title><link rel=stylesheet href=/page.css><link rel=icon href=data:,>\
         <h1>Page</h1><img src=/large.webp {priority} width=900 height=600>{elsewhere}{}",
        "<p>a line of text</p>".repeat(200)
    );
    fs::write(folder.join("index.html"), page).expect("a page");
}

/// An origin with one picture.
fn other() -> Origin {
    let picture = fs::read(assets().0).expect("a picture");
    Origin::answering(move |_, stream| {
        use std::io::Write as _;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nCache-Control: max-age=31536000\r\nContent-Length: ";
        write!(stream, "{head}{}\r\n\r\n", picture.len())?;
        stream.write_all(&picture)
    })
}

fn probe(ca: &TestCa, port: u16) -> Command {
    let mut probe = Command::new(brisk_program());
    probe.arg("probe").arg(format!("https://localhost:{port}/")).args(["--page", "--connect", "127.0.0.1"]);
    probe.args(["--timeout", "150", "--ca"]).arg(ca.root_file());
    probe
}

/// Ids of the findings about the page, in alphabetical order.
fn found(ca: &TestCa, port: u16) -> (Vec<String>, Value) {
    let text = run(probe(ca, port).arg("--json"), b"", LIMIT).success();
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    let page = document["page"].take();
    let id = |finding: &Value| finding["id"].as_str().expect("an id").to_owned();
    let mut ids: Vec<_> = page["findings"].as_array().expect("findings").iter().map(id).collect();
    ids.sort();
    (ids, page)
}

fn with_page(setup: Setup, other: Option<&str>) -> Setup {
    make(&setup.folder().join("www"), other);
    setup
}

#[test]
fn five_planted_faults_are_found_on_each_of_three_sites() {
    let other = other();
    let elsewhere = other.url();
    // Files of brisk without compression.
    let files = Site::custom("", "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n", |setup| {
        with_page(setup, Some(&elsewhere))
    });
    let (ids, page) = found(&files.ca, files.brisk.https().port());
    assert_eq!(ids, FAULTS, "brisk: {page:#}");
    assert!(page["lcp_ms"].as_f64().is_some() && page["load_ms"].as_f64().is_some(), "{page:#}");

    // nginx.
    let ca = TestCa::new();
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path(), Some(&elsewhere));
    let types = "default_type text/html; types { text/css css; image/png png; font/ttf ttf; }";
    let root = folder.path().display();
    let page = format!("location = / {{ root {root}; try_files /index.html =404; {types} }}");
    let files = format!("location ~ ^/(page.css|large.webp|text.ttf)$ {{ root {root}; {types} }}");
    let directives = format!("ssl_protocols TLSv1.3; {page} {files}");
    let nginx = Nginx::https_with(&ca.server(&NAMES).issue(), &directives);
    let (ids, page) = found(&ca, nginx.address().port());
    assert_eq!(ids, FAULTS, "nginx: {page:#}");

    // An application that sends everything with no-store, behind brisk.
    let root = folder.path().to_owned();
    let application = Origin::answering(move |request, stream| {
        use std::io::Write as _;
        let path = request.head.line.split(' ').nth(1).expect("a path").trim_start_matches('/').to_owned();
        let file = if path.is_empty() { "index.html" } else { path.as_str() };
        let kind = match file.rsplit('.').next() {
            Some("css") => "text/css",
            Some("png") => "image/png",
            Some("ttf") => "font/ttf",
            _ => "text/html",
        };
        let body = fs::read(root.join(file))?;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\nContent-Length: ");
        write!(stream, "{head}{}\r\n\r\n", body.len())?;
        stream.write_all(&body)
    });
    let proxy = Site::with(&proxy_to(&[&application.url()]));
    let (ids, page) = found(&proxy.ca, proxy.brisk.https().port());
    assert_eq!(ids, FAULTS, "application: {page:#}");
}

#[test]
fn a_right_page_has_no_finding_and_its_har_can_be_read() {
    let rules = "response_headers = { set = { Cache-Control = \"public, max-age=31536000, immutable\" } }";
    let tables = format!("compression = true\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n{rules}\n");
    let site = Site::custom("", &tables, |setup| with_page(setup, None));
    let port = site.brisk.https().port();
    let (ids, page) = found(&site.ca, port);
    assert_eq!(ids, Vec::<String>::new(), "{page:#}");
    let requests = page["requests"].as_array().expect("requests");
    assert_eq!(requests.len(), 4, "{page:#}");

    let (har, html) = (site.brisk.folder().join("page.har"), site.brisk.folder().join("page.html"));
    let mut command = probe(&site.ca, port);
    command.env("COLUMNS", "80").arg("--har").arg(&har).arg("--html").arg(&html);
    let text = run(&mut command, b"", LIMIT).success();
    for part in ["Page load in Chrome", "4 requests", "/large.webp", "LCP", "█"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(fs::read_to_string(&html).expect("a page").contains("Waterfall of the page load"));
    let mut check = Command::new(brisk_program());
    let read = run(check.args(["check", "--har"]).arg(&har), b"", LIMIT).success();
    assert!(read.contains(&format!("localhost:{port}")), "{read}");
}

#[test]
fn without_a_browser_the_message_names_the_remedy() {
    let site = Site::new();
    let mut command = probe(&site.ca, site.brisk.https().port());
    let finished = run(command.env_remove("CHROMIUM").env("PATH", "/nowhere"), b"", LIMIT);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.text());
    assert!(finished.stderr.contains("install the package chromium"), "{}", finished.text());
}
