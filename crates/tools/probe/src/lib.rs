//! Probe of one HTTPS connection, step by step: times, waiting sides and possible improvements.
//!
//! [`Settings::run`] probes; [`terminal`] formats the report. `brisk_tls_client` makes the connection and reports
//! bytes, times and secrets. With the secrets, `brisk_handshake_view` also lists the messages that TLS 1.3 encrypts.

mod browser;
mod browsing;
mod chart;
mod compare;
mod connection;
mod delivery;
mod error;
mod eyeballs;
mod fast_open;
mod findings;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod http3;
pub mod page;
mod plain;
mod prober;
mod recorder;
mod report;
mod resolve;
pub mod terminal;
mod timing;
mod trace;
mod trust;
mod url;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brisk_tls_client::{Client, ClientSettings, Verification};
use brisk_wire::registry::ProtocolVersion;

pub use brisk_handshake_view::{Certificate, Chain, Party, StepRow, Ticket, Waited, Window};
pub use brisk_http_client::Frame;
pub use browser::{Browser, Check, browser};
pub use browsing::{PageLoad, PageRequest, browse, har, text as page_load};
pub use compare::{Compared, ComparedStep, Side, compare};
pub use error::{ProbeError, Step};
pub use findings::Finding;
pub use http3::{Http3Outcome, Http3Report, http3};
pub use prober::Mode;
pub use report::{
    AnswerFacts, Failure, FastOpen, FrameRow, INITIAL_WINDOW, Phases, Report, TcpFacts, TlsFacts,
};
pub use resolve::{HttpsAnswer, HttpsRecord};
pub use timing::{Column, KINDS, Median, NAMES, Timing, timing};
pub use url::Url;

use prober::Prober;
use report::Resolved;

/// Target and options of a probe.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL.
    pub url: Url,
    /// Address to connect to instead of resolving the host. Default: none.
    pub connect: Option<IpAddr>,
    /// Name server for the HTTPS record. Default: the first of the system.
    pub name_server: Option<SocketAddr>,
    /// PEM files with trusted authorities. Default: none, i.e. the system's authorities.
    pub authorities: Vec<PathBuf>,
    /// The only offered version. Default: TLS 1.2 and TLS 1.3.
    pub version: Option<ProtocolVersion>,
    /// Offer only HTTP/1.1. Default: also HTTP/2.
    pub http1: bool,
    /// Load the page in a browser although the certificate is not trusted. Default: `false`.
    pub insecure: bool,
    /// Timeout of a connection. Default: 10 s.
    pub timeout: Duration,
    /// Value of `User-Agent`.
    pub agent: String,
}

impl Settings {
    /// Default settings for `url`.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            connect: None,
            name_server: None,
            authorities: Vec::new(),
            version: None,
            http1: false,
            insecure: false,
            timeout: Duration::from_secs(10),
            agent: concat!("brisk-probe/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Probes one connection of this [`Mode`]. A failed connection is [`Report::failure`]; an `Err` means that no connection
    /// could be attempted. Blocks for at most twice [`timeout`](Self::timeout) (once for the resolver), or four times if a
    /// session is needed.
    pub fn run(&self, mode: Mode) -> Result<Report, ProbeError> {
        let prober = Prober::new(self)?;
        block_on(self.probe(prober, mode))?
    }

    async fn probe(&self, prober: Prober<'_>, mode: Mode) -> Result<Report, ProbeError> {
        // The query for the HTTPS record goes beside everything else, and holds nothing up.
        let https = tokio::spawn({
            let (url, server, is_fixed) = (self.url.clone(), self.name_server, self.connect.is_some());
            async move {
                // The record describes the public servers of the name, not the one at a fixed address.
                if is_fixed && server.is_none() {
                    HttpsAnswer::NotAsked
                } else {
                    resolve::https(&url, server).await
                }
            }
        });
        let mut trip = prober.trip_as(mode).await?;
        let mut error = trip.close().await;
        if let Some(failed) = error.take() {
            trip.trace.milestones.ended = Some(Instant::now());
            error = Some(plain::explained(failed, &prober, &trip.trace).await);
        }
        let https = https.await.unwrap_or_else(|error| HttpsAnswer::Failed(error.to_string()));
        let addresses = trip.addresses.iter().map(|address| address.ip().to_string()).collect();
        let resolved = Resolved { addresses, took: trip.resolved, https };
        let mut report = Report::of(self, resolved, &trip.trace, error.as_ref());
        if let (Some(tcp), Some(address), None) = (&mut report.tcp, trip.trace.address, &report.failure) {
            // After the report: further connections beside the measured one would change its times.
            tcp.fast_open = fast_open::fast_open(address).await;
        }
        Ok(report)
    }

    /// Creates the TLS [`Client`]. Reads the files of `authorities`.
    fn client(&self) -> Result<Client, ProbeError> {
        self.client_of(if self.http1 { &["http/1.1"] } else { &["h2", "http/1.1"] })
    }

    /// As [`client`](Self::client), with these ALPN `protocols`.
    fn client_of(&self, protocols: &[&str]) -> Result<Client, ProbeError> {
        let mut settings = ClientSettings::new(self.url.host.clone());
        settings.verification = Verification::Reported(self.authorities.clone());
        settings.versions = self.version.into_iter().collect();
        // Offered, because a missing compression is a finding only if the client accepts one.
        settings.certificate_compression = true;
        settings.protocols = protocols.iter().map(|name| (*name).to_owned()).collect();
        Client::new(settings).map_err(|error| ProbeError::Settings(error.to_string()))
    }
}

/// Runs `work` on this thread. The thread of a resolver that does not return is abandoned.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, ProbeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| ProbeError::System(format!("cannot start: {error}")))?;
    let result = runtime.block_on(work);
    // A drop of the runtime would wait for the blocking thread of `getaddrinfo`, beyond every timeout.
    runtime.shutdown_background();
    Ok(result)
}

/// Keys of the server (SHA-256, base64) that a browser shall accept: none if the system's authorities apply, otherwise that
/// of a certificate which the authorities of the settings trust, or which is accepted with `insecure`.
pub(crate) fn trust_of_keys(settings: &Settings, report: &Report) -> Vec<String> {
    let Some(tls) = &report.tls else { return Vec::new() };
    let is_own = !settings.authorities.is_empty() && tls.is_trusted == Some(true);
    let leaf = tls.chain.as_ref().and_then(|chain| chain.certificates.first());
    let leaf = leaf.filter(|_| is_own || settings.insecure);
    leaf.map(|leaf| STANDARD.encode(digest(&SHA256, &leaf.public_key))).into_iter().collect()
}
