//! HTTP/1.1 and HTTP/2 as curl speaks them: methods, bodies, trailers, files, redirects.

use std::io::Write;

use brisk_behaviour::site::{LIMIT, NAME, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::{command, free_port, run};

const VERSIONS: [(&str, &str); 2] = [("--http1.1", "1.1"), ("--http2", "2")];

fn respond(path: &str, body: &str) -> String {
    format!("\n[[host.route]]\npath = {path:?}\nrespond = {{ body = {body:?} }}\n")
}

#[test]
fn alpn_chooses_the_version() {
    let site = Site::with(&respond("/", "hello"));
    for (option, version) in VERSIONS {
        let answer = site.curl(&[option, "--write-out", " by %{http_version}"], "/").success();
        assert_eq!(answer, format!("hello by {version}"));
    }
    // Without ALPN it is HTTP/1.1.
    let answer = site.curl(&["--no-alpn", "--write-out", " by %{http_version}"], "/").success();
    assert_eq!(answer, "hello by 1.1");
}

#[test]
fn head_tells_the_length_and_sends_no_body() {
    let site = Site::with(&respond("/", "hello"));
    for (option, _) in VERSIONS {
        let answer = site.curl(&[option, "--head"], "/").success();
        assert!(answer.contains(" 200"), "{answer}");
        assert!(answer.to_lowercase().contains("content-length: 5\r\n"), "{answer}");
        assert!(!answer.contains("hello"), "{answer}");
    }
}

#[test]
fn head_is_proxied_with_the_length_that_the_upstream_gives() {
    let origin =
        Origin::answering(|_, stream| write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"));
    let site = Site::proxying(&[&origin.url()]);
    for (option, _) in VERSIONS {
        let answer = site.curl(&[option, "--head"], "/").success().to_lowercase();
        assert!(answer.contains("content-length: 1000\r\n"), "{answer}");
    }
    assert!(origin.requests().iter().all(|request| request.head.line.starts_with("HEAD / ")));
}

#[test]
fn expect_100_continue_is_answered_before_the_body_comes() {
    let origin = Origin::fixed("taken");
    let site = Site::proxying(&[&origin.url()]);
    let options =
        ["--http1.1", "--verbose", "--expect100-timeout", "150", "--header", "Expect: 100-continue"];
    let answer = site.curl(&[&options[..], &["--data-binary", "body"]].concat(), "/");
    assert!(answer.stderr.contains("< HTTP/1.1 100 Continue"), "{}", answer.stderr);
    assert_eq!(answer.success(), "taken");
    let request = origin.last_request();
    assert_eq!((request.text().as_str(), request.header("expect")), ("body", None));
}

#[test]
fn uploads_arrive_whole_with_a_length_and_chunked() {
    let origin = Origin::answering(|request, stream| {
        write_response(stream, request.body.len().to_string().as_bytes())
    });
    let body: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    let site = Site::custom("", &brisk_behaviour::site::proxy_to(&[&origin.url()]), |setup| {
        setup.file("body", &body)
    });
    let file = format!("@{}", site.brisk.folder().join("body").display());
    for (option, _) in VERSIONS {
        let sized = site.curl(&[option, "--data-binary", &file], "/").success();
        assert_eq!(sized, body.len().to_string(), "{option}");
        assert!(origin.last_request().body == body, "{option}: the body changed on its way");
        let chunked = [option, "--header", "Transfer-Encoding: chunked", "--data-binary", &file];
        let chunked = if option == "--http2" {
            [option, "--header", "Content-Length:", "--data-binary", &file]
        } else {
            chunked
        };
        assert_eq!(site.curl(&chunked, "/").success(), body.len().to_string(), "{option}");
        assert!(origin.last_request().body == body, "{option}: the body changed on its way");
    }
    assert!(origin.requests()[1].head.is_chunked());
}

#[test]
fn a_get_keeps_its_body_whatever_its_framing() {
    let origin = Origin::fixed("found");
    let site = Site::proxying(&[&origin.url()]);
    let query = ["--request", "GET", "--data", "query", "--header"];
    for framing in
        [["Transfer-Encoding: chunked", "--http1.1"], ["Content-Length:", "--http2"], ["X: y", "--http2"]]
    {
        assert_eq!(site.curl(&[&query[..], &framing].concat(), "/").success(), "found", "{framing:?}");
        assert_eq!(origin.last_request().text(), "query", "{framing:?}");
    }
}

#[test]
fn trailers_reach_the_client() {
    let origin = Origin::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n";
        write!(stream, "{head}5\r\nhello\r\n0\r\nX-Sum: 532\r\n\r\n")
    });
    let site = Site::proxying(&[&origin.url()]);
    for (option, _) in VERSIONS {
        let answer = site.curl(&[option, "--header", "TE: trailers", "--dump-header", "-"], "/").success();
        assert!(answer.to_lowercase().contains("x-sum: 532"), "{option}: {answer}");
        assert_eq!(origin.last_request().header("te"), Some("trailers"));
    }
}

