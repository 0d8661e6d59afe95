//! The servers that are compared, each with the same certificate and upstream.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use brisk_behaviour::h3_client::h3_site;
use brisk_behaviour::site::{NAME, NAMES, Site};
use brisk_testkit::ca::Leaf;
use brisk_testkit::client::TlsClient;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{Process, command, optional_command, serve_on_free_port};

/// A server of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Server {
    Brisk,
    Nginx,
    Haproxy,
    Envoy,
}

/// Protocol between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Protocol {
    Http1,
    Http2,
    Http3,
}

/// Running servers.
pub(super) struct Servers {
    pub(super) site: Site,
    pub(super) client: TlsClient,
    nginx: Nginx,
    haproxy: (Process, SocketAddr),
    envoy: Option<(Process, SocketAddr)>,
}

impl Servers {
    /// Starts brisk with `tables`, nginx with these directives for `http` and `server`, and HAProxy and Envoy in front of `behind`.
    /// Envoy is left out if it is not installed.
    pub(super) fn start(tables: &str, (http, server): (&str, &str), behind: SocketAddr) -> Self {
        let site = h3_site("", tables);
        let leaf = site.ca.server(&NAMES).issue();
        let nginx = Nginx::bare(&leaf, http, server);
        let folder = site.ca.folder();
        let haproxy = haproxy(folder, &leaf, behind);
        let envoy = envoy(folder, &leaf, behind);
        if envoy.is_none() {
            eprintln!("Envoy is not installed: the comparison has nginx and HAProxy only");
        }
        let client = TlsClient::new(&site.ca.root_file(), NAME);
        Self { site, client, nginx, haproxy, envoy }
    }

    pub(super) fn addresses(&self) -> Vec<(Server, SocketAddr)> {
        let own = [
            (Server::Brisk, self.site.brisk.https()),
            (Server::Nginx, self.nginx.address()),
            (Server::Haproxy, self.haproxy.1),
        ];
        let envoy = self.envoy.as_ref().map(|(_, address)| (Server::Envoy, *address));
        own.into_iter().chain(envoy).collect()
    }
}

fn haproxy(folder: &Path, leaf: &Leaf, behind: SocketAddr) -> (Process, SocketAddr) {
    let read = |path| fs::read_to_string(path).expect("a PEM file");
    let pair = folder.join("differential.pem");
    fs::write(&pair, read(&leaf.chain) + &read(&leaf.key)).expect("a temporary file");
    serve_on_free_port(|port| {
        let text = HAPROXY
            .replace("PORT", &port.to_string())
            .replace("PAIR", &pair.display().to_string())
            .replace("BEHIND", &behind.to_string());
        let file = folder.join("differential.cfg");
        fs::write(&file, text).expect("a temporary file");
        let mut haproxy = command("haproxy");
        haproxy.arg("-db").arg("-f").arg(file);
        haproxy
    })
}

const HAPROXY: &str = "
global
  nbthread 1
defaults
  mode http
  option http-server-close
  timeout connect 60s
  timeout client 60s
  timeout server 60s
frontend all
  bind 127.0.0.1:PORT ssl crt PAIR alpn h2,http/1.1
  default_backend behind
backend behind
  server behind BEHIND
";

fn envoy(folder: &Path, leaf: &Leaf, behind: SocketAddr) -> Option<(Process, SocketAddr)> {
    optional_command("envoy")?;
    Some(serve_on_free_port(|port| {
        let text = ENVOY
            .replace("PORT", &port.to_string())
            .replace("CHAIN", &leaf.chain.display().to_string())
            .replace("KEY", &leaf.key.display().to_string())
            .replace("BEHIND", &behind.port().to_string());
        let file = folder.join("differential.yaml");
        fs::write(&file, text).expect("a temporary file");
        let mut envoy = optional_command("envoy").expect("a program");
        envoy.arg("-c").arg(file).args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "error"]);
        envoy
    }))
}

const ENVOY: &str = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: PORT } }
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [ h2, http/1.1 ]
            tls_certificates: [ { certificate_chain: { filename: CHAIN }, private_key: { filename: KEY } } ]
      filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: test
          delayed_close_timeout: 0s
          http_protocol_options: { accept_http_10: true, enable_trailers: true }
          route_config:
            virtual_hosts: [ { name: all, domains: [ "*" ], routes: [ { match: { prefix: / }, route: { cluster: behind, timeout: 0s } } ] } ]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, suppress_envoy_headers: true }
  clusters:
  - name: behind
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        common_http_protocol_options: { max_requests_per_connection: 1 }
        explicit_http_config: { http_protocol_options: { enable_trailers: true } }
    load_assignment:
      cluster_name: behind
      endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: BEHIND } } } } ] } ]
"#;
