//! Savings for pages beside compression: precompressed copies, header rules, kept connections.

use std::fs;
use std::path::Path;
use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, NAME, Site, proxy_to, upstream};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Finished, run, wait_until};

fn text(lines: usize) -> String {
    let line = |line| format!("line {line} of {}\n", line * line % 977);
    (0..lines).map(line).collect::<Vec<_>>().concat()
}

fn compress(folder: &Path, options: &[&str]) -> Finished {
    let mut brisk = Command::new(brisk_program());
    run(brisk.arg("compress").arg(folder).args(options), b"", LIMIT)
}

#[test]
fn brisk_compress_makes_copies_that_are_served_and_renewed() {
    let body = text(2000);
    let tables = "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\nprecompressed = true\n";
    let site = Site::custom("", tables, |setup| {
        let setup =
            setup.file("www/page.html", &body).file("www/deep/app.js", &body).file("www/x.png", &body);
        setup.file("www/short.css", "a{}").file("www/gone.css.br", "x").file("www/.hidden/x.html", &body)
    });
    let folder = site.brisk.folder().join("www");
    let made = compress(&folder, &[]).success();
    assert!(
        made.starts_with("6 copies made (") && made.contains("1 of files that are gone removed"),
        "{made}"
    );
    let names = |folder: &Path| {
        let entries =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(names(&folder.join("deep")), "app.js app.js.br app.js.gz app.js.zst");
    assert_eq!(names(&folder.join(".hidden")), "x.html");
    let again = compress(&folder, &["--coding", "br,gzip"]).success();
    assert!(again.starts_with("0 copies made") && again.contains("4 were current"), "{again}");
    let asked = ["--write-out", "\n%header{content-encoding} %{size_download}", "--compressed"];
    let get = |coding: &str| {
        let accept = format!("Accept-Encoding: {coding}");
        site.curl(&[&asked[..], &["--header", &accept]].concat(), "/page.html").success()
    };
    for (coding, ending) in [("br", "br"), ("zstd", "zst"), ("gzip", "gz")] {
        let size = fs::metadata(folder.join(format!("page.html.{ending}"))).expect("a copy").len();
        assert!(get(coding) == format!("{body}\n{coding} {size}"), "{coding}");
    }
    // A file that changes has no copy until the next run.
    let changed = text(2001);
    fs::write(folder.join("page.html"), &changed).expect("a file");
    assert!(get("br").starts_with(&changed));
    assert!(get("br").ends_with(&format!("\n {}", changed.len())));
    assert!(compress(&folder, &[]).success().starts_with("3 copies made"));
    assert!(get("br").starts_with(&format!("{changed}\nbr ")));
}

#[test]
fn brisk_compress_says_what_is_no_folder() {
    let wrong = compress(Path::new("/no/such/folder"), &[]);
    assert!(!wrong.status.success());
    let message = "/no/such/folder does not exist: name the folder that a route has as `static`\n";
    assert_eq!(wrong.stderr, message);
}

#[test]
fn files_that_are_asked_for_often_are_compressed_once() {
    let body = text(20_000);
    let tables = "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\ncompression = true\n";
    let site = Site::custom("server.workers = 1", tables, |setup| setup.file("www/page.html", &body));
    let get = |accept: &str| {
        let accept = format!("Accept-Encoding: {accept}");
        site.curl(&["--compressed", "--header", &accept], "/page.html").success()
    };
    let sum = |name: &str| site.brisk.metrics().sum(name, &[]);
    for _ in 0..4 {
        assert!(get("zstd") == body);
    }
    assert_eq!(
        (sum("brisk_compressed_answers_total"), sum("brisk_compressed_copies_sent_total")),
        (2.0, 2.0)
    );
    let kept = sum("brisk_compressed_copies_bytes");
    assert!(kept > 10_000.0 && kept < body.len() as f64 / 2.0, "{kept}");
    let length = site.curl(&["--head", "--header", "Accept-Encoding: zstd"], "/page.html").success();
    assert!(length.to_lowercase().contains("etag: w/"), "{length}");
    // A changed file has another tag, so the copy is not found.
    let changed = text(20_001);
    fs::write(site.brisk.folder().join("www/page.html"), &changed).expect("a file");
    assert!(get("zstd") == changed);
}

#[test]
fn headers_are_changed_in_requests_and_responses() {
    let origin = Origin::answering(|_, stream| {
        use std::io::Write as _;
        let head = "HTTP/1.1 200 OK\r\nServer: app/1.2\r\nX-Frame-Options: DENY\r\nSet-Cookie: a=1\r\n";
        write!(stream, "{head}Content-Length: 2\r\n\r\nok")
    });
    let tables = format!(
        "security_headers = \"modern\"\n\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
         request_headers = {{ set = {{ X-Env = \"live\", Host = \"inner.example\" }}, remove = [\"X-Debug\"] }}\n\
         response_headers = {{ set = {{ Cache-Control = \"no-store\" }}, add = {{ Set-Cookie = \"b=2\" }}, remove = \
         [\"server\"] }}\n{}",
        upstream(&[&origin.url()])
    );
    let site = Site::with(&tables);
    for version in ["--http1.1", "--http2"] {
        let answer =
            site.curl(&[version, "--include", "--header", "X-Debug: 1"], "/").success().to_lowercase();
        for line in [
            "cache-control: no-store",
            "set-cookie: a=1",
            "set-cookie: b=2",
            "x-frame-options: deny",
            "x-content-type-options: nosniff",
            "referrer-policy: strict-origin-when-cross-origin",
            "cross-origin-opener-policy: same-origin-allow-popups",
            "strict-transport-security: max-age=15552000",
        ] {
            assert!(answer.contains(&format!("\r\n{line}\r\n")), "{line} is missing: {answer}");
        }
        assert!(!answer.contains("server:") && !answer.contains("sameorigin"), "{answer}");
        let request = origin.last_request();
        assert_eq!(request.header("x-env"), Some("live"));
        assert_eq!(request.header("host"), Some("inner.example"));
        assert_eq!(request.header("x-debug"), None);
    }
}

#[test]
fn a_connection_is_opened_before_the_click_and_kept() {
    // Longer than the pauses of a busy machine before the first request.
    let keys = "server.timeouts.idle = \"5s\"";
    let tables = "preconnect = { path = \"/_p\", idle = \"1m\" }\n".to_owned()
        + "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"page\" }\n";
    let site = Site::custom(keys, &tables, |setup| setup);
    let mut before = site.connect();
    let opened = before.get(NAME, "/_p");
    // The headers that docs/pages.md names.
    assert_eq!((opened.status(), opened.header("cache-control")), (204, Some("no-store")));
    assert_eq!(opened.header("cross-origin-resource-policy"), Some("cross-origin"));
    // Another connection without it is closed meanwhile.
    let mut other = site.connect();
    assert_eq!(other.get(NAME, "/").status(), 200);
    let open = || site.brisk.metrics().sum("brisk_connections_open", &["listener=\"https\""]);
    wait_until("the end of the other connection", || (open() < 1.5).then_some(()));
    assert_eq!(before.get(NAME, "/").text(), "page");
    assert!(site.curl(&["--http2", "--include"], "/_p").success().contains(" 204"));
}

#[test]
fn a_route_may_end_its_connections() {
    let origin = Origin::fixed("app");
    let tables =
        "\n[[host.route]]\npath = \"/once\"\nrespond = { body = \"once\" }\nkeep_alive = { close = true }\n"
            .to_owned()
            + &proxy_to(&[&origin.url()]);
    let site = Site::with(&tables);
    let asked = ["--write-out", " %{num_connects} ", "--http1.1"];
    let twice = |path: &str| {
        let url = site.url(path);
        site.curl(&[&asked[..], &[&url]].concat(), path).success()
    };
    assert_eq!(twice("/"), "app 1 app 0 ");
    assert_eq!(twice("/once"), "once 1 once 1 ");
    let head = site.curl(&["--http1.1", "--include"], "/once").success().to_lowercase();
    assert!(head.contains("connection: close"), "{head}");
}
