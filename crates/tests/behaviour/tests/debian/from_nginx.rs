//! The snippets of docs/from-nginx.md, run side by side with the same requests.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use brisk_behaviour::page::block;
use brisk_behaviour::site::{LIMIT, NAMES, Site, setup};
use brisk_coding::{Coding, Decoder};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::php::PhpFpm;
use brisk_testkit::process::{command, run, wait_until};
use brisk_testkit::rsyslog::Rsyslog;
use brisk_testkit::uwsgi::Uwsgi;
use tempfile::TempDir;

const PAGE: &str = include_str!("../../../../../docs/from-nginx.md");

/// Directives of nginx that belong to `http`.
const OUTSIDE: [&str; 6] =
    ["map ", "upstream ", "limit_req_zone ", "limit_conn_zone ", "split_clients ", "log_format "];

/// Headers that each server may set in its own way, in every section.
const OWN: [&str; 7] =
    ["connection", "date", "etag", "keep-alive", "server", "transfer-encoding", "x-request-id"];

/// Sections, and headers whose difference their text explains.
const EXPLAINED: [(&str, &str); 8] = [
    ("Static files", "accept-ranges"),
    ("Files that an application permits", "accept-ranges"),
    ("Passwords", "www-authenticate"),
    ("Maintenance", "retry-after"),
    ("Rates of requests", "retry-after"),
    ("PHP, with files first and a front controller", "content-length"),
    ("A Python application over uwsgi", "content-length"),
    ("A new version for a share of the visitors", "set-cookie"),
];

/// Sections that explain why a refusal has another content.
const OWN_REFUSALS: [&str; 1] = ["Permission of another server"];

/// Headers of a request that are compared at the upstream, in addition to those that nginx sets.
const FORWARDED: [&str; 5] = ["accept-language", "authorization", "content-length", "cookie", "user-agent"];

/// A section with its two configurations and its requests.
struct Section {
    title: &'static str,
    nginx: &'static str,
    brisk: &'static str,
    requests: Vec<&'static str>,
}

/// The response of a server, and the requests that its upstreams received because of it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Outcome {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    forwarded: Vec<String>,
}

fn sections() -> Vec<Section> {
    let section = |text: &'static str| Section {
        title: text
            .split('\n')
            .next()
            .and_then(|line| line.split_once(". "))
            .expect("a number and a title")
            .1,
        nginx: block(text, "nginx"),
        brisk: block(text, "toml"),
        requests: block(text, "text").lines().collect(),
    };
    PAGE.split("\n## ").skip(1).map(section).collect()
}

/// The parts of a snippet for `http` and for `server`.
fn parts(snippet: &str) -> (String, String) {
    let (mut http, mut server) = (String::new(), String::new());
    let (mut depth, mut is_outside) = (0_usize, false);
    for line in snippet.lines() {
        if depth == 0 {
            is_outside = OUTSIDE.iter().any(|word| line.starts_with(word));
        }
        // The frame of a server, which the test writes by itself.
        if line == "server {" || (line == "}" && depth == 0) {
            continue;
        }
        depth = (depth + line.matches('{').count()).saturating_sub(line.matches('}').count());
        let part = if is_outside { &mut http } else { &mut server };
        part.push_str(line);
        part.push('\n');
    }
    (http, server)
}

/// Headers of the application beside the name of a permitted file, and one that a file does not get.
const PERMITTED: &str =
    "Content-Type: text/x-permitted\r\nContent-Disposition: attachment\r\nSet-Cookie: a=1\r\nX-Other: 1\r\n";

const COOKIES: &str = "Set-Cookie: a=1; Path=/two/x; Domain=app.internal; Max-Age=5\r\nSet-Cookie: b=2\r\n\
                       Set-Cookie: c=3; path=/other; secure; SameSite=Strict\r\n";

