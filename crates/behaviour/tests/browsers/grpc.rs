//! gRPC through brisk: the interop client and server of grpc-go, over TLS in and h2c out.

use std::net::SocketAddr;

use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::process::{Process, command, run, serve_on_free_port};

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
