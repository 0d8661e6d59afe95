//! A brisk that serves `site.test` and `localhost`, and clients for it.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::process::Command;
use std::time::Duration;

use brisk_testkit::brisk::{Brisk, Setup, base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use brisk_testkit::process::{Finished, command, run};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::Value;

use crate::program::brisk_program;

/// Host name of most requests.
pub const NAME: &str = "site.test";

/// Names in the certificates.
pub const NAMES: [&str; 3] = [NAME, "localhost", "127.0.0.1"];

/// Timeout of any client; longer than any test needs.
pub const LIMIT: Duration = Duration::from_mins(3);

/// Setup of a brisk without a configuration.
pub fn setup() -> Setup {
    Setup::new(brisk_program())
}

/// Configuration table `[upstream.app]` with these servers; further keys may follow it.
pub fn upstream(servers: &[&str]) -> String {
    format!("\n[upstream.app]\nservers = {servers:?}\n")
}

/// Configuration tables: a route for all paths to `upstream.app`, and this upstream.
pub fn proxy_to(servers: &[&str]) -> String {
    format!("\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n{}", upstream(servers))
}

/// Running brisk, and the CA of its certificate.
#[derive(Debug)]
pub struct Site {
    /// CA of the certificate.
    pub ca: TestCa,
    /// Gateway.
    pub brisk: Brisk,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// Starts a site with the built-in page.
    pub fn new() -> Self {
        Self::with("")
    }

    /// Starts a site with `tables` after its `[[host]]`: routes first, then upstreams and others.
    pub fn with(tables: &str) -> Self {
        Self::custom("", tables, |setup| setup)
    }

    /// Starts a site that forwards all requests to these servers.
    pub fn proxying(servers: &[&str]) -> Self {
        Self::with(&proxy_to(servers))
    }

    /// Starts a site with dotted keys before the host, tables after it, and the additions of `prepare`.
    #[track_caller]
    pub fn custom(keys: &str, tables: &str, prepare: impl FnOnce(Setup) -> Setup) -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&NAMES).issue();
        let config = format!("{}{}{tables}", base(keys), host(&NAMES, &[&leaf]));
        Self { brisk: prepare(setup().config(&config)).start(), ca }
    }

    /// Starts a site with an ECDSA and an RSA certificate.
    pub fn with_both_certificates(tables: &str) -> Self {
        let ca = TestCa::new();
        let ecdsa = ca.server(&NAMES).issue();
        let rsa = ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
        let config = format!("{}{}{tables}", base(""), host(&NAMES, &[&ecdsa, &rsa]));
        Self { brisk: setup().config(&config).start(), ca }
    }

    /// URL `https://site.test:PORT` with `path`.
    pub fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.brisk.https().port())
    }

    /// Requests `path` with curl.
    pub fn curl(&self, options: &[&str], path: &str) -> Finished {
        self.curl_url(options, &self.url(path))
    }

    /// Requests `url` with curl, which resolves all names to brisk's address.
    pub fn curl_url(&self, options: &[&str], url: &str) -> Finished {
        run(&mut self.curl_command(options, url), b"", LIMIT)
    }

    /// Command of [`curl_url`](Self::curl_url).
    pub fn curl_command(&self, options: &[&str], url: &str) -> Command {
        let mut curl = command("curl");
        // A proxy in the environment of the machine must not receive the requests of tests. curl ends before `LIMIT`, so that its
        // message is shown.
        curl.args(["--silent", "--show-error", "--max-time", "170", "--noproxy", "*", "--cacert"]);
        curl.arg(self.ca.root_file()).args(["--connect-to", "::127.0.0.1:"]).args(options).arg(url);
        curl
    }

    /// TLS client that trusts the site's CA, for `site.test`.
    pub fn client(&self) -> TlsClient {
        TlsClient::new(&self.ca.root_file(), NAME)
    }

    /// Connects and completes the handshake, with HTTP/1.1 by default.
    #[track_caller]
    pub fn connect(&self) -> TlsStream {
        self.client().connect(self.brisk.https()).expect("a handshake")
    }

    /// Sends GET on a new connection.
    #[track_caller]
    pub fn get(&self, path: &str) -> Message {
        self.connect().get(NAME, path)
    }

    /// Checks that the server survived the test: it accepts connections and responds.
    #[track_caller]
    pub fn assert_alive(&self) {
        // More connections than workers, since the kernel distributes connections to the listeners of all workers.
        for _ in 0..8 {
            assert!(self.get("/").status() < 500);
        }
    }
}

/// Connects from `source`, an address of this machine, so that brisk sees a client of its own.
#[track_caller]
pub fn connect_from(source: Ipv4Addr, listener: SocketAddr) -> TcpStream {
    // The standard library cannot bind a socket before it connects.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddrV4::new(source, 0)).expect("an address of this machine");
    connect(&socket, &listener).expect("a listener");
    socket.into()
}

/// Facts of the connection in `body`, a response to `/connection.json` of the built-in page.
pub fn facts(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body:?}"))
}
