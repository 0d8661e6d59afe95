//! Other origins below paths of a host: savings in a browser, and protection from their upstreams.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::site::{Site, setup, upstream};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Process, wait_until};
use serde_json::Value;

use crate::chromium::Chromium;

fn answer(stream: &mut TcpStream, head: &str, body: &[u8]) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)
}

fn path_of(request: &Message) -> String {
    request.head.line.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn is_to(request: &Message, name: &str) -> bool {
    request.header("host").is_some_and(|host| host.starts_with(name))
}

/// A site whose own pages and those of `https://static.test` come from `origin`, the latter below `/_s`.
fn consolidating(origin: &Origin, keys: &str) -> Site {
    let tables = format!(
        "consolidate = {{ \"https://static.test\" = {{ path = \"/_s\", upstream = \"app\" }} }}\n{keys}\n\n\
         [[host.route]]\npath = \"/\"\nupstream = \"app\"\n{}",
        upstream(&[&origin.url()])
    );
    Site::with(&tables)
}

const PAGE: &str = "<!doctype html><title>waiting</title>\
    <link rel=stylesheet href=\"https://static.test/app.css\">\
    <script src=\"//static.test/app.js\"></script>\
    <img id=one src='https://img.test/one.svg'><img id=two srcset='https://img.test/one.svg 1x'>\
    <p id=p style=\"background: url(&quot;https://img.test/one.svg&quot;)\">text</p>\
    <script>addEventListener('load', async () => {
      const fonts = await document.fonts.load('20px Letters');
      const images = ['one', 'two'].filter(id => document.getElementById(id).naturalWidth > 0);
      const style = getComputedStyle(document.getElementById('p'));
      document.title = `script=${window.loaded} style=${style.color} fonts=${fonts.length} images=${images.length}`;
    })</script>";

const SHEET: &str = "@import '/more.css'; @font-face { font-family: Letters; src: url(/font.ttf) }";

/// Everything that the page on three domains is made of.
fn three_domains() -> Origin {
    let font =
        fs::read("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf").expect("a font, which Chromium brings");
    Origin::answering(move |request, stream| {
        let cors = "Access-Control-Allow-Origin: *\r\n";
        match &path_of(request)[..] {
            "/" => answer(stream, "Content-Type: text/html\r\n", PAGE.as_bytes()),
            "/app.css" => answer(stream, "Content-Type: text/css\r\n", SHEET.as_bytes()),
            "/more.css" => answer(stream, "Content-Type: text/css\r\n", b"p { color: rgb(1, 2, 3) }"),
            "/app.js" => answer(stream, "Content-Type: text/javascript\r\n", b"window.loaded = 'yes'"),
            "/font.ttf" => answer(stream, &format!("Content-Type: font/ttf\r\n{cors}"), &font),
            "/one.svg" => {
                let picture = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'></svg>";
                answer(stream, "Content-Type: image/svg+xml\r\n", picture.as_bytes())
            }
            _ => write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        }
    })
}

/// Opens the page in Chromium, anew while its text lacks `expected`, or while it has other connections over HTTP/2 than
/// `has_connections` permits: on a busy machine, Chromium opens a second connection beside one that it waits for.
#[track_caller]
fn opened(brisk: &Brisk, expected: &str, has_connections: impl Fn(usize) -> bool) {
    let mut seen = Vec::new();
    for attempt in 0..ATTEMPTS {
        let (page, connections) = open(brisk, &format!("visit-{attempt}"));
        if page.contains(expected) && has_connections(connections) {
            return;
        }
        seen.push((page, connections));
    }
    panic!("pages and their connections: {seen:#?}")
}

/// Attempts of [`opened`].
const ATTEMPTS: usize = 8;