/// An application that names itself in its responses.
fn application(name: &'static str) -> Origin {
    Origin::answering(move |request, stream| {
        let path = request.head.line.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let file = path.strip_prefix("/download/");
        let (status, headers, body) = match path {
            "/verify" if request.header("x-allow") == Some("yes") => (204, "", String::new()),
            "/verify" => (403, "", "denied".to_owned()),
            "/powered" => (200, "X-Powered-By: PHP\r\nX-Other: 1\r\n", name.to_owned()),
            "/text" => (200, "Content-Type: text/plain\r\n", "a line of text\n".repeat(200)),
            "/short" => (200, "Content-Type: text/plain\r\n", "short".to_owned()),
            "/fails" if name == "first" => (503, "", "fails".to_owned()),
            "/two/move" => (302, "Location: http://ADDRESS/two/there?a=b\r\n", String::new()),
            "/two/refresh" => (200, "Refresh: 5; url=http://ADDRESS/two/there\r\n", String::new()),
            "/two/away" => (302, "Location: http://ADDRESS.example/two/there\r\n", String::new()),
            "/two/relative" => (303, "Location: /two/there\r\n", String::new()),
            "/two/cookie" => (200, COOKIES, String::new()),
            _ if file.is_some() => (200, PERMITTED, "unused".to_owned()),
            path => match path.strip_prefix("/status/").and_then(|status| status.parse().ok()) {
                Some(status) => (status, "", format!("{name}: {status}")),
                None => (200, "", name.to_owned()),
            },
        };
        let address = stream.local_addr()?.to_string();
        let headers = headers.replace("ADDRESS", &address);
        let file = file.map(|file| format!("X-Accel-Redirect: /files/{file}\r\n")).unwrap_or_default();
        let length =
            if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        write!(stream, "HTTP/1.1 {status} Status\r\n{headers}{file}{length}\r\n")?;
        if request.head.line.starts_with("HEAD ") { Ok(()) } else { stream.write_all(body.as_bytes()) }
    })
}

/// Prints the variables of the request that do not depend on the server.
const PHP: &str = r"<?php
foreach (['DOCUMENT_ROOT', 'SCRIPT_FILENAME', 'SCRIPT_NAME', 'PATH_INFO', 'PHP_SELF', 'DOCUMENT_URI', 'REQUEST_URI', 'QUERY_STRING',
    'REQUEST_METHOD', 'CONTENT_TYPE', 'CONTENT_LENGTH', 'SERVER_PROTOCOL', 'REQUEST_SCHEME', 'HTTPS', 'GATEWAY_INTERFACE',
    'REMOTE_ADDR', 'SERVER_ADDR', 'HTTP_HOST', 'HTTP_COOKIE', 'HTTP_PROXY', 'HTTP_USER_AGENT', 'APP_ENV'] as $name) {
  echo $name, ' ', $_SERVER[$name] ?? '', PHP_EOL;
}
echo strlen(file_get_contents('php://input'));
if ($_SERVER['QUERY_STRING'] === 'redirect') { header('Location: /elsewhere'); }
";

/// A WSGI application that prints these variables.
const WSGI: &str = r"
NAMES = ['SCRIPT_NAME', 'PATH_INFO', 'REQUEST_URI', 'QUERY_STRING', 'REQUEST_METHOD', 'CONTENT_TYPE', 'CONTENT_LENGTH',
    'SERVER_PROTOCOL', 'REQUEST_SCHEME', 'HTTPS', 'REMOTE_ADDR', 'HTTP_HOST', 'HTTP_COOKIE', 'HTTP_PROXY', 'APP_ENV']

def application(environ, start_response):
    body = environ['wsgi.input'].read()
    start_response('404 Not Found' if environ['PATH_INFO'] == '/missing' else '200 OK', [('Content-Type', 'text/plain')])
    text = ''.join(f'{name} {environ.get(name) or str()}\n' for name in NAMES)
    return [f'{text}{len(body)}'.encode()]
";

