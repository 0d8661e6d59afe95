//! The servers that are compared, each with the same certificate and upstream.

use std::net::SocketAddr;

use brisk_behaviour::h3_client::h3_site;
use brisk_behaviour::site::{NAMES, Site};
use brisk_testkit::client::TlsClient;
use brisk_testkit::envoy::Envoy;
use brisk_testkit::haproxy::Haproxy;
use brisk_testkit::nginx::Nginx;

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

impl Server {
    /// Protocols between clients and this server.
    pub(super) fn protocols(self) -> &'static [Protocol] {
        match self {
            Self::Brisk => &[Protocol::Http1, Protocol::Http2, Protocol::Http3],
            Self::Nginx | Self::Haproxy | Self::Envoy => &[Protocol::Http1, Protocol::Http2],
        }
    }
}

/// Running servers.
pub(super) struct Servers {
    pub(super) site: Site,
    pub(super) client: TlsClient,
    nginx: Nginx,
    haproxy: Haproxy,
    envoy: Option<Envoy>,
}

impl Servers {
    /// Starts brisk with `tables`, nginx with these directives for `http` and `server`, and HAProxy and Envoy in front of
    /// `behind`. Envoy is left out if it is not installed.
    pub(super) fn start(tables: &str, (http, server): (&str, &str), behind: SocketAddr) -> Self {
        let site = h3_site(KEYS, tables);
        let leaf = site.ca.server(&NAMES).issue();
        let nginx = Nginx::bare(&leaf, http, server);
        let haproxy = Haproxy::with_certificate(&leaf, &HAPROXY.replace("BEHIND", &behind.to_string()));
        let envoy = Envoy::with_certificate(&leaf, &ENVOY.replace("BEHIND", &behind.port().to_string()));
        if envoy.is_none() {
            eprintln!("Envoy is not installed: the comparison has nginx and HAProxy only");
        }
        Self { client: site.client(), site, nginx, haproxy, envoy }
    }

    pub(super) fn addresses(&self) -> Vec<(Server, SocketAddr)> {
        let own = [
            (Server::Brisk, self.site.brisk.https()),
            (Server::Nginx, self.nginx.address()),
            (Server::Haproxy, self.haproxy.address()),
        ];
        let envoy = self.envoy.as_ref().map(|envoy| (Server::Envoy, envoy.address()));
        own.into_iter().chain(envoy).collect()
    }
}

/// Keys of brisk. The timeouts are those of the other servers, so that no pause of a loaded machine is an outcome.
const KEYS: &str = "server.workers = 1\nserver.timeouts.hello = \"60s\"\nserver.timeouts.head = \"60s\"\n";

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
  bind 127.0.0.1:PORT ssl crt FOLDER/pair.pem alpn h2,http/1.1
  default_backend behind
backend behind
  server behind BEHIND
";

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
    connect_timeout: 60s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        common_http_protocol_options: { max_requests_per_connection: 1 }
        explicit_http_config: { http_protocol_options: { enable_trailers: true } }
    load_assignment:
      cluster_name: behind
      endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: BEHIND } } } } ] } ]
"#;
