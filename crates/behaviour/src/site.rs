//! A brisk that serves `site.test` and `localhost`, and ways to ask it.

use std::time::Duration;

use brisk_testkit::brisk::{Brisk, Setup, base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use brisk_testkit::process::{Finished, command, run};
use serde_json::Value;

use crate::program::brisk_program;

/// The name that most tests ask for.
pub const NAME: &str = "site.test";

/// The names of the certificates.
pub const NAMES: [&str; 3] = [NAME, "localhost", "127.0.0.1"];

/// Long enough for any client here; one that takes longer hangs.
pub const LIMIT: Duration = Duration::from_mins(1);

/// A brisk without a configuration yet.
pub fn setup() -> Setup {
    Setup::new(brisk_program())
}

/// An `[upstream.app]` with these servers; more keys may follow.
pub fn upstream(servers: &[&str]) -> String {
    format!("\n[upstream.app]\nservers = {servers:?}\n")
}

/// A route for everything to `upstream.app`, and that upstream.
pub fn proxy_to(servers: &[&str]) -> String {
    format!("\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n{}", upstream(servers))
}

/// A running brisk and the CA of its certificate.
#[derive(Debug)]
pub struct Site {
    /// The CA of its certificate.
    pub ca: TestCa,
    /// The gateway.
    pub brisk: Brisk,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// With the built-in page.
    pub fn new() -> Self {
        Self::with("")
    }

    /// With these tables after its `[[host]]`: routes first, then upstreams and the rest.
    pub fn with(tables: &str) -> Self {
        Self::custom("", tables, |setup| setup)
    }

    /// In front of these servers.
    pub fn proxying(servers: &[&str]) -> Self {
        Self::with(&proxy_to(servers))
    }

    /// With dotted keys before the host, tables after it, and whatever else `prepare` sets up.
    #[track_caller]
    pub fn custom(keys: &str, tables: &str, prepare: impl FnOnce(Setup) -> Setup) -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&NAMES).issue();
        let config = format!("{}{}{tables}", base(keys), host(&NAMES, &[&leaf]));
        Self { brisk: prepare(setup().config(&config)).start(), ca }
    }

    /// With an ECDSA and an RSA certificate.
    pub fn with_both_certificates(tables: &str) -> Self {
        let ca = TestCa::new();
        let ecdsa = ca.server(&NAMES).issue();
        let rsa = ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
        let config = format!("{}{}{tables}", base(""), host(&NAMES, &[&ecdsa, &rsa]));
        Self { brisk: setup().config(&config).start(), ca }
    }

    /// `https://site.test:PORT` and `path`.
    pub fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.brisk.https().port())
    }

    /// Asks for `path` with curl.
    pub fn curl(&self, options: &[&str], path: &str) -> Finished {
        self.curl_url(options, &self.url(path))
    }

    /// Asks for `url` with curl; all its names lead to brisk.
    pub fn curl_url(&self, options: &[&str], url: &str) -> Finished {
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "*", "--cacert"]);
        curl.arg(self.ca.root_file()).args(["--connect-to", "::127.0.0.1:"]).args(options).arg(url);
        run(&mut curl, b"", LIMIT)
    }

    /// A TLS client that trusts the site's CA and asks for `site.test`.
    pub fn client(&self) -> TlsClient {
        TlsClient::new(&self.ca.root_file(), NAME)
    }

    /// A connection with a completed handshake, HTTP/1.1 by default.
    #[track_caller]
    pub fn connect(&self) -> TlsStream {
        self.client().connect(self.brisk.https()).expect("a handshake")
    }

    /// GET on a new connection.
    #[track_caller]
    pub fn get(&self, path: &str) -> Message {
        self.connect().get(NAME, path)
    }

    /// The server still takes new connections and answers: it survived what the test did to it.
    #[track_caller]
    pub fn assert_alive(&self) {
        // One per worker and some more, since the kernel spreads connections over the workers' listeners.
        for _ in 0..8 {
            assert!(self.get("/").status() < 500);
        }
    }
}

/// Facts of the connection in `body`, a response to `/connection.json` of the built-in page.
pub fn facts(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body:?}"))
}
