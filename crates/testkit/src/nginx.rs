//! A real nginx as an upstream, in a temporary folder on a free port.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use tempfile::TempDir;

use crate::ca::Leaf;
use crate::process::{Process, command, serve_on_free_port};

/// A running nginx. It serves `/1k` and `/1m` (1 KiB and 1 MiB of `x`), `/headers` (what it got, a line per header),
/// `/name` (its own port) and `/health`; everything else is 404.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    address: SocketAddr,
    scheme: &'static str,
    _folder: TempDir,
}

impl Nginx {
    /// HTTP/1.1.
    pub fn http() -> Self {
        Self::start("http", "", "")
    }

    /// HTTP/2 without TLS.
    pub fn h2c() -> Self {
        Self::start("h2c", "http2", "")
    }

    /// HTTP/1.1 and HTTP/2 over TLS with this certificate.
    pub fn https(leaf: &Leaf) -> Self {
        let certificate =
            format!("ssl_certificate {};\nssl_certificate_key {};", leaf.chain.display(), leaf.key.display());
        Self::start("https", "ssl http2", &certificate)
    }

    fn start(scheme: &'static str, listen: &str, directives: &str) -> Self {
        let folder = TempDir::with_prefix("brisk-test-nginx-").expect("a temporary folder");
        for (name, size) in [("1k", 1 << 10), ("1m", 1 << 20)] {
            fs::write(folder.path().join(name), "x".repeat(size)).expect("a temporary file");
        }
        let (process, address) = serve_on_free_port(|port| {
            let path = folder.path().display().to_string();
            let text = CONFIGURATION
                .replace("FOLDER", &path)
                .replace("LISTEN", &format!("127.0.0.1:{port} {listen}"))
                .replace("DIRECTIVES", directives);
            let file = folder.path().join("nginx.conf");
            fs::write(&file, text).expect("a temporary file");
            nginx(&file, &path)
        });
        Self { process, address, scheme, _folder: folder }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as an upstream's URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// What it wrote to its error log.
    pub fn errors(&self) -> String {
        self.process.stderr()
    }
}

fn nginx(file: &std::path::Path, prefix: &str) -> Command {
    let mut command = command("nginx");
    command.arg("-c").arg(file).args(["-p", prefix, "-e", "stderr"]);
    command
}

const CONFIGURATION: &str = r#"
daemon off;
master_process off;
pid FOLDER/nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path FOLDER/body;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi;
  scgi_temp_path FOLDER/scgi;
  default_type text/plain;
  keepalive_requests 1000000;
  server {
    listen LISTEN;
    DIRECTIVES
    root FOLDER;
    location = /1k { }
    location = /1m { }
    location = /health { return 204; }
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
