//! Pebble, an ACME certificate authority, with a DNS server of its own, each in a temporary folder.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::ca::TestCa;
use crate::process::{Process, TIMEOUT, command, free_port, run, wait_until};

/// Options of a [`Pebble`]. By default it rejects nothing and issues for 90 days.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before `start`"]
pub struct PebbleOptions {
    nonces_rejected: u8,
    external_account: bool,
    dns: Option<SocketAddr>,
    https: Option<u16>,
    responder: String,
    order_pause: Option<u32>,
}

/// Key of the external account `kid-1` that a pebble with [`PebbleOptions::external_account`] knows.
pub const EXTERNAL_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

impl PebbleOptions {
    /// Rejects this percentage of nonces.
    pub fn rejecting_nonces(mut self, percent: u8) -> Self {
        self.nonces_rejected = percent;
        self
    }

    /// Creates accounts only for holders of the external account.
    pub fn external_account(mut self) -> Self {
        self.external_account = true;
        self
    }

    /// Queries this DNS server instead of its own, which resolves every name to this machine.
    pub fn dns(mut self, server: SocketAddr) -> Self {
        self.dns = Some(server);
        self
    }

    /// Validates by tls-alpn-01 at this port.
    pub fn https(mut self, port: u16) -> Self {
        self.https = Some(port);
        self
    }

    /// Issues certificates that name this OCSP responder, and makes [its key](Pebble::intermediate) available.
    pub fn ocsp_at(mut self, url: &str) -> Self {
        url.clone_into(&mut self.responder);
        self
    }

    /// Requests a pause of `seconds` before the next poll of an order in progress.
    pub fn order_pause(mut self, seconds: u32) -> Self {
        self.order_pause = Some(seconds);
        self
    }

    /// Starts it. Unless ports were given, it validates names at two ports that are free now.
    pub fn start(self) -> Pebble {
        Pebble::start(&self)
    }
}

/// A running pebble. Dropping it kills it.
#[derive(Debug)]
pub struct Pebble {
    process: Process,
    dns: Process,
    dns_management: u16,
    directory: u16,
    management: u16,
    https: u16,
    http: u16,
    folder: TempDir,
    ca: TestCa,
    root: OnceLock<PathBuf>,
}

impl Pebble {
    fn start(options: &PebbleOptions) -> Self {
        let folder = TempDir::with_prefix("brisk-test-pebble-").expect("a temporary folder");
        let ca = TestCa::new();
        let [dns_port, dns_management, directory, management, free, http] = [(); 6].map(|()| free_port());
        let https = options.https.unwrap_or(free);
        let dns = dns_server(dns_port, dns_management);
        let leaf = ca.server(&["127.0.0.1", "localhost"]).issue();
        // RSA for OCSP: Pebble does not disclose ECDSA keys, and the test's responder needs the key.
        let algorithm = if options.responder.is_empty() { "ecdsa" } else { "rsa" };
        let keys = format!("{{ \"kid-1\": \"{EXTERNAL_KEY}\" }}");
        let config = format!(
            "{{ \"pebble\": {{ \"listenAddress\": \"{}\", \"managementListenAddress\": \"{}\", \"certificate\": {:?}, \
             \"privateKey\": {:?}, \"httpPort\": {http}, \"tlsPort\": {https}, \"ocspResponderURL\": {:?}, \
             \"externalAccountBindingRequired\": {}, \"externalAccountMACKeys\": {keys}, \"domainBlocklist\": \
             [\"blocked.test\"], \"retryAfter\": {{ \"authz\": 1, \"order\": {} }}, \"keyAlgorithm\": {algorithm:?}, \
             \"profiles\": {{ \"default\": {{ \"description\": \"90 days\", \"validityPeriod\": 7776000 }}, \
             \"shortlived\": {{ \"description\": \"6 days\", \"validityPeriod\": 518400 }} }} }} }}",
            local(directory),
            local(management),
            leaf.chain.display().to_string(),
            leaf.key.display().to_string(),
            options.responder,
            options.external_account,
            options.order_pause.unwrap_or(1),
        );
        let file = folder.path().join("pebble.json");
        fs::write(&file, config).expect("a temporary file");
        let asked = options.dns.map_or_else(|| local(dns_port), |server| server.to_string());
        let process = Process::start(
            command("pebble")
                .arg("-config")
                .arg(&file)
                .args(["-dnsserver", &asked])
                // Pebble waits up to 15 seconds before each validation, reuses authorizations, and rejects
                // some nonces, unless these variables forbid it.
                .env("PEBBLE_VA_NOSLEEP", "1")
                .env("PEBBLE_AUTHZREUSE", "0")
                .env("PEBBLE_WFE_NONCEREJECT", options.nonces_rejected.to_string()),
        );
        let mut pebble = Self {
            process,
            dns,
            dns_management,
            directory,
            management,
            https,
            http,
            folder,
            ca,
            root: OnceLock::new(),
        };
        wait_until("pebble that listens", || pebble.listens());
        pebble
    }

