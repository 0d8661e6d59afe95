//! step-ca, an ACME certificate authority of companies, with a DNS server that resolves every name to this machine.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::ca::TestCa;
use crate::pebble::dns_server;
use crate::process::{Process, command, free_port, serve_on_free_port};

/// A running step-ca that issues from a [`TestCa`]. Dropping it kills it. It issues for a day, and has neither profiles
/// nor renewal information (RFC 9773); its external accounts need a commercial service.
#[derive(Debug)]
pub struct StepCa {
    process: Process,
    _dns: Process,
    dns_management: u16,
    address: SocketAddr,
    https: u16,
    http: u16,
    _folder: TempDir,
    ca: TestCa,
}

impl StepCa {
    /// Starts it. It validates names at two ports that are free now.
    pub fn start() -> Self {
        let folder = TempDir::with_prefix("brisk-test-step-ca-").expect("a temporary folder");
        let ca = TestCa::new();
        let [dns_port, dns_management, https, http] = [(); 4].map(|()| free_port());
        let dns = dns_server(dns_port, dns_management);
        let (certificate, key) = ca.intermediate_files();
        let file = folder.path().join("ca.json");
        let (process, address) = serve_on_free_port(|port| {
            let config = format!(
                "{{ \"address\": \"127.0.0.1:{port}\", \"dnsNames\": [\"127.0.0.1\"], \"root\": {:?}, \"crt\": {:?}, \
                 \"key\": {:?}, \"db\": {{ \"type\": \"badgerv2\", \"dataSource\": {:?} }}, \"authority\": {{ \
                 \"provisioners\": [{{ \"type\": \"ACME\", \"name\": \"acme\" }}] }} }}",
                ca.root_file().display().to_string(),
                certificate.display().to_string(),
                key.display().to_string(),
                folder.path().join("db").display().to_string(),
            );
            fs::write(&file, config).expect("a temporary file");
            let mut server = command("step-ca");
            server.env("STEPPATH", folder.path()).arg("--insecure").arg("--resolver");
            server.arg(format!("127.0.0.1:{dns_port}"));
            server.args(["--acme-tls-port", &https.to_string(), "--acme-http-port", &http.to_string()]);
            server.arg(&file);
            server
        });
        Self { process, _dns: dns, dns_management, address, https, http, _folder: folder, ca }
    }

    /// URL of its directory.
    pub fn directory(&self) -> String {
        format!("https://{}/acme/acme/directory", self.address)
    }

    /// Path of the root of its certificates, its own server certificate included.
    pub fn root(&self) -> PathBuf {
        self.ca.root_file()
    }

    /// Port at which it validates by tls-alpn-01.
    pub fn https(&self) -> u16 {
        self.https
    }

    /// Port at which it validates by http-01.
    pub fn http(&self) -> u16 {
        self.http
    }

    /// URL of the management of its DNS server, which has `/set-txt` and `/clear-txt`.
    pub fn dns_management(&self) -> String {
        format!("http://127.0.0.1:{}", self.dns_management)
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.process.stdout() + &self.process.stderr()
    }
}