/// The folder `/srv` of the snippets.
fn folder() -> TempDir {
    let folder = TempDir::with_prefix("brisk-test-srv-").expect("a temporary folder");
    for name in ["www/sub", "www/admin"] {
        fs::create_dir_all(folder.path().join(name)).expect("a folder");
    }
    for (name, text) in [
        ("www/index.html", "<p>start</p>"),
        ("www/page.html", "<p>page</p>"),
        ("www/404.html", "<p>nothing here</p>"),
        ("www/50x.html", "<p>later</p>"),
        ("www/sub/inner.txt", "inner"),
        ("www/index.php", PHP),
        ("www/admin/index.php", PHP),
        ("www/tool.php", PHP),
    ] {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    let hash = run(command("openssl").args(["passwd", "-apr1", "secret"]), b"", LIMIT).success();
    fs::write(folder.path().join("users"), format!("anna:{hash}")).expect("a file");
    folder
}

/// One request as a section lists it: method, path, and a header or the size of the body.
fn request(client: &TlsClient, server: SocketAddr, line: &str) -> Message {
    let mut words = line.splitn(3, ' ');
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    let extra = words.next().unwrap_or_default();
    let size = extra.strip_suffix(" bytes").map(|size| size.parse::<usize>().expect("a size"));
    let header = if extra.contains(": ") { format!("{extra}\r\n") } else { String::new() };
    let length =
        if method == "POST" { format!("Content-Length: {}\r\n", size.unwrap_or(0)) } else { String::new() };
    let mut stream = client.connect(server).expect("a handshake");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {}\r\n{header}{length}Connection: close\r\n\r\n",
        NAMES[0]
    )
    .expect("a server");
    // A server that refuses the body may have closed the connection.
    let _ = stream.write_all(&vec![b'x'; size.unwrap_or(0)]);
    if method == "HEAD" {
        let head = Head::read(&mut stream).expect("a response").expect("a head");
        return Message { head, ..Message::default() };
    }
    Message::read_response(&mut stream).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn outcome(section: &Section, response: &Message, received: &[Message]) -> Outcome {
    let set_by_nginx = |name: &str| {
        section.nginx.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("proxy_set_header")
                && words.next().is_some_and(|own| own.eq_ignore_ascii_case(name))
        })
    };
    let is_compared = |name: &str| FORWARDED.contains(&name) || (name != "connection" && set_by_nginx(name));
    let forwarded = received.iter().map(|request| {
        let line = request.head.line.rsplit_once(' ').map_or("", |(line, _)| line);
        let headers = request.head.headers.iter().filter(|(name, _)| is_compared(name));
        let sorted: BTreeMap<_, _> = headers.map(|(name, value)| (name, value)).collect();
        format!("{line} {sorted:?} {} bytes", request.body.len())
    });
    let coding = response.header("content-encoding").map(str::to_owned);
    let body = match coding.as_deref() {
        Some("gzip") => {
            let mut text = Vec::new();
            let mut decoder = Decoder::new(Coding::Gzip);
            decoder.write(&response.body, &mut text).expect("gzip");
            String::from_utf8(text).expect("text")
        }
        _ => response.text(),
    };
    let status = response.status();
    // The pages that each server has for errors and redirects.
    let is_built_in = body.contains("<center>nginx") || (status >= 300 && body.contains("<p>Request "));
    let headers = response.head.headers.iter().filter(|(name, _)| {
        let is_of_content = matches!(&**name, "content-type" | "content-length" | "cache-control");
        !OWN.contains(&&**name)
            && !EXPLAINED.contains(&(section.title, name))
            && !(is_of_content && (is_built_in || status >= 300))
            && !(name == "content-length" && coding.is_some())
    });
    let lower =
        |value: &str, name: &str| if name == "vary" { value.to_ascii_lowercase() } else { value.to_owned() };
    let mut headers: Vec<_> = headers.map(|(name, value)| (name.clone(), lower(value, name))).collect();
    headers.sort();
    let is_own = is_built_in
        || (300..400).contains(&status)
        || (status >= 400 && OWN_REFUSALS.contains(&section.title));
    let body = if is_own { String::new() } else { body };
    Outcome { status, headers, body, forwarded: forwarded.collect() }
}

