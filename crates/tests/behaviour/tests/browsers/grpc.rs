//! gRPC through brisk: the interop client and server of grpc-go, over TLS in and h2c out.

use std::net::SocketAddr;

use brisk_behaviour::site::{LIMIT, NAME, Site, proxy_to};
use brisk_testkit::process::{Process, command, run, serve_on_free_port, wait_until};
use rustix::process::Signal;

fn server() -> (Process, SocketAddr) {
    serve_on_free_port(|port| {
        let mut server = command("grpc-interop-server");
        server.args(["-port", &port.to_string()]);
        server
    })
}

fn call(site: &Site, case: &str) {
    let mut client = command("grpc-interop-client");
    let port = site.brisk.https().port().to_string();
    client.args(["-use_tls", "-use_test_ca", "-ca_file"]).arg(site.ca.root_file());
    client.args(["-server_host", "127.0.0.1", "-server_port", &port, "-server_host_override", NAME]);
    client.args(["-test_case", case]);
    let output = run(&mut client, b"", LIMIT);
    assert!(output.status.success(), "{case}: {}", output.text());
}

#[test]
fn the_interop_cases_pass() {
    let (_server, address) = server();
    let site = Site::proxying(&[&format!("h2c://{address}")]);
    for case in [
        "empty_unary",
        "large_unary",
        "client_streaming",
        "server_streaming",
        "ping_pong",
        "empty_stream",
        "timeout_on_sleeping_server",
        "cancel_after_begin",
        "cancel_after_first_response",
        "status_code_and_message",
        "special_status_message",
        "custom_metadata",
        "unimplemented_method",
        "unimplemented_service",
    ] {
        call(&site, case);
    }
}

/// Site with a check of `service` at one server. `time` is the interval of checks and the timeout of each.
fn checked(address: SocketAddr, service: &str, time: &str) -> Site {
    let health = format!(
        "health = {{ grpc = {service:?}, interval = \"{time}\", timeout = \"{time}\", unhealthy_after = 1, healthy_after = 1 }}\n"
    );
    Site::with(&(proxy_to(&[&format!("h2c://{address}")]) + &health))
}

/// etcd, whose health service knows the whole server only.
#[test]
fn the_health_service_decides_about_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let (etcd, address) = serve_on_free_port(|port| {
        let url = format!("http://127.0.0.1:{port}");
        let mut etcd = command("etcd");
        etcd.arg("--data-dir").arg(folder.path().join("data"));
        etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
        etcd
    });
    let site = checked(address, "", "500ms");
    // By the metric: on a busy machine, a server that serves may exceed the timeout now and then.
    let becomes = |healthy: u32| {
        wait_until(&format!("{healthy} healthy servers"), || {
            let now = site.brisk.metrics().sum("brisk_upstream_healthy", &["group=\"app\""]);
            (now.round() as u32 == healthy).then_some(())
        });
    };
    etcd.pause();
    becomes(0);
    site.brisk.log_with("upstream server is down");
    etcd.signal(Signal::CONT);
    // Only a check that finds SERVING makes the server available.
    becomes(1);
    site.brisk.log_with("upstream server is up again");
    // NOT_FOUND. The first check is made at once.
    checked(address, "app.Unknown", "2m").brisk.log_with("reason=grpc-status 5");
}

#[test]
fn a_server_without_the_health_service_is_not_healthy() {
    let (_server, address) = server();
    // UNIMPLEMENTED
    checked(address, "", "2m").brisk.log_with("reason=grpc-status 12");
}