/// The text of the page, and the connections over HTTP/2 that the net log has.
fn open(brisk: &Brisk, folder: &str) -> (String, usize) {
    let folder = brisk.folder().join(folder);
    fs::create_dir(&folder).expect("a temporary folder");
    let log = folder.join("net.json");
    let rules = format!("--host-resolver-rules=MAP *.test:443 127.0.0.1:{}", brisk.https().port());
    let options = [
        "--dump-dom",
        "--virtual-time-budget=20000",
        "--ignore-certificate-errors",
        &rules,
        &format!("--log-net-log={}", log.display()),
    ];
    let page = Chromium::new(&folder, brisk).run(&options, "https://www.test/");
    let text = fs::read_to_string(&log).expect("a net log");
    let log: Value = serde_json::from_str(&text).expect("JSON");
    let number = |group: &str, name: &str| log["constants"][group][name].as_u64().expect(name);
    let session = number("logEventTypes", "HTTP2_SESSION");
    let begin = number("logEventPhase", "PHASE_BEGIN");
    let events = log["events"].as_array().expect("events");
    let is_session = |event: &&Value| event["type"] == session && event["phase"] == begin;
    (page, events.iter().filter(is_session).count())
}

#[test]
fn a_page_on_three_domains_needs_one_connection() {
    let origin = three_domains();
    let ca = TestCa::new();
    let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    let config = |consolidate: &str| {
        let hosts: Vec<_> = ["www.test", "static.test", "img.test"]
            .iter()
            .map(|name| {
                let keys = if *name == "www.test" { consolidate } else { "" };
                format!("{}{keys}{route}", host(&[name], &[&ca.server(&[name]).issue()]))
            })
            .collect();
        format!("{}{}{}", base(""), hosts.concat(), upstream(&[&origin.url()]))
    };
    let expected = "<title>script=yes style=rgb(1, 2, 3) fonts=1 images=2</title>";
    let before = setup().config(&config("")).start();
    // Fonts of other origins have a connection of their own, without cookies.
    opened(&before, expected, |connections| connections >= 3);
    let keys = "consolidate = { \"https://static.test\" = { path = \"/_s\", upstream = \"app\" }, \"https://img.test\" = \
                { path = \"/_i\", upstream = \"app\", cookies = \"none\" } }\n";
    let after = setup().config(&config(keys)).start();
    opened(&after, expected, |connections| connections == 1);
    assert!(after.metrics().sum("brisk_rewritten_answers_total", &[]) >= 3.0);
}

/// A style sheet that `consolidate` would change, which its digest does not permit.
const DIGESTED: &str = "p { color: rgb(1, 2, 3); background: url(one.svg) } @font-face { font-family: Unused; src: url(//static.test/unused.ttf) }";

#[test]
fn a_style_sheet_with_a_digest_comes_unchanged_over_the_connection_of_the_page() {
    const PAGE: &str = "<!doctype html><title>waiting</title><p id=p>text</p>\
        <link rel=stylesheet crossorigin=anonymous href=\"https://static.test/a/app.css\" \
        integrity=\"sha256-s8lMrbUBC6MGQd53Qi3WskOaflfbQmxbvnEdtSHl5ZM=\">\
        <script>addEventListener('load', () =>
          document.title = getComputedStyle(document.getElementById('p')).color)</script>";
    let origin = Origin::answering(|request, stream| match &path_of(request)[..] {
        "/" => answer(stream, "Content-Type: text/html\r\n", PAGE.as_bytes()),
        "/a/app.css" => {
            let head = "Content-Type: text/css\r\nAccess-Control-Allow-Origin: *\r\n";
            answer(stream, head, DIGESTED.as_bytes())
        }
        "/a/one.svg" => answer(stream, "Content-Type: image/svg+xml\r\n", b"<svg/>"),
        _ => write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    });
    let ca = TestCa::new();
    for (integrity, few) in [("", false), (", integrity = true", true)] {
        let keys = format!(
            "consolidate = {{ \"https://static.test\" = {{ path = \"/_s\", upstream = \"app\"{integrity} }} }}\n"
        );
        let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
        let hosts = [("www.test", &keys[..]), ("static.test", "")]
            .map(|(name, keys)| format!("{}{keys}{route}", host(&[name], &[&ca.server(&[name]).issue()])));
        let config = format!("{}{}{}", base(""), hosts.concat(), upstream(&[&origin.url()]));
        let brisk = setup().config(&config).start();
        opened(&brisk, "<title>rgb(1, 2, 3)</title>", |connections| (connections == 1) == few);
        // The style sheet, and the picture that is relative to it.
        for path in ["/a/app.css", "/a/one.svg"] {
            let requests = origin.requests();
            let request = requests.iter().rfind(|request| path_of(request) == path).expect("a request");
            assert!(is_to(request, "static.test"), "{path}");
        }
    }
}

