//! 103 (Early Hints), as received by curl and used by Chromium.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brisk_behaviour::h2::{END_HEADERS, HEADERS, frame};
use brisk_behaviour::h2_origin::{h2_origin, h2c};
use brisk_behaviour::site::{Site, upstream};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Process, wait_until};

use crate::chromium::Chromium;

const NAVIGATION: [&str; 4] = ["--http2", "--include", "--header", "Accept: text/html"];
const STYLE: &str = "</app.css>; rel=preload; as=style";

fn hinting(url: &str, hints: &str) -> Site {
    let route = format!("\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_hints = {hints}\n");
    Site::with(&(route + &upstream(&[url]) + "timeouts = { head = \"10m\" }\n"))
}

/// Whether answers may follow their hints. An answer that comes with its hints makes them useless, and they are left out.
type Gate = Arc<AtomicBool>;

fn wait_for(gate: &Gate) {
    wait_until("an answer that may follow its hints", || gate.load(Ordering::SeqCst).then_some(()));
}

/// Requests a page with curl, and lets its answer follow when curl has the hints. Returns the output.
fn hinted(site: &Site, gate: &Gate) -> String {
    let options = [&NAVIGATION[..], &["--verbose"]].concat();
    let mut curl = Process::start(&mut site.curl_command(&options, &site.url("/")));
    wait_until("hints before the answer", || curl.stderr().contains("< HTTP/2 103").then_some(()));
    gate.store(true, Ordering::SeqCst);
    assert!(curl.wait().success(), "{}", curl.stderr());
    curl.stdout()
}

/// An upstream whose pages have these lines in their heads, after `before`. The answer waits for the gate.
fn pages(before: &'static str, lines: &'static str, gate: &Gate) -> Origin {
    let gate = Arc::clone(gate);
    Origin::answering(move |_, stream| {
        if !before.is_empty() {
            stream.write_all(before.as_bytes())?;
            wait_for(&gate);
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{lines}Content-Length: 4\r\n\r\npage")
    })
}

/// The links of the 103 before an answer, one in a line.
fn hints(answer: &str) -> String {
    let interim = answer.split("\r\n\r\n").next().filter(|head| head.starts_with("HTTP/2 103"));
    let lines = interim.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("link: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn an_upstreams_own_hints_and_those_of_the_configuration_go_out_before_the_answer() {
    let before = "HTTP/1.1 103 Early Hints\r\nLink: </app.css>; rel=preload; as=style\r\nX-Secret: 1\r\n\r\n";
    let gate = Gate::default();
    let origin = pages(before, "", &gate);
    let site = hinting(&origin.url(), "true");
    let answer = hinted(&site, &gate);
    assert_eq!(hints(&answer), STYLE, "{answer}");
    assert!(!answer.contains("x-secret") && answer.ends_with("page"), "{answer}");
    let configured = hinting(&origin.url(), "[\"</main.js>; rel=modulepreload\"]");
    assert_eq!(hints(&configured.curl(&NAVIGATION, "/").success()), "</main.js>; rel=modulepreload");
    // Neither for what is no page, nor over HTTP/1.1.
    assert!(!site.curl(&["--http2", "--include"], "/").success().contains(" 103"));
    let old = ["--http1.1", "--include", "--header", "Accept: text/html"];
    assert!(!site.curl(&old, "/").success().contains(" 103"));
}

#[test]
fn hints_of_an_upstream_over_http2_go_out_as_well() {
    let gate = Gate::default();
    let own = Arc::clone(&gate);
    let origin = h2_origin(move |peer, _| {
        while let Some(stream) = peer.request()? {
            // `:status` and `link`, by the indices of their names.
            let value = [&[u8::try_from(STYLE.len()).expect("a short value")], STYLE.as_bytes()].concat();
            let block = [b"\x08\x03103\x0f\x1e", &value[..]].concat();
            peer.send(&frame(HEADERS, END_HEADERS, stream, &block))?;
            wait_for(&own);
            peer.answer(stream, b"page", true)?;
        }
        Ok(())
    });
    let site = hinting(&h2c(&origin), "true");
    let answer = hinted(&site, &gate);
    assert_eq!(hints(&answer), STYLE, "{answer}");
    assert!(answer.ends_with("page"), "{answer}");
}

#[test]
fn the_links_of_a_page_are_hints_for_the_next_visitor() {
    let lines = "Link: </app.css>; rel=preload; as=style, </next>; rel=next\r\nLink: <https://b.test>; rel=preconnect\r\n";
    let origin = pages("", lines, &Gate::default());
    let site = hinting(&origin.url(), "{ upstream = false }");
    assert!(!site.curl(&NAVIGATION, "/page?x").success().contains(" 103"));
    // The next connections reach both workers, which share their knowledge.
    for _ in 0..20 {
        let learned = site.curl(&NAVIGATION, "/page?y").success();
        assert_eq!(hints(&learned), format!("{STYLE}\n<https://b.test>; rel=preconnect"), "{learned}");
    }
    // Pages for users leave nothing.
    let cookie = [&NAVIGATION[..], &["--cookie", "session=1"]].concat();
    for _ in 0..10 {
        assert!(!site.curl(&cookie, "/private").success().contains(" 103"));
    }
}

#[test]
fn chromium_loads_what_was_hinted_before_the_page_is_there() {
    let asked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked);
    let origin = Origin::answering(move |request, stream| {
        if request.head.line.contains("/app.css") {
            asked.store(true, Ordering::SeqCst);
            return write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nContent-Length: 4\r\n\r\np {{}}"
            );
        }
        if !request.head.line.starts_with("GET / ") {
            return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
        write!(stream, "HTTP/1.1 103 Early Hints\r\nLink: {STYLE}\r\n\r\n")?;
        // The head comes only when the browser has asked for the style.
        let until = Instant::now() + Duration::from_secs(150);
        while !asked.load(Ordering::SeqCst) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let title = if asked.load(Ordering::SeqCst) { "hinted" } else { "late" };
        let page = format!("<title>{title}</title><link rel=stylesheet href=/app.css>");
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
            page.len()
        )
    });
    let site = hinting(&origin.url(), "true");
    let url = format!("https://localhost:{}/", site.brisk.https().port());
    let page = Chromium::new(site.brisk.folder(), &site.brisk).run(&["--dump-dom"], &url);
    assert!(page.contains("<title>hinted</title>"), "{page}");
    assert!(seen.load(Ordering::SeqCst));
}

#[test]
fn chromium_decodes_zstd_and_br() {
    let body = "<p>a long way to go</p>".repeat(500);
    for coding in ["zstd", "br"] {
        let tables = format!(
            "compression = {{ codings = [\"{coding}\"] }}\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n"
        );
        let site = Site::custom("", &tables, |setup| setup.file("www/index.html", &body));
        let url = format!("https://localhost:{}/", site.brisk.https().port());
        let page = Chromium::new(site.brisk.folder(), &site.brisk).run(&["--dump-dom"], &url);
        assert_eq!(page.matches("<p>a long way to go</p>").count(), 500, "{coding}");
        let label = format!("coding=\"{coding}\"");
        assert!(site.brisk.metrics().sum("brisk_compressed_answers_total", &[&label]) >= 1.0, "{coding}");
    }
}
