//! A page of 60 resources in Chromium: compressed, as the difference to its first version, hinted, in order of priority.

use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brisk_behaviour::linked::{link, words_before};
use brisk_behaviour::site::{LIMIT, NAME, Site, proxy_to, upstream};
use brisk_link::SERVER;
use brisk_testkit::brisk::Setup;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{command, run};
use tempfile::TempDir;

use crate::chromium::Chromium;
use crate::devtools::Page;
use crate::net_log::{Exchange, NetLog};

const RESOURCES: usize = 60;
/// Styles and scripts.
const TEXTS: usize = 6;
const STYLE: &str = "/css/app.v1.css";
/// The script in the head, which blocks the page.
const SCRIPT: &str = "/js/head.v1.js";
const STATIC: &str = "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n";

/// Makes the page in the folder `www`.
fn with_page(setup: Setup) -> Setup {
    make_page(&setup.folder().join("www"));
    setup
}

fn make_page(folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench/browsing/site.py");
    run(command("python3").arg(script).arg(folder), b"", LIMIT).success();
}

fn visit(site: &Site, options: &[&str], path: &str) -> NetLog {
    let url = format!("https://localhost:{}{path}", site.brisk.https().port());
    Chromium::new(site.brisk.folder(), &site.brisk).net_log(options, &url)
}

/// What was asked for of the site, each as a whole answer with status 200.
fn complete<'a>(log: &'a NetLog, host: &'a str) -> Vec<&'a Exchange> {
    let exchanges: Vec<_> = log.of(host).collect();
    for exchange in &exchanges {
        assert!(exchange.status == "200" && exchange.complete.is_some(), "{exchange:?}");
    }
    exchanges
}

fn one<'a>(exchanges: &[&'a Exchange], path: &str) -> &'a Exchange {
    let mut found = exchanges.iter().filter(|exchange| exchange.path == path);
    found.next().unwrap_or_else(|| panic!("nobody asked for {path}: {exchanges:?}"))
}

fn is_picture(exchange: &Exchange) -> bool {
    exchange.path.starts_with("/img/")
}

#[test]
fn sixty_resources_come_compressed_by_zstd_and_br() {
    for coding in ["zstd", "br"] {
        let tables = format!("compression = {{ codings = [\"{coding}\"] }}\n{STATIC}");
        let site = Site::custom("", &tables, with_page);
        let host = format!("localhost:{}", site.brisk.https().port());
        let log = visit(&site, &[], "/");
        let exchanges = complete(&log, &host);
        assert_eq!(exchanges.len(), RESOURCES, "{exchanges:?}");
        let www = site.brisk.folder().join("www");
        for exchange in exchanges {
            let expected = (!is_picture(exchange)).then_some(coding);
            assert_eq!(exchange.coding.as_deref(), expected, "{exchange:?}");
            let file = if exchange.path == "/" { "index.html" } else { &exchange.path[1..] };
            let size = fs::metadata(www.join(file)).expect("a file of the page").len();
            let smaller = exchange.bytes < size / 2;
            assert!(smaller == expected.is_some() && exchange.bytes <= size, "{size}: {exchange:?}");
        }
    }
}