    fn listens(&mut self) -> Option<()> {
        for process in [&mut self.process, &mut self.dns] {
            assert!(process.ended().is_none(), "ended: {}{}", process.stdout(), process.stderr());
        }
        let ports = [self.directory, self.management, self.dns_management];
        ports.iter().all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok()).then_some(())
    }

    /// URL of its directory.
    pub fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.directory)
    }

    /// Port of its directory.
    pub fn directory_port(&self) -> u16 {
        self.directory
    }

    /// Path of the authority of its own server certificate.
    pub fn ca_file(&self) -> PathBuf {
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

    /// File with the root of the certificates that it issues. The root is new at each start. Written once, because a
    /// client of another thread may be reading it: one that reads while it is written anew trusts no root.
    pub fn root(&self) -> PathBuf {
        let write = || {
            let file = self.folder.path().join("root.pem");
            fs::write(&file, self.manage("roots/0", None)).expect("a temporary file");
            file
        };
        self.root.get_or_init(write).clone()
    }

    /// Writes the issuing certificate and its key to files. They are new at each start; for a pebble with
    /// [`PebbleOptions::ocsp_at`].
    pub fn intermediate(&self) -> (PathBuf, PathBuf) {
        let file = |path: &str, name: &str| {
            let file = self.folder.path().join(name);
            fs::write(&file, self.manage(path, None)).expect("a temporary file");
            file
        };
        (file("intermediates/0", "intermediate.pem"), file("intermediate-keys/0", "intermediate.key"))
    }

    /// Number of orders so far.
    pub fn orders(&self) -> usize {
        self.log().matches("Added order ").count()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.process.stdout() + &self.process.stderr()
    }

    /// Sets the suggested renewal window (RFC 9773) of the certificate in this PEM file; times in RFC 3339.
    pub fn advise(&self, certificate: &str, start: &str, end: &str) {
        let answer = object(&[("start", start), ("end", end)]).replace('"', "\\\"");
        let answer = format!("{{\\\"suggestedWindow\\\": {answer}}}");
        let pem = certificate.replace('\n', "\\n");
        let body = format!("{{ \"certificate\": \"{pem}\", \"ariResponse\": \"{answer}\" }}");
        self.manage("set-renewal-info/", Some(&body));
    }

    /// URL of the management of its own DNS server, which has `/set-txt` and `/clear-txt`.
    pub fn dns_management(&self) -> String {
        format!("http://{}", local(self.dns_management))
    }

    /// Resolves `name` to these addresses from now on.
    pub fn resolve(&self, name: &str, addresses: &[&str]) {
        let body = format!("{{ \"host\": \"{name}\", \"addresses\": {addresses:?} }}");
        let url = format!("http://{}/add-a", local(self.dns_management));
        run(command("curl").args(["--silent", "--fail", "--data", &body, &url]), b"", TIMEOUT).success();
    }

    /// Adds a TXT record to its own DNS server.
    pub fn set_txt(&self, name: &str, value: &str) {
        let body = object(&[("host", name), ("value", value)]);
        let url = format!("{}/set-txt", self.dns_management());
        run(command("curl").args(["--silent", "--fail", "--data", &body, &url]), b"", TIMEOUT).success();
    }

    fn manage(&self, path: &str, body: Option<&str>) -> String {
        let url = format!("https://{}/{path}", local(self.management));
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--cacert"]).arg(self.ca.root_file());
        if let Some(body) = body {
            curl.args(["--data", body]);
        }
        run(curl.arg(url), b"", TIMEOUT).success()
    }

    /// The folder in which it runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Starts a DNS server that resolves every name to this machine.
pub(crate) fn dns_server(port: u16, management: u16) -> Process {
    Process::start(command("pebble-challtestsrv").args([
        "-dnsserver",
        &local(port),
        "-management",
        &local(management),
        "-defaultIPv4",
        "127.0.0.1",
        // An empty value: gateways of tests listen on IPv4 only. The challenge servers below are off, because
        // the gateway responds to challenges.
        "-defaultIPv6",
        "",
        "-http01",
        "",
        "-https01",
        "",
        "-tlsalpn01",
        "",
        "-doh",
        "",
    ]))
}

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// A JSON object with these members.
fn object(members: &[(&str, &str)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\": \"{value}\"")).collect();
    format!("{{{}}}", members.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_not_written_while_another_thread_may_read_it() {
        let pebble = PebbleOptions::default().start();
        let written = || fs::metadata(pebble.root()).unwrap().modified().unwrap();
        assert_eq!(written(), written());
    }
}
