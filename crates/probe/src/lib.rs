//! One HTTPS connection, looked at step by step: what took time, which side waited, and what to change.
//!
//! [`Settings::run`] probes; [`terminal`] shows the report. The connection is made by `brisk_tls_client`, which reports
//! bytes, times and secrets, so that also what TLS 1.3 encrypts of its handshake can be listed.

mod answer;
mod capture;
mod chain;
mod connection;
mod error;
mod findings;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod http1;
mod http2;
mod message;
mod open;
mod records;
mod report;
mod resolve;
mod steps;
pub mod terminal;
mod trace;
mod url;
mod window;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brisk_tls_client::{Client, ClientSettings, Verification};
use brisk_wire::registry::ProtocolVersion;

pub use capture::Party;
pub use chain::{Certificate, Chain};
pub use error::{ProbeError, Step};
pub use findings::Finding;
pub use http2::Frame;
pub use message::Ticket;
pub use report::{
    AnswerFacts, Failure, FastOpen, FrameRow, INITIAL_WINDOW, Phases, Report, TcpFacts, TlsFacts,
};
pub use resolve::{HttpsAnswer, HttpsRecord};
pub use steps::{StepRow, Waited};
pub use url::Url;
pub use window::Window;

use connection::{Course, Start};
use report::Resolved;
use trace::Trace;

/// What is probed, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL.
    pub url: Url,
    /// Connect to this address, whatever the name resolves to. Default: none.
    pub connect: Option<IpAddr>,
    /// The name server that is asked for the HTTPS record. Default: the first of the system.
    pub name_server: Option<SocketAddr>,
    /// PEM files with trusted authorities. Default: none, which stands for those of the system.
    pub authorities: Vec<PathBuf>,
    /// The one version that is offered. Default: TLS 1.2 and TLS 1.3.
    pub version: Option<ProtocolVersion>,
    /// Only HTTP/1.1 is offered. Default: HTTP/2 as well.
    pub http1: bool,
    /// All that a connection may take. Default: 10 s.
    pub timeout: Duration,
    /// The `User-Agent` of requests.
    pub agent: String,
}

impl Settings {
    /// The default settings for `url`.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            connect: None,
            name_server: None,
            authorities: Vec::new(),
            version: None,
            http1: false,
            timeout: Duration::from_secs(10),
            agent: concat!("brisk-probe/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Probes one connection. The report says what happened also if the connection failed; an error means that nothing could
    /// be tried. Blocks for as long as it takes: the timeout, and as long again for the resolver.
    pub fn run(&self) -> Result<Report, ProbeError> {
        let client = self.client()?;
        client.rehearse();
        block_on(self.probe(client))?
    }

    async fn probe(&self, client: Client) -> Result<Report, ProbeError> {
        let began = Instant::now();
        let addresses = resolve::addresses(&self.url);
        // The query for the HTTPS record goes beside the addresses, and holds nothing up.
        let https = tokio::spawn({
            let (url, server, is_fixed) = (self.url.clone(), self.name_server, self.connect.is_some());
            async move {
                if is_fixed && server.is_none() {
                    HttpsAnswer::NotAsked
                } else {
                    resolve::https(&url, server).await
                }
            }
        });
        let addresses = match self.connect {
            Some(ip) => Ok(vec![SocketAddr::new(ip, self.url.port)]),
            None => tokio::time::timeout(self.timeout, addresses).await.unwrap_or_else(|_| {
                let detail = format!(" {}", self.url.host);
                Err(ProbeError::Timeout { limit: self.timeout, step: Step::Resolve, detail })
            }),
        };
        let took = began.elapsed();
        let mut trace = Trace::default();
        let (list, error) = match addresses {
            Ok(addresses) => {
                let list = addresses.iter().map(|address| address.ip().to_string()).collect();
                let course = self.course(client, addresses);
                let ended = course.run(Start::default(), &mut trace).await;
                (list, end(ended).await)
            }
            Err(error) => (Vec::new(), Some(error)),
        };
        let https = https.await.unwrap_or_else(|error| HttpsAnswer::Failed(error.to_string()));
        let resolved = Resolved { addresses: list, took, https };
        Ok(Report::of(self, resolved, &trace, error.as_ref()))
    }

    fn course(&self, client: Client, addresses: Vec<SocketAddr>) -> Course {
        let (url, agent, timeout) = (self.url.clone(), self.agent.clone(), self.timeout);
        Course { url, addresses, client, agent, timeout }
    }

    /// The TLS client. Reads the authorities' files.
    fn client(&self) -> Result<Client, ProbeError> {
        let mut settings = ClientSettings::new(self.url.host.clone());
        settings.verification = Verification::Reported(self.authorities.clone());
        settings.versions = self.version.into_iter().collect();
        settings.certificate_compression = true;
        let protocols: &[&str] = if self.http1 { &["http/1.1"] } else { &["h2", "http/1.1"] };
        settings.protocols = protocols.iter().map(|name| (*name).to_owned()).collect();
        Client::new(settings).map_err(|error| ProbeError::Settings(error.to_string()))
    }
}

/// Closes the connection, or returns why there is none.
async fn end(ended: Result<Option<connection::Kept>, ProbeError>) -> Option<ProbeError> {
    match ended {
        Ok(kept) => {
            if let Some(kept) = kept {
                kept.close().await;
            }
            None
        }
        Err(error) => Some(error),
    }
}

/// Runs `work` on this thread. A resolver that does not return is left behind.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, ProbeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| ProbeError::System(format!("cannot start: {error}")))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(result)
}