#[test]
fn requests_and_answers_are_those_of_the_origin() {
    let origin = Origin::answering(|request, stream| {
        if path_of(request) == "/login" {
            let head = "HTTP/1.1 302 Found\r\nLocation: /in\r\nSet-Cookie: id=7; Path=/; Domain=test\r\n";
            return write!(stream, "{head}Strict-Transport-Security: max-age=9\r\nContent-Length: 0\r\n\r\n");
        }
        let own = if is_to(request, "static.test") { "/b.png" } else { "https://static.test/b.png" };
        let body = format!("<img src=\"{own}\">");
        answer(stream, "Content-Type: text/html\r\nETag: \"1\"\r\n", body.as_bytes())
    });
    let site = consolidating(&origin, "");
    for version in ["--http1.1", "--http2"] {
        assert_eq!(site.curl(&[version], "/").success(), "<img src=\"/_s/b.png\">");
        assert_eq!(site.curl(&[version], "/_s/x?y").success(), "<img src=\"/_s/b.png\">");
        let request = origin.last_request();
        assert_eq!((&path_of(&request)[..], request.header("host")), ("/x?y", Some("static.test")));
        let asked = [version, "--include", "--cookie", "session=1; _s~id=7", "--user", "a:b"];
        let redirect = site.curl(&asked, "/_s/login").success().to_lowercase();
        assert!(redirect.contains("location: /_s/in\r\n"), "{redirect}");
        assert!(redirect.contains("set-cookie: _s~id=7; path=/_s/\r\n"), "{redirect}");
        assert!(!redirect.contains("strict-transport"), "{redirect}");
        let request = origin.last_request();
        assert_eq!((request.header("cookie"), request.header("authorization")), (Some("id=7"), None));
        let head = site.curl(&[version, "--head"], "/").success().to_lowercase();
        assert!(head.contains("etag: w/\"1;brisk=") && !head.contains("content-length"), "{head}");
    }
    // What is served at the root must not be the origin's: scripts there have the host as their scope.
    for version in ["--http1.1", "--http2"] {
        let folder = site.curl(&[version, "--include"], "/_s?sw").success().to_lowercase();
        assert!(folder.contains(" 308 ") && folder.contains("location: /_s/?sw\r\n"), "{folder}");
    }
    // No other origin is asked for, whatever a client writes.
    for path in ["/_s//other.test/x", "/_s/https://other.test/x", "/_s/..%2fx"] {
        let _ = site.curl(&["--path-as-is"], path);
        let host = origin.last_request().header("host").map(str::to_owned);
        assert_eq!(host.as_deref(), Some("static.test"), "{path}");
    }
}

#[test]
fn an_origin_without_a_named_upstream_is_verified() {
    let site = Site::new();
    let tables = format!(
        "consolidate = {{ \"https://localhost:{}\" = \"/_s\" }}\n\n[[host.route]]\npath = \"/\"\nrespond = {{ body = \
         \"own\" }}\n",
        site.brisk.https().port()
    );
    let other = Site::with(&tables);
    // Its CA is none of the system's.
    assert_eq!(other.get("/_s/").status(), 502);
    assert_eq!(other.get("/").text(), "own");
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    brisk_coding::Encoder::new(brisk_coding::Coding::Gzip, 9)
        .write_whole(plain, &mut output)
        .expect("a codec");
    output
}

