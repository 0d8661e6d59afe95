//! nginx as an upstream, in a temporary folder on a free port and on a Unix socket.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::ca::Leaf;
use crate::process::{Process, command, serve_on_free_port};

/// A running nginx. It serves `/1k` and `/1m` (1 KiB and 1 MiB of `x`), `/headers` (the received headers, one per
/// line), `/name` (its own port), `/not-early` (425 to early data) and `/health`; all other paths are 404.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    address: SocketAddr,
    scheme: &'static str,
    folder: TempDir,
}

impl Nginx {
    /// HTTP/1.1.
    pub fn http() -> Self {
        Self::start("http", "", ("", ""))
    }

    /// HTTP/1.1, with further directives for the server.
    pub fn http_with(directives: &str) -> Self {
        Self::http_with_zones("", directives)
    }

    /// HTTP/1.1, with further directives for all servers, such as zones, and for the server.
    pub fn http_with_zones(zones: &str, directives: &str) -> Self {
        Self::start("http", "", (zones, directives))
    }

    /// HTTP/1.1; [`requests`](Self::requests) lists the method of each request, its path with the query, and its
    /// `Early-Data` or `-`.
    pub fn recording() -> Self {
        Self::start("http", "", ("", "access_log FOLDER/access.log early;"))
    }

    /// HTTP/2 without TLS.
    pub fn h2c() -> Self {
        Self::start("h2c", "http2", ("", ""))
    }

    /// HTTP/1.1 and HTTP/2 over TLS with this certificate.
    pub fn https(leaf: &Leaf) -> Self {
        Self::https_with(leaf, "")
    }

    /// Like [`https`](Self::https), with further directives for the server. [`requests`](Self::requests) lists the TLS
    /// parameters of each request.
    pub fn https_with(leaf: &Leaf, directives: &str) -> Self {
        let (chain, key) = (leaf.chain.display(), leaf.key.display());
        // Recorded when the request arrives: nginx no longer knows that it was early data once the handshake is
        // complete.
        let log = "set $came_early $ssl_early_data;\naccess_log FOLDER/access.log tls;";
        let all = format!("ssl_certificate {chain};\nssl_certificate_key {key};\n{log}\n{directives}");
        Self::start("https", "ssl http2", ("", &all))
    }

    /// HTTP/1.1 and HTTP/2 over TLS with this certificate, and nothing but these directives for `http` and `server`.
    pub fn bare(leaf: &Leaf, http: &str, server: &str) -> Self {
        let (chain, key) = (leaf.chain.display(), leaf.key.display());
        let server = format!("ssl_certificate {chain};\nssl_certificate_key {key};\n{server}");
        Self::serve("https", "ssl http2", &bare(http, &server))
    }

    /// Like [`bare`](Self::bare), with HTTP/1.1 and without TLS.
    pub fn bare_http(http: &str, server: &str) -> Self {
        Self::serve("http", "", &bare(http, server))
    }

    /// TCP connections, with these directives for `stream`, in which `PORT` stands for its port.
    pub fn stream(directives: &str) -> Self {
        let head = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\ndaemon off;\nmaster_process off;\n\
                    pid FOLDER/nginx.pid;\nerror_log stderr warn;\nevents { worker_connections 1024; }\n";
        Self::serve("tcp", "", &format!("{head}stream {{\n{directives}\n}}\n"))
    }