#[test]
fn trailers_reach_the_upstream() {
    let origin = Origin::fixed("thanks");
    let site = Site::proxying(&[&origin.url()]);
    // The header `Trailer` is not required (RFC 9110 section 6.6.2).
    for announced in ["Trailer: X-Sum\r\n", ""] {
        let head =
            format!("POST / HTTP/1.1\r\nHost: {NAME}\r\n{announced}Transfer-Encoding: chunked\r\n\r\n");
        let answer = site.connect().request(&format!("{head}5\r\nhello\r\n0\r\nX-Sum: 532\r\n\r\n"));
        assert_eq!(answer.text(), "thanks");
        assert_eq!(origin.last_request().trailers, [("x-sum".to_owned(), "532".to_owned())], "{announced:?}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = Site::with(&(respond("/one", "1") + &respond("/two", "2") + &respond("/three", "3")));
    let mut connection = site.connect();
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let all: String = ["/one", "/two", "/three", "/one"].map(request).concat();
    connection.write_all(all.as_bytes()).unwrap();
    let answers: Vec<_> = (0..4).map(|_| connection.response().text()).collect();
    assert_eq!(answers, ["1", "2", "3", "1"]);
}

#[test]
fn http_1_0_is_answered_and_closed() {
    let site = Site::with(&respond("/", "hello"));
    let answer = site.curl(&["--http1.0", "--include"], "/").success();
    assert!(answer.ends_with("hello"), "{answer}");
}

#[test]
fn http_1_0_persists_where_the_client_asks_for_it() {
    let site = Site::with(&respond("/", "hello"));
    let url = site.url("/");
    let options = ["--http1.0", "--write-out", " %{num_connects} ", &url];
    assert_eq!(site.curl(&options, "/").success(), "hello 1 hello 1 ");
    let options = [&["--header", "Connection: keep-alive"], &options[..]].concat();
    assert_eq!(site.curl(&options, "/").success(), "hello 1 hello 0 ");
}

fn files() -> Site {
    let tables = "\n[[host.route]]\npath = \"/files/\"\nstatic = \"www\"\n";
    Site::custom("", tables, |setup| {
        let setup = setup.file("www/index.html", "<p>index</p>").file("www/style.css", "p {}");
        setup.file("www/digits", "0123456789").file("secret", "secret")
    })
}

#[test]
fn files_have_types_and_folders_an_index() {
    let site = files();
    for (path, kind) in
        [("/files/", "text/html"), ("/files/index.html", "text/html"), ("/files/style.css", "text/css")]
    {
        let answer = site.curl(&["--write-out", " %{response_code} %{content_type}"], path).success();
        assert!(answer.contains(&format!(" 200 {kind}")), "{path}: {answer}");
    }
    let missing =
        site.curl(&["--write-out", "%{response_code}", "--output", "/dev/null"], "/files/none").success();
    assert_eq!(missing, "404");
}

#[test]
fn files_outside_the_folder_are_out_of_reach() {
    let site = files();
    for path in ["/files/../secret", "/files/%2e%2e/secret", "/files/..%2fsecret", "/files/%2e%2e%2fsecret"] {
        let answer = site.curl(&["--path-as-is", "--include"], path).success();
        assert!(!answer.contains("secret\n") && !answer.ends_with("secret"), "{path}: {answer}");
        assert!(answer.contains(" 40"), "{path}: {answer}");
    }
}

#[test]
fn a_range_of_a_file_is_served() {
    let site = files();
    for (option, _) in VERSIONS {
        let answer = site.curl(&[option, "--include", "--range", "2-4"], "/files/digits").success();
        assert!(answer.contains(" 206"), "{answer}");
        assert!(answer.to_lowercase().contains("content-range: bytes 2-4/10"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n234"), "{answer}");
    }
    let beyond = site.curl(&["--range", "20-", "--write-out", "%{response_code}"], "/files/digits").success();
    assert!(beyond.ends_with("416"), "{beyond}");
}

#[test]
fn a_file_that_has_not_changed_is_not_sent_again() {
    let site = files();
    let validators = ["--write-out", "%header{last-modified}\n%header{etag}", "--output", "/dev/null"];
    let validators = site.curl(&validators, "/files/digits").success();
    let (modified, tag) = validators.split_once('\n').expect("two lines");
    for condition in [format!("If-Modified-Since: {modified}"), format!("If-None-Match: {tag}")] {
        let again = site.curl(&["--include", "--header", &condition], "/files/digits").success();
        assert!(again.contains(" 304") && !again.contains("0123456789"), "{condition}: {again}");
    }
    let other = site.curl(&["--header", "If-None-Match: \"other\""], "/files/digits").success();
    assert_eq!(other, "0123456789");
}

#[test]
fn plain_http_is_redirected_to_https() {
    let ca = TestCa::new();
    let table = host(&[NAME], &[&ca.server(&[NAME]).issue()]);
    // A redirect names the port that the configuration does.
    let https = free_port();
    let config = base(&format!("server.https = [\"127.0.0.1:{https}\"]"));
    let site = Site { brisk: setup().config(&(config + &table)).start(), ca };
    let url = format!("http://{NAME}:{}/a/b?c=d", site.brisk.http().port());
    let answer =
        site.curl_url(&["--write-out", "%{response_code} %{redirect_url}", "--output", "/dev/null"], &url);
    assert_eq!(answer.success(), format!("308 https://{NAME}:{https}/a/b?c=d"));
    assert!(site.curl_url(&["--location"], &url).success().contains("not found"));
}

#[test]
fn routes_redirect_and_unknown_paths_are_404() {
    let site = Site::with(
        r#"
[[host.route]]
path = "/old"
redirect = "https://new.test{path}"
[[host.route]]
path = "/moved"
exact = true
redirect = { to = "/there", status = 302 }
"#,
    );
    let ask = |path: &str| {
        let options = ["--write-out", "%{response_code} %header{location}", "--output", "/dev/null"];
        site.curl(&options, path).success()
    };
    assert_eq!(ask("/old/page?x=1"), "308 https://new.test/old/page?x=1");
    assert_eq!(ask("/moved"), "302 /there");
    assert!(ask("/moved/on").starts_with("404"));
    assert!(ask("/other").starts_with("404"));
}

#[test]
fn hsts_is_sent_over_https_by_hosts_that_want_it() {
    let hsts = r#"hsts = { max_age = "365d", include_subdomains = true, preload = true }"#;
    let site = Site::with(&format!("{hsts}\n{}", respond("/", "hello")));
    for (option, _) in VERSIONS {
        let answer =
            site.curl(&[option, "--write-out", " %header{strict-transport-security}"], "/").success();
        assert_eq!(answer, "hello max-age=31536000; includeSubDomains; preload");
    }
    // RFC 6797 section 7.2: not over plain HTTP.
    let url = format!("http://{NAME}:{}/", site.brisk.http().port());
    let plain = site.curl_url(&["--head"], &url).success().to_lowercase();
    assert!(!plain.contains("strict-transport-security"), "{plain}");
    let without = Site::new().curl(&["--head"], "/").success().to_lowercase();
    assert!(!without.contains("strict-transport-security"), "{without}");
}

#[test]
fn a_body_beyond_the_limit_of_its_route_is_413() {
    let origin = Origin::fixed("taken");
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nbody_size = \"1KiB\"\n{}",
        brisk_behaviour::site::upstream(&[&origin.url()])
    );
    let site =
        Site::custom("", &tables, |setup| setup.file("whole", [b'x'; 1024]).file("beyond", [b'x'; 1025]));
    let file = |name: &str| site.brisk.folder().join(name).display().to_string();
    for (option, _) in VERSIONS {
        let whole = ["--write-out", "%{response_code}", "--output", "/dev/null", option, "--data-binary"];
        let whole = site.curl(&[&whole[..], &[&format!("@{}", file("whole"))]].concat(), "/").success();
        assert_eq!(whole, "200", "{option}");
    }
    let answer =
        site.curl(&["--http1.1", "--include", "--data-binary", &format!("@{}", file("beyond"))], "/");
    assert!(answer.stdout.contains(" 413 "), "{}", answer.text());
    // nghttp, since curl 7.88 loses an answer that comes before it began to send the body.
    let mut nghttp = command("nghttp");
    nghttp.args(["--no-verify-peer", "--verbose", "--null-out", &format!("--data={}", file("beyond"))]);
    let answer = run(nghttp.arg(format!("https://localhost:{}/", site.brisk.https().port())), b"", LIMIT);
    assert!(answer.stdout.contains(":status: 413"), "{}", answer.text());
}

#[test]
fn uploads_over_http2_end_that_were_answered_before() {
    let site = Site::custom(
        "",
        "\n[[host.route]]\npath = \"/\"\nredirect = { to = \"/other\", status = 302 }\n",
        |setup| setup.file("body", vec![b'x'; 200_000]),
    );
    let file = format!("@{}", site.brisk.folder().join("body").display());
    let shown = ["--http2", "--output", "/dev/null", "--write-out", "%{http_code}", "--data-binary", &file];
    // curl 7.88 waits for one more frame if the answer was whole first: which of the two is, the machine decides.
    for _ in 0..6 {
        assert_eq!(site.curl(&[&shown[..], &["--header", "Content-Length:"]].concat(), "/").success(), "302");
    }
}

#[test]
fn which_versions_of_http_clients_may_agree_on_is_a_setting() {
    let version = ["--output", "/dev/null", "--write-out", "%{http_version}"];
    for (protocols, by_default) in [("\"http/1.1\"", "1.1"), ("\"h2\"", "2"), ("\"http/1.1\", \"h2\"", "1.1")]
    {
        let site = Site::custom(&format!("tls.protocols = [{protocols}]\n"), "", |setup| setup);
        let negotiated = site.curl(&[&["--http2"], &version[..]].concat(), "/").success();
        assert_eq!(negotiated, by_default, "{protocols}");
        let old = site.curl(&[&["--http1.1"], &version[..]].concat(), "/");
        // RFC 7301 section 3.2.
        let refused = old.stderr.contains("no application protocol");
        assert_eq!(refused, protocols == "\"h2\"", "{}", old.text());
    }
}