#[test]
fn bombs_lies_and_floods_of_links_harm_no_other_client() {
    const LINK: &str = "<link rel=preload href=https://static.test/x>\n";
    let bomb = gzip(&vec![b' '; 64 << 20]);
    let links = LINK.repeat((10 << 20) / LINK.len());
    let length = links.len() - "https://static.test".len() * (links.len() / LINK.len())
        + 3 * (links.len() / LINK.len());
    let origin = Origin::answering(move |request, stream| {
        const HTML: &str = "Content-Type: text/html\r\n";
        match &path_of(request)[..] {
            "/bomb" => answer(stream, &format!("{HTML}Content-Encoding: gzip\r\n"), &bomb),
            "/no-gzip" => answer(stream, &format!("{HTML}Content-Encoding: gzip\r\n"), b"<p>plain</p>"),
            "/links" => answer(stream, HTML, links.as_bytes()),
            "/link-header" => {
                let line = format!("Link: <https://static.test/{}>\r\n", "x".repeat(10 << 20));
                answer(stream, &line, b"")
            }
            "/lies" => {
                write!(stream, "HTTP/1.1 200 OK\r\n{HTML}Content-Length: 1000\r\n\r\n<p>short")?;
                stream.shutdown(std::net::Shutdown::Both)
            }
            _ => answer(stream, HTML, b"<img src=https://static.test/a>"),
        }
    });
    let site = consolidating(&origin, "");
    let good = || site.curl(&["--http2"], "/").success();
    assert_eq!(good(), "<img src=/_s/a>");
    let before = site.brisk.process().resident_bytes();
    for path in ["/bomb", "/no-gzip", "/lies"] {
        let cut = site.curl(&["--http2", "--output", "/dev/null"], path);
        assert!(!cut.status.success(), "{path}: {}", cut.text());
        assert_eq!(good(), "<img src=/_s/a>");
    }
    let sent = site.curl(&["--http2", "--output", "/dev/null", "--write-out", "%{size_download}"], "/links");
    assert_eq!(sent.success(), length.to_string());
    let refused =
        site.curl(&["--http2", "--output", "/dev/null", "--write-out", "%{http_code}"], "/link-header");
    assert_eq!(refused.success(), "502");
    assert_eq!(good(), "<img src=/_s/a>");
    let more = site.brisk.process().resident_bytes().saturating_sub(before);
    assert!(more < 40 << 20, "{} KiB", more / 1024);
    assert!(site.brisk.metrics().sum("brisk_rewriting_failures_total", &[]) >= 2.0);
    let line = site.brisk.log_with("cut off");
    assert!(line.contains("as no page is") || line.contains("are not gzip"), "{line}");
}

#[test]
fn a_page_that_pauses_goes_on_as_it_comes() {
    let origin = Origin::answering(|request, stream| {
        if path_of(request) != "/slow" {
            return answer(stream, "Content-Type: text/plain\r\n", b"");
        }
        let chunk = "<img src=https://static.test/a>";
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        write!(stream, "{:x}\r\n{chunk}\r\n", chunk.len())?;
        // The rest never comes: the client has the beginning, or waits until its limit.
        let _ = stream.read(&mut [0]);
        Ok(())
    });
    let site = consolidating(&origin, "compression = true");
    let asked = ["--http2", "--no-buffer", "--compressed"];
    let curl = Process::start(&mut site.curl_command(&asked, &site.url("/slow")));
    wait_until("the beginning of a page", || (curl.stdout() == "<img src=/_s/a>").then_some(()));
}