/// Outcomes of all requests of a section at one server.
fn outcomes(
    section: &Section,
    client: &TlsClient,
    server: SocketAddr,
    applications: &[Origin],
) -> Vec<Outcome> {
    let outcome_of = |line: &&str| {
        let before: Vec<_> = applications.iter().map(|origin| origin.requests().len()).collect();
        let response = request(client, server, line);
        if section.brisk.contains("mirror = ") {
            // The copy may arrive after the response.
            wait_until("the copy", || (applications[1].requests().len() > before[1]).then_some(()));
        }
        let received =
            applications.iter().zip(before).flat_map(|(origin, before)| origin.requests().split_off(before));
        outcome(section, &response, &received.collect::<Vec<_>>())
    };
    section.requests.iter().map(outcome_of).collect()
}

/// The tables of brisk for a section: those of the page, or those that `brisk import nginx` forms.
type Tables<'a> = &'a dyn Fn(&str, &str) -> (String, String);

fn compare(section: &Section, tables: Tables<'_>) {
    let (folder, applications, socket) =
        (folder(), [application("first"), application("second")], Nginx::http());
    let srv = format!("{}/", folder.path().display());
    let rsyslog = section.nginx.contains("syslog:").then(Rsyslog::start);
    let php = section.nginx.contains("fastcgi_pass").then(|| PhpFpm::start(3, ""));
    let uwsgi = section.nginx.contains("uwsgi_pass").then(|| Uwsgi::start(WSGI));
    let here = |text: &str| {
        let receiver = rsyslog.as_ref().map(|rsyslog| rsyslog.address().to_string());
        let [first, second] = applications.each_ref().map(|origin| origin.address().to_string());
        text.replace("10.0.0.5:8080", &first)
            .replace("10.0.0.6:8080", &second)
            .replace("10.0.0.9:514", &receiver.unwrap_or_default())
            .replace("/srv/", &srv)
            .replace("/run/php/php-fpm.sock", &path_of(php.as_ref().map(PhpFpm::socket)))
            .replace("/run/uwsgi.sock", &path_of(uwsgi.as_ref().map(Uwsgi::socket)))
            .replace("/run/app.sock", &socket.socket().display().to_string())
    };
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    // Each server draws for itself, so all visitors are in the share.
    let nginx_snippet = section.nginx.replace(" 10% ", " 100% ");
    let (http, server) = parts(&nginx_snippet);
    let nginx = Nginx::bare(&leaf, &here(&http), &here(&server));
    let (keys, tables) = tables(&here(&http), &here(&server));
    let tables = here(&tables).replace("percent = 10 ", "percent = 100 ");
    let mut keys = base(&keys);
    if rsyslog.is_some() {
        // Outputs replace the file of the access log.
        keys = keys.replace("access_log.file = \"access.log\"\n", "");
    }
    let config = format!("{keys}{}{tables}", host(&NAMES, &[&leaf]));
    let site = Site { brisk: setup().config(&config).start(), ca };
    let client = site.client();
    let all = |server| {
        let mut outcomes = outcomes(section, &client, server, &applications);
        if section.brisk.contains("weight") {
            outcomes.sort();
        }
        outcomes
    };
    let check = || {
        let (theirs, ours) = (all(nginx.address()), all(site.brisk.https()));
        for (line, (theirs, ours)) in section.requests.iter().zip(theirs.iter().zip(&ours)) {
            assert_eq!(ours, theirs, "{}: {line} (left: brisk, right: nginx)", section.title);
        }
    };
    check();
    if let Some(rsyslog) = rsyslog {
        compare_messages(section, &rsyslog);
    }
    if section.brisk.contains("maintenance = ") {
        fs::write(Path::new(&srv).join("www/maintenance"), "").expect("a file");
        wait_until("maintenance", || (site.get("/").status() == 503).then_some(()));
        check();
    }
}