    /// Expects a PROXY header on every connection. Scheme `http`, `h2c` or `https`, with further directives. `/client`
    /// responds with address and port of the client in the header, the port that the client connected to, and the number of
    /// the connection.
    pub fn proxied(scheme: &'static str, directives: &str) -> Self {
        let listen = match scheme {
            "h2c" => "http2 proxy_protocol",
            "https" => "ssl http2 proxy_protocol",
            _ => "proxy_protocol",
        };
        let client = "location = /client {
            return 200 '$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port $connection\n'; }";
        Self::start(scheme, listen, ("", &format!("{client}\n{directives}")))
    }

    /// One line for each completed request, if requests are recorded. Over TLS: version, `r` for a resumed session or
    /// `.`, `1` for early data or `-`, suite, group, verification of the client certificate, path.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Path of the access log.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    fn start(scheme: &'static str, listen: &str, (zones, directives): (&str, &str)) -> Self {
        let configuration = CONFIGURATION.replace("ZONES", zones).replace("DIRECTIVES", directives);
        Self::serve(scheme, listen, &configuration)
    }

    fn serve(scheme: &'static str, listen: &str, configuration: &str) -> Self {
        let folder = TempDir::with_prefix("brisk-test-nginx-").expect("a temporary folder");
        for (name, size) in [("1k", 1 << 10), ("1m", 1 << 20)] {
            fs::write(folder.path().join(name), "x".repeat(size)).expect("a temporary file");
        }
        let (process, address) = serve_on_free_port(|port| {
            let path = folder.path().display().to_string();
            let text = configuration
                // `LISTEN` first: its text contains `FOLDER`.
                .replace(
                    "LISTEN",
                    &format!("127.0.0.1:{port} {listen};\nlisten unix:FOLDER/{SOCKET} {listen}"),
                )
                .replace("PORT", &port.to_string())
                .replace("FOLDER", &path);
            let file = folder.path().join("nginx.conf");
            fs::write(&file, text).expect("a temporary file");
            nginx(&file, &path)
        });
        Self { process, address, scheme, folder }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as an upstream's URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Path of the Unix socket on which it also listens, with the same protocols. A restart needs another path.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The error log.
    pub fn errors(&self) -> String {
        self.process.stderr()
    }
}

/// File name of the Unix socket.
const SOCKET: &str = "server.sock";

fn nginx(file: &std::path::Path, prefix: &str) -> Command {
    let mut command = command("nginx");
    // `-e`: nginx opens its default log, a file of the system, before it reads the configuration.
    command.arg("-c").arg(file).args(["-p", prefix, "-e", "stderr"]);
    command
}

/// Configuration with nothing but these directives for `http` and `server`, and the types of files.
fn bare(http: &str, server: &str) -> String {
    let (before, _) = CONFIGURATION.split_once("  server {").expect("a server");
    let before = before.replace("ZONES", http);
    format!(
        "{before}  include /etc/nginx/mime.types;\n  server {{\n    listen LISTEN;\n    set $came_early '';\n\
         {server}\n  }}\n}}\n"
    )
}

// One process without a master ends when it is killed. All temporary paths are set, because the defaults are
// folders of the system. The default of 1,000 requests per connection would close connections in some tests.
const CONFIGURATION: &str = r#"
daemon off;
master_process off;
pid FOLDER/nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
  access_log off;
  log_format tls '$ssl_protocol $ssl_session_reused $early $ssl_cipher $ssl_curve $ssl_client_verify $uri';
  log_format early '$request_method $request_uri $http_early_data';
  map $came_early $early { 1 1; default -; }
  client_body_temp_path FOLDER/body;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi;
  scgi_temp_path FOLDER/scgi;
  default_type text/plain;
  keepalive_requests 1000000;
  ZONES
  server {
    listen LISTEN;
    set $came_early '';
    DIRECTIVES
    root FOLDER;
    location = /1k { }
    location = /1m { }
    location = /health { return 204; }
    location = /not-early {
      if ($http_early_data) { return 425 "too early"; }
      return 200 "late enough";
    }
    location = /name { return 200 "$server_port"; }
    location = /headers {
      return 200 "protocol: $server_protocol
method: $request_method
host: $http_host
connection: $http_connection
te: $http_te
x-own: $http_x_own
keep-alive: $http_keep_alive
forwarded: $http_forwarded
x-forwarded-for: $http_x_forwarded_for
x-forwarded-proto: $http_x_forwarded_proto
x-forwarded-host: $http_x_forwarded_host
x-request-id: $http_x_request_id
";
    }
    location / { return 404; }
  }
}
"#;