/// A page that waits for one of two other origins.
const RECORDING: &str = r#"{"log":{"version":"1.2","creator":{"name":"x","version":"1"},"pages":[{"id":"p","startedDateTime":
"2026-01-01T00:00:00.000Z","title":"x","pageTimings":{"onLoad":900}}],"entries":[
{"pageref":"p","startedDateTime":"2026-01-01T00:00:00.000Z","time":300,"connection":"1","request":{"method":"GET","url":
"https://www.test/","httpVersion":"h2"},"response":{"status":200,"headersSize":-1,"bodySize":-1,"_transferSize":5000},
"timings":{"blocked":0,"dns":20,"connect":100,"ssl":50,"send":0,"wait":150,"receive":30}},
{"pageref":"p","startedDateTime":"2026-01-01T00:00:00.300Z","time":400,"connection":"2","request":{"method":"GET","url":
"https://static.test/a.js"},"response":{"status":200,"_transferSize":9000},"timings":{"dns":20,"connect":100,"ssl":50}},
{"pageref":"p","startedDateTime":"2026-01-01T00:00:00.300+00:00","time":200,"connection":"3","request":{"method":"GET","url":
"https://img.test/i.png"},"response":{"status":200,"_transferSize":100},"timings":{"dns":-1,"connect":90,"ssl":45}},
{"pageref":"p","startedDateTime":"2026-01-01T00:00:00.310Z","time":0,"request":{"method":"GET","url":"data:,x"},
"response":{"status":200}}]}}"#;

#[test]
fn a_recorded_page_shows_what_consolidating_would_save() {
    let setup = setup().file("page.har", RECORDING);
    let report = setup.run("check", &["--har", "page.har", "--rtt", "100ms"]).success();
    assert!(report.contains("https://www.test: loaded after 1060 ms, at 100 ms round trip time"), "{report}");
    assert!(report.contains("\"https://static.test\" = \"/_static\""), "{report}");
    assert!(!report.contains("\"https://img.test\""), "{report}");
    // With a byte order mark, and fields of other types, as some programs write them.
    let odd = RECORDING
        .replace("\"connection\":\"3\"", "\"_initiator\":\"https://www.test/\",\"_transferSize\":\"x\"");
    fs::write(setup.folder().join("odd.har"), format!("\u{feff}{odd}")).expect("a file");
    let report = setup.run("check", &["--har", "odd.har", "--rtt", "100ms"]).success();
    assert!(report.contains("\"https://static.test\" = \"/_static\""), "{report}");
    let json = setup.run("check", &["--har", "page.har", "--json"]).success();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["saved_ms"], &json["without_network"]), (&Value::from(120.0), &Value::from(1)));
    assert_eq!(json["origins"][1]["origin"], "https://static.test");
    assert_eq!(
        (&json["origins"][1]["round_trips"], &json["origins"][1]["bytes"]),
        (&Value::from(3), &Value::from(9000))
    );
}

#[test]
fn what_is_no_recording_is_said_with_what_would_be_right() {
    let folder = setup();
    for (name, text, message) in [
        ("a", "{", "is no HAR file"),
        ("b", "{\"log\":{}}", "missing field `entries`"),
        ("c", "{\"log\":{\"entries\":[]}}", "it has no request"),
        ("e", &RECORDING.replace("\"status\":200", "\"status\":0"), "no request has an answer"),
        ("f", &"[".repeat(100_000), "is no HAR file"),
    ] {
        fs::write(folder.folder().join(name), text).expect("a file");
        let output = folder.run("check", &["--har", name]);
        assert_eq!(output.status.code(), Some(1), "{}", output.text());
        assert!(output.stderr.contains(message), "{name}: {}", output.stderr);
    }
    // One entry that cannot be read does not hide the others.
    let damaged = RECORDING.replace("2026-01-01T00:00:00.300Z", "yesterday");
    fs::write(folder.folder().join("d"), damaged).expect("a file");
    let report = folder.run("check", &["--har", "d"]).success();
    assert!(report.contains("log.entries[1]: \"yesterday\" is not a time"), "{report}");
    let missing = folder.run("check", &["--har", "none.har"]);
    assert!(missing.stderr.contains("none.har: cannot be read: No such file"), "{}", missing.stderr);
}
