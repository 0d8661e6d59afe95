//! Upstreams on Unix sockets.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;
use serde_json::Value;

/// The access log line of the request for `path`.
fn logged(site: &Site, path: &str) -> Value {
    serde_json::from_str(&site.brisk.logged(path)).expect("a line of JSON")
}

/// A server that answers every request on `listener` with `name`, and a connection at a time.
fn answering(listener: UnixListener, name: &'static str) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, name));
        }
    });
}

fn serve(mut stream: UnixStream, name: &str) {
    let mut buffer = [0; 4096];
    // Requests without a body, which fit one read.
    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn http_1_and_http_2_servers_get_requests_over_their_sockets() {
    for (nginx, scheme, protocol) in
        [(Nginx::http(), "unix", "HTTP/1.1"), (Nginx::h2c(), "h2c+unix", "HTTP/2.0")]
    {
        let socket = nginx.socket();
        let site = Site::proxying(&[&format!("{scheme}:{}", socket.display())]);
        for _ in 0..3 {
            assert_eq!(site.get("/1m").text().len(), 1 << 20, "{scheme}");
        }
        let headers = site.get("/headers").text();
        for line in [
            format!("protocol: {protocol}"),
            format!("host: {NAME}"),
            "x-forwarded-for: 127.0.0.1".to_owned(),
        ] {
            assert!(headers.lines().any(|received| received == line), "{line} in {headers}");
        }
        let name = format!("unix:{}", socket.display());
        assert_eq!(logged(&site, "/headers")["upstream"], name);
        let server = format!("server=\"{name}\"");
        assert!(site.brisk.metrics().sum("brisk_upstream_connections_total", &[&server]) >= 1.0);
    }
}

#[test]
fn an_abstract_name_is_a_server() {
    let name = format!("brisk-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    answering(UnixListener::bind_addr(&address).expect("bind"), "abstract");
    let site = Site::proxying(&[&format!("unix:@{name}")]);
    assert_eq!(site.get("/").text(), "abstract");
}

#[test]
fn a_socket_that_is_replaced_is_connected_to_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (Nginx::http(), Nginx::http());
    let link = folder.path().join("app.sock");
    symlink(first.socket(), &link).expect("link");
    let site = Site::proxying(&[&format!("unix:{}", link.display())]);
    assert_eq!(site.get("/health").status(), 204);
    fs::remove_file(&link).expect("remove");
    symlink(second.socket(), &link).expect("link");
    drop(first);
    // The kept connection has ended with its server, and the request is sent to the new one.
    assert_eq!(site.get("/health").status(), 204);
    drop(second);
    assert_eq!(site.get("/health?gone").status(), 502);
    assert_eq!(logged(&site, "/health?gone")["error"], "connect");
    site.brisk.log_with("cannot connect to unix:");
}

#[test]
fn a_server_on_a_socket_is_checked_and_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let nginx = Nginx::http();
    let missing = folder.path().join("missing.sock");
    let tables =
        proxy_to(&[&format!("unix:{}", nginx.socket().display()), &format!("unix:{}", missing.display())])
            + "[upstream.app.health]\npath = \"/health\"\ninterval = \"1s\"\ntimeout = \"1s\"\n";
    let site = Site::with(&tables);
    let healthy = |path: &Path| {
        let server = format!("server=\"unix:{}\"", path.display());
        site.brisk.metrics().sum("brisk_upstream_healthy", &[&server]) > 0.0
    };
    wait_until("the verdict of the check", || (!healthy(&missing)).then_some(()));
    assert!(healthy(&nginx.socket()));
    for _ in 0..4 {
        assert_eq!(site.get("/1k").status(), 200);
    }
    answering(UnixListener::bind(&missing).expect("bind"), "late");
    wait_until("the server's return", || healthy(&missing).then_some(()));
}

#[test]
fn a_socket_without_permission_is_a_bad_gateway_with_the_correction_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("app.sock");
    answering(UnixListener::bind(&socket).expect("bind"), "secret");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o000)).expect("mode");
    // Root ignores permissions, except without this capability.
    let is_root = UnixStream::connect(&socket).is_ok();
    let without_override: &[OsString] =
        if is_root { &["setpriv", "--bounding-set=-dac_override", "--"].map(OsString::from) } else { &[] };
    let tables = proxy_to(&[&format!("unix:{}", socket.display())]);
    let site = Site::custom("", &tables, |setup| setup.behind(without_override));
    assert_eq!(site.get("/permission").status(), 502);
    site.brisk.log_with("The user of brisk needs the permission to write to the socket");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).expect("mode");
    assert_eq!(site.get("/permission").text(), "secret");
}
