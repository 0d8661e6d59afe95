//! Envoy as an upstream over HTTP/2 that closes connections on which many requests are canceled.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use brisk_behaviour::h2::{DATA, END_STREAM, RST_STREAM, get};
use brisk_behaviour::h2_client::{Client, cancel_many};
use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::envoy::Envoy;
use brisk_testkit::http1::Head;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

/// Envoy closes a connection as soon as half of this number of requests was canceled within a second each.
const REQUESTS: usize = 200;

#[test]
fn requests_that_clients_cancel_do_not_end_the_connection_to_envoy() {
    let (reached, completes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, completed) = (Arc::clone(&reached), Arc::clone(&completes));
    let origin = Origin::raw(move |mut stream| {
        while let Some(head) = Head::read(&mut stream)? {
            counter.fetch_add(1, Ordering::SeqCst);
            if head.line.starts_with("GET /download ") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")?;
                wait_until("the end of the attack", || completed.load(Ordering::SeqCst).then_some(()));
                stream.write_all(b"whole")?;
            }
        }
        Ok(())
    });
    let text = CONFIGURATION.replace("REQUESTS", &REQUESTS.to_string());
    let text = text.replace("ORIGIN", &origin.address().port().to_string());
    let Some(envoy) = Envoy::start(&text) else { return };
    let url = format!("h2c://{}", envoy.address());
    // The download pauses during the attack.
    let tables = proxy_to(&[&url]) + "timeouts = { body = \"10m\" }\n";
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let mut bystander = Client::connect(&site);
    bystander.send(&get(1, "/download"));
    bystander.wait_for("half of the download", |frame| frame.payload == b"half");
    for _ in 0..3 {
        cancel_many(&site, 90, || reached.load(Ordering::SeqCst));
    }
    completes.store(true, Ordering::SeqCst);
    let end = bystander.wait_for("end of the download", |frame| {
        assert_ne!(frame.kind, RST_STREAM, "the download is cut");
        frame.kind == DATA && frame.flags & END_STREAM != 0
    });
    assert_eq!(end.payload, b"whole");
}

const CONFIGURATION: &str = r#"
layered_runtime:
  layers:
  - name: static
    static_layer: { overload.premature_reset_total_stream_count: REQUESTS }
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: test
          codec_type: HTTP2
          route_config:
            virtual_hosts:
            - name: all
              domains: [ "*" ]
              routes: [ { match: { prefix: / }, route: { cluster: origin, timeout: 0s } } ]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: origin
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: ORIGIN } } }
"#;