fn path_of(socket: Option<PathBuf>) -> String {
    socket.map(|socket| socket.display().to_string()).unwrap_or_default()
}

/// The messages of both servers, which differ in their headers and in the time of the line.
fn compare_messages(section: &Section, rsyslog: &Rsyslog) {
    let requests = section.requests.len();
    let messages = wait_until("messages of both servers", || {
        Some(rsyslog.messages("imudp")).filter(|messages| messages.len() == 2 * requests)
    });
    let content = |message: &serde_json::Value| {
        let [text, app, priority] =
            ["message", "app", "priority"].map(|key| message[key].as_str().expect("text").to_owned());
        let (start, rest) = text.split_once(" [").expect("a time");
        (format!("{} {}", start.trim(), rest.split_once("] ").expect("a time").1), app, priority)
    };
    let (ours, theirs): (Vec<_>, Vec<_>) = messages.iter().partition(|message| message["id"] == "request");
    let sorted = |messages: Vec<_>| {
        let mut contents: Vec<_> = messages.into_iter().map(content).collect();
        // Lines of different workers of brisk may be out of order.
        contents.sort();
        contents
    };
    let [ours, theirs] = [ours, theirs].map(sorted);
    assert_eq!(ours, theirs, "{} (left: brisk, right: nginx)", section.title);
}

/// The tables for `http` and `server` of a section by `brisk import nginx`: keys of `[server]`, and all others without listeners,
/// name and certificate, which are those of the test.
fn imported(http: &str, server: &str) -> (String, String) {
    let folder = TempDir::with_prefix("brisk-test-import-").expect("a temporary folder");
    let path = folder.path().join("nginx.conf");
    let frame = "listen 443 ssl;\nserver_name www.example.com;\nssl_certificate a;\nssl_certificate_key b;";
    fs::write(&path, format!("http {{\n{http}\nserver {{\n{frame}\n{server}\n}}\n}}\n")).expect("a file");
    let text = brisk_import::nginx(&path).expect("an import").files.remove(0);
    let (service, hosts) = text.split_once("[[host]]\n").expect("a host");
    let own = ["https = ", "http = ", "unknown_host = ", "names = ", "certificates = "];
    let is_other = |line: &&str| !own.iter().any(|key| line.starts_with(key));
    let (server, others) =
        service.split_once("[server]\n").expect("a server").1.split_once("\n\n").unwrap_or_default();
    let keys: Vec<_> = server.lines().filter(is_other).map(|line| format!("server.{line}")).collect();
    let tables: Vec<_> = hosts.lines().filter(is_other).collect();
    (keys.join("\n"), format!("{}\n{others}", tables.join("\n")))
}

fn failed(
    sections: &[Section],
    tables: impl Fn(&Section, &str, &str) -> (String, String) + std::panic::RefUnwindSafe,
) -> Vec<&'static str> {
    let failure = |section: &Section| {
        let outcome =
            std::panic::catch_unwind(|| compare(section, &|http, server| tables(section, http, server)));
        outcome.is_err().then_some(section.title)
    };
    sections.iter().filter_map(failure).collect()
}

#[test]
fn every_snippet_has_the_effect_that_it_has_in_nginx() {
    let sections = sections();
    let failed = failed(&sections, |section, _, _| (String::new(), section.brisk.to_owned()));
    assert!(failed.is_empty(), "{failed:?}");
    assert!(sections.len() >= 40);
}

#[test]
fn every_imported_snippet_has_the_effect_that_it_has_in_nginx() {
    let sections = sections();
    let failed = failed(&sections, |_, http, server| imported(http, server));
    assert!(failed.is_empty(), "{failed:?}");
    assert!(sections.len() >= 40);
}
