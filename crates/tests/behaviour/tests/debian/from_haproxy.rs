//! Configurations of HAProxy and their imports, run side by side with the same requests.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use brisk_behaviour::site::{connect_from, setup};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::haproxy::Haproxy;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use tempfile::TempDir;

/// Headers that each server may set in its own way.
const OWN: [&str; 9] = [
    "allow",
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "date",
    "keep-alive",
    "retry-after",
    "x-request-id",
];

/// Headers of requests that brisk always sends.
const SENT: [&str; 6] =
    ["connection", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];

/// `ONE`, `TWO` and `THREE` stand for the addresses of applications.
const DEFAULTS: &str =
    "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n";

/// Rules by path, address, header, method and host.
const RULES: &str = r#"
frontend f
    bind 127.0.0.1:PORT
    acl is_admin path_beg /admin
    acl local src 127.0.0.1
    acl bad hdr_sub(User-Agent) -i sqlmap nikto
    acl scripts path_end -i .php .asp
    http-request deny if is_admin !local
    http-request deny deny_status 404 if bad or scripts
    http-request return status 200 content-type text/plain string "hello {name} %" if { path /hello }
    http-request return status 201 content-type text/plain lf-string "from %[src] %[path]" if { path /lf }
    http-request redirect prefix https://www.b.example code 301 if { hdr(host) -i b.example }
    http-request redirect location /new%[capture.req.uri] code 307 if { path_beg /old/ }
    http-request redirect prefix / drop-query code 302 if { path /drop }
    http-request deny if { method GET } { path /noget }
    http-request allow if { path /allowed/x }
    http-request deny deny_status 410 if { path_beg /allowed }
    http-request set-header X-A "v-%[path]-%[hdr(host)]"
    http-request add-header X-Many two
    http-request del-header X-Drop
    http-request set-header X-Cond yes if { url_param(q) 1 2 }
    http-request replace-header X-Rep ^(.*)-old$ \1-new
    http-response set-header X-Resp "a b"
    use_backend two if { hdr(X-List) b }
    use_backend two if { path_beg /deep/ } || { path_dir img }
    use_backend three if { hdr_end(host) -i .w.example }
    use_backend three if { hdr_reg(host) -i ^(www\.)?e\.example$ }
    default_backend one
backend one
    http-request replace-path ^/rep/(.*)$ /x/\1
    server a ONE
backend two
    http-request set-path %[path,regsub(^/deep/,/)]
    server a TWO
backend three
    http-request deny if { path_beg /secret }
    http-request set-path /pre%[path]
    server a THREE
"#;

/// Method and path, the host, headers, and another address of the client.
const REQUESTS: &[(&str, &str, &[&str], u8)] = &[
    ("GET /", "", &[], 1),
    ("HEAD /", "", &[], 1),
    ("GET /admin/x", "", &[], 1),
    ("GET /admin/x", "", &[], 2),
    ("GET /administrator", "", &[], 2),
    ("GET /a.PHP?x=1", "", &[], 1),
    ("GET /a.phpx", "", &[], 1),
    ("GET /", "", &["User-Agent: SQLMAP/1"], 1),
    ("GET /hello", "", &[], 1),
    ("GET /lf", "", &[], 1),
    ("GET /x?y=1", "b.example", &[], 1),
    ("GET /old/a?b=c", "", &[], 1),
    ("GET /old", "", &[], 1),
    ("GET /drop?x=1", "", &[], 1),
    ("GET /noget", "", &[], 1),
    ("HEAD /noget", "", &[], 1),
    ("GET /allowed/x", "", &[], 1),
    ("GET /allowed/y", "", &[], 1),
    ("GET /?q=2&x=3", "", &["X-Drop: 1", "X-Many: one"], 1),
    ("GET /?q=3", "", &["X-Rep: a-old"], 1),
    ("GET /", "", &["X-Rep: a-older"], 1),
    ("GET /", "", &["X-List: a, b"], 1),
    ("GET /", "", &["X-List: ab"], 1),
    ("GET /deep/x", "", &[], 1),
    ("GET /a/img", "", &[], 1),
    ("GET /imgx", "", &[], 1),
    ("GET /", "a.w.example", &[], 1),
    ("GET /", "w.example", &[], 1),
    ("GET /", "WWW.E.example", &[], 1),
    ("GET /", "xe.example", &[], 1),
    ("GET /rep/a%20b?c=d", "", &[], 1),
];

/// An application that names itself and the headers that it received.
fn application(name: &'static str) -> Origin {
    Origin::answering(move |request, stream| {
        let headers = request.head.headers.iter().filter(|(name, _)| !SENT.contains(&&**name));
        let mut lines: Vec<_> = headers.map(|(name, value)| format!("{name}: {value}")).collect();
        lines.sort();
        let body = format!("{name} {}\n{}", request.head.line, lines.join("\n"));
        write!(stream, "HTTP/1.1 200 OK\r\nX-Keep: 1\r\nContent-Length: {}\r\n\r\n", body.len())?;
        if request.head.line.starts_with("HEAD ") { Ok(()) } else { stream.write_all(body.as_bytes()) }
    })
}

/// Starts brisk with the import of a configuration at a free port.
fn start_import(configuration: &str) -> Brisk {
    let folder = TempDir::with_prefix("brisk-test-import-").expect("a temporary folder");
    let path = folder.path().join("haproxy.cfg");
    fs::write(&path, configuration.replace("PORT", "9")).expect("a file");
    let imported = brisk_import::haproxy(&path).expect("an import");
    assert!(imported.report.open().is_empty(), "{}", imported.report);
    assert_eq!(imported.files.len(), 1);
    let text = imported.files[0].replace("\"127.0.0.1:9\"", "\"127.0.0.1:0\"");
    setup().config(&format!("{text}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).start()
}

/// Status, headers and content of a response.
fn outcome(server: SocketAddr, request: &(&str, &str, &[&str], u8)) -> (u16, Vec<(String, String)>, String) {
    let (line, host, headers, last) = request;
    let mut stream = connect_from(Ipv4Addr::new(127, 0, 0, *last), server);
    let host = if host.is_empty() { "x.example" } else { host };
    let headers = headers.iter().map(|header| format!("{header}\r\n")).collect::<Vec<_>>().concat();
    write!(stream, "{line} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n")
        .expect("a server");
    let response = if line.starts_with("HEAD ") {
        let head = brisk_testkit::http1::Head::read(&mut stream).expect("a response").expect("a response");
        Message { head, ..Message::default() }
    } else {
        Message::read_response(&mut stream).expect("a response")
    };
    let mut headers = response.head.headers.clone();
    headers.retain(|(name, _)| !OWN.contains(&&**name));
    headers.sort();
    // Each server has pages of its own for refusals and redirects.
    let body = if response.status() < 300 { response.text() } else { String::new() };
    (response.status(), headers, body)
}

#[test]
fn an_imported_configuration_has_the_effect_that_it_has_in_haproxy() {
    let applications = ["one", "two", "three"].map(application);
    let [one, two, three] = applications.each_ref().map(|origin| origin.address().to_string());
    let configuration = format!("{DEFAULTS}{RULES}");
    let configuration = configuration.replace("THREE", &three).replace("ONE", &one).replace("TWO", &two);
    let (haproxy, brisk) = (Haproxy::start(&configuration), start_import(&configuration));
    for request in REQUESTS {
        let (theirs, ours) = (outcome(haproxy.address(), request), outcome(brisk.http(), request));
        assert_eq!(ours, theirs, "{request:?} (left: brisk, right: HAProxy)");
    }
}