/// An upstream with the page, which is its dictionary for later versions. `before` may say or await something before an answer.
fn origin(
    before: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> (TempDir, Origin) {
    let folder = TempDir::new().expect("a temporary folder");
    make_page(folder.path());
    let www = folder.path().to_owned();
    let origin = Origin::answering(move |request, stream| {
        let path = request.head.line.split(' ').nth(1).unwrap_or_default();
        before(path, stream)?;
        send_file(&www, path, stream)
    });
    (folder, origin)
}

fn send_file(www: &Path, path: &str, stream: &mut TcpStream) -> io::Result<()> {
    let file = www.join(if path == "/" { "index.html" } else { &path[1..] });
    let kind = match file.extension().and_then(|ending| ending.to_str()) {
        Some("html") => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        _ => "image/png",
    };
    let Ok(body) = fs::read(&file) else {
        return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let versions = path.replace(".v1.", ".*.").replace(".v2.", ".*.");
    // What was hinted must be fresh, or it is loaded again when the page names it.
    let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Type: {kind}\r\n");
    let dictionary = format!("Use-As-Dictionary: match=\"{versions}\"\r\n");
    let dictionary = if versions == path { "" } else { &dictionary };
    write!(stream, "{head}{dictionary}Content-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(&body)
}

#[test]
fn the_second_version_of_a_page_comes_as_its_difference_to_the_first() {
    let (_www, origin) = origin(|_, _| Ok(()));
    let tables = "compression = { dictionaries = true }\n".to_owned() + &proxy_to(&[&origin.url()]);
    // Chromium uses dictionaries only where a public authority vouches for the server.
    let options = ["--disable-features=CompressionDictionaryTransportRequireKnownRootCert"];
    let mut seen = Vec::new();
    // A browser that is stopped writes its dictionaries to disk at the end, if it has the time.
    let used = (0..15).any(|_| {
        let site = Site::with(&tables);
        let host = format!("localhost:{}", site.brisk.https().port());
        let (first, second) = (visit(&site, &options, "/"), visit(&site, &options, "/next.html"));
        let whole = one(&complete(&first, &host), SCRIPT).bytes;
        let second = complete(&second, &host);
        let versions: Vec<_> = second.iter().filter(|exchange| exchange.path.contains(".v2.")).collect();
        assert_eq!(versions.len(), TEXTS, "{second:?}");
        let differences = versions.iter().filter(|exchange| exchange.coding.as_deref() == Some("dcz"));
        let bytes: Vec<_> = differences.map(|exchange| exchange.bytes).collect();
        let used = bytes.len() == TEXTS && bytes.iter().all(|bytes| *bytes < 500);
        seen.push((whole, bytes));
        used
    });
    assert!(used, "bytes of the script in its first version, and of differences: {seen:?}");
}

#[test]
fn preloads_of_a_page_begin_before_the_head_of_its_answer() {
    let asked = [STYLE, SCRIPT].map(|path| (path, AtomicBool::new(false)));
    // The page is answered when its hints were taken up, or much too late.
    let (_www, origin) = origin(move |path, stream| {
        if let Some((_, asked)) = asked.iter().find(|(hinted, _)| *hinted == path) {
            asked.store(true, Ordering::SeqCst);
        }
        if path != "/" {
            return Ok(());
        }
        let links = format!("<{STYLE}>; rel=preload; as=style, <{SCRIPT}>; rel=preload; as=script");
        write!(stream, "HTTP/1.1 103 Early Hints\r\nLink: {links}\r\n\r\n")?;
        let is_asked = || asked.iter().all(|(_, asked)| asked.load(Ordering::SeqCst));
        let until = Instant::now() + Duration::from_secs(150);
        while !is_asked() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
    let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_hints = true\n";
    let timeouts = "timeouts = { head = \"10m\" }\n";
    let site = Site::with(&(route.to_owned() + &upstream(&[&origin.url()]) + timeouts));
    let host = format!("localhost:{}", site.brisk.https().port());
    let log = visit(&site, &[], "/");
    let exchanges = complete(&log, &host);
    assert_eq!(exchanges.len(), RESOURCES, "{exchanges:?}");
    let page = one(&exchanges, "/");
    for hinted in [STYLE, SCRIPT] {
        let hinted = one(&exchanges, hinted);
        assert!(Some(hinted.asked) < page.answered, "{hinted:?} {page:?}");
    }
}

#[test]
fn the_script_in_the_head_is_complete_before_the_pictures() {
    // The script takes a quarter of a second of it, and pictures are asked for meanwhile.
    let Some(link) = link("delay=25ms,rate=2M,queue=200k") else { return };
    let (client, server) = (words_before(&link.client("")), words_before(&link.server("")));
    let keys = format!("server.https = [\"{SERVER}:0\"]");
    let site = Site::custom(&keys, STATIC, |setup| with_page(setup).behind(&server));
    let host = format!("{NAME}:{}", site.brisk.https().port());
    let names = format!("--host-resolver-rules=MAP {NAME} {SERVER}, MAP * ~NOTFOUND");
    let mut orders = Vec::new();
    for attempt in 0..20 {
        let folder = site.brisk.folder().join(format!("visit-{attempt}"));
        fs::create_dir(&folder).expect("a temporary folder");
        let browser = Chromium::behind(&client, &folder, &site.brisk);
        let log = browser.net_log(&[&names], &format!("https://{host}/"));
        let exchanges = complete(&log, &host);
        let script = one(&exchanges, SCRIPT);
        let pictures = || exchanges.iter().filter(|exchange| is_picture(exchange));
        let meanwhile = pictures().filter(|picture| Some(picture.asked) < script.complete).count();
        let earlier = pictures().filter(|picture| picture.complete < script.complete).count();
        orders.push((meanwhile, earlier));
        // On a busy machine the browser may ask for the first picture too late.
        if meanwhile > 0 && earlier == 0 {
            return;
        }
    }
    panic!("pictures asked for before the script was complete, and of them complete before it: {orders:?}");
}

#[test]
fn a_visitor_from_another_site_sees_a_padded_page() {
    let page = format!("<!doctype html><title>arrived</title><p>{}</p>", "a long way ".repeat(500));
    let body = page.clone();
    let origin = Origin::answering(move |_, stream| {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: session=1; Secure\r\nContent-Length: ";
        write!(stream, "{head}{}\r\n\r\n{body}", body.len())
    });
    let route = "compression = true\n\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    let site = Site::custom("", &format!("{route}{}", upstream(&[&origin.url()])), |setup| setup);
    let folder = site.brisk.folder();
    let browser = Chromium::new(folder, &site.brisk).start(&[], "about:blank");
    let mut tab = Page::of(browser, &folder.join("profile"));
    let url = format!("https://localhost:{}/", site.brisk.https().port());
    tab.open(&url);
    let shown = "document.title == 'arrived' && document.body.innerText.length > 5000";
    tab.wait_for(shown);
    tab.open("data:text/html,<title>elsewhere</title>");
    let _ = tab.script(&format!("location.href = '{url}from-elsewhere', 0"));
    tab.wait_for(&format!("location.pathname == '/from-elsewhere' && {shown}"));
    let padded = site.brisk.metrics().sum("brisk_compression_arrivals_total", &["result=\"padded\""]);
    assert_eq!(padded.round() as u32, 1);
}
