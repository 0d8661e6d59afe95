//! The options of a run as typed on the command line or in a plan. Validation converts them into [`Settings`].

mod listing;
mod names;
mod url;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use brisk_net::FastOpenConnect;
use brisk_telemetry::Resumption;
use brisk_tls_client::{ClientIdentity, ClientSettings, KeyShares, SessionUse, StapleRequest, Verification};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use bytes::Bytes;
use http::uri::PathAndQuery;

use crate::choice::Weighted;
use crate::error::BenchError;
use crate::mix::Mix;
use crate::schedule::{Pace, Schedule, Steps};
use crate::settings::{Handshakes, Settings};
use crate::workload::{self, Common, HttpVersion, PerConnection, Request, Workload};
pub use names::{NameError, alpn, group, suite, version};
use url::UrlParts;

/// Default duration of a run.
const TIME: Duration = Duration::from_secs(10);

/// Default warm-up of a run with a duration.
const WARMUP: Duration = Duration::from_secs(1);

/// Default number of connections in a closed loop, and maximum at a fixed rate.
const CONCURRENCY: u32 = 16;
const CONCURRENCY_FIXED: u32 = 256;

/// Maximum number of concurrent operations: each needs memory from the begin of the run.
const MOST: usize = 10_000_000;

/// The options of a run, as typed. `None` and empty lists stand for the defaults of [`Settings`].
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "as typed: each is a flag of its own")]
pub struct Options {
    /// `https://host[:port][/path]`, or with `http://` without TLS.
    pub url: String,
    /// Address to connect to instead of the URL's host and port.
    pub connect: Option<String>,
    /// Close each connection after its handshake.
    pub handshake_only: bool,
    /// Requests per connection. Default: as many as the server allows.
    pub per_connection: Option<NonZeroU32>,
    /// Use HTTP/2, with this number of concurrent requests per connection. Default: HTTP/1.1.
    pub streams: Option<NonZeroU32>,
    /// Use HTTP/3, with this number of concurrent requests per connection.
    pub http3: Option<NonZeroU32>,
    /// Method. Default: `GET`, or `POST` with a body.
    pub method: Option<String>,
    /// Headers, `Name: value`.
    pub headers: Vec<String>,
    /// File with the body.
    pub body: Option<PathBuf>,
    /// File with requests and weights, instead of the URL's path.
    pub urls: Option<PathBuf>,
    /// Kinds of handshake. Default: full.
    pub mix: Option<Mix>,
    /// How often a TLS 1.3 session is resumed. Default: as often as the server permits.
    pub session_use: Option<SessionUse>,
    /// Versions offered. Default: TLS 1.2 and 1.3.
    pub versions: Vec<ProtocolVersion>,
    /// Suites offered. Default: all.
    pub suites: Vec<CipherSuite>,
    /// Groups offered, a share for the first. Default: X25519MLKEM768 and others.
    pub groups: Vec<NamedGroup>,
    /// Accept only certificates with this type of key. Default: both.
    pub certificate: Option<CertificateType>,
    /// Server name to send and to verify. Default: the URL's host.
    pub name: Option<String>,
    /// Do not send `server_name`.
    pub no_sni: bool,
    /// Protocols offered by ALPN. Default: the protocol in use.
    pub alpn: Option<Vec<String>>,
    /// Client certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// PEM files with trusted authorities. Default: those of the system.
    pub authorities: Vec<PathBuf>,
    /// Do not verify the server's certificate.
    pub insecure: bool,
    /// Request a stapled OCSP response (`status_request`). It is always requested with a client certificate.
    pub ocsp: bool,
    /// Generate a key share for each handshake. Default: one for each group and thread.
    pub fresh_keys: bool,
    /// Use the private key 1 for key shares: no cost for the client, and no secrecy.
    pub unit_keys: bool,
    /// Use TCP Fast Open (RFC 7413).
    pub fast_open: bool,
    /// Number of connections. Default: 16; at a fixed rate up to 256.
    pub connections: Option<NonZeroU32>,
    /// Operations per second, independent of responses. Default: closed loop.
    pub rate: Option<f64>,
    /// Operations per second in steps.
    pub ramp: Option<Steps>,
    /// Number of connections in steps.
    pub ramp_connections: Option<Steps>,
    /// Duration of the measurement. Default: 10 s, or the length of the steps.
    pub time: Option<Duration>,
    /// Number of operations to measure. Default: no limit.
    pub count: Option<u64>,
    /// Warm-up time before the measurement. Default: 1 s, or none with a count.
    pub warmup: Option<Duration>,
    /// Number of threads. Default: 1.
    pub threads: Option<NonZeroU32>,
    /// Timeout of an operation. Default: 10 s.
    pub timeout: Option<Duration>,
    /// Maximum number of operations that wait at a fixed rate. Default: 100 000.
    pub backlog: Option<u32>,
    /// Process ID of the server, to measure its resource usage.
    pub server: Option<u32>,
}

/// Types of certificate, by their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateType {
    /// RSA.
    Rsa,
    /// ECDSA.
    Ecdsa,
}

impl CertificateType {
    const fn name(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::Ecdsa => "ecdsa",
        }
    }

    fn schemes(self) -> Vec<SignatureScheme> {
        match self {
            Self::Rsa => vec![
                SignatureScheme::RSA_PSS_RSAE_SHA256,
                SignatureScheme::RSA_PSS_RSAE_SHA384,
                SignatureScheme::RSA_PSS_RSAE_SHA512,
                SignatureScheme::RSA_PKCS1_SHA256,
                SignatureScheme::RSA_PKCS1_SHA384,
                SignatureScheme::RSA_PKCS1_SHA512,
            ],
            Self::Ecdsa => vec![
                SignatureScheme::ECDSA_SECP256R1_SHA256,
                SignatureScheme::ECDSA_SECP384R1_SHA384,
                SignatureScheme::ECDSA_SECP521R1_SHA512,
            ],
        }
    }
}

impl Options {
    /// The default options for `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connect: None,
            handshake_only: false,
            per_connection: None,
            streams: None,
            http3: None,
            method: None,
            headers: Vec::new(),
            body: None,
            urls: None,
            mix: None,
            session_use: None,
            versions: Vec::new(),
            suites: Vec::new(),
            groups: Vec::new(),
            certificate: None,
            name: None,
            no_sni: false,
            alpn: None,
            identity: None,
            authorities: Vec::new(),
            insecure: false,
            ocsp: false,
            fresh_keys: false,
            unit_keys: false,
            fast_open: false,
            connections: None,
            rate: None,
            ramp: None,
            ramp_connections: None,
            time: None,
            count: None,
            warmup: None,
            threads: None,
            timeout: None,
            backlog: None,
            server: None,
        }
    }

    /// Validates the options and converts them into [`Settings`]. Reads the files with bodies and requests; the run reads
    /// those with certificates. An invalid option is [`BenchError::Settings`].
    pub fn settings(&self) -> Result<Settings, BenchError> {
        let url = UrlParts::of(&self.url)?;
        let target = match &self.connect {
            Some(text) => {
                text.parse().map_err(|error| BenchError::settings(format!("--connect: {error}")))?
            }
            None => url.target.clone(),
        };
        if url.is_plain() {
            self.refuse_tls()?;
            if self.http3.is_some() {
                return Err(BenchError::settings("HTTP/3 needs TLS: --h3 goes with a URL with https://"));
            }
        }
        let workload = self.workload(&url)?;
        let handshakes = (!url.is_plain()).then(|| self.handshakes(&url, workload.http)).transpose()?;
        let schedule = self.schedule()?;
        // A thread without a connection would only add reports.
        let most = schedule.most().div_ceil(workload.http.streams());
        let threads = self.threads.map_or(1, |threads| threads.get() as usize).min(most);
        let fast_open = if self.fast_open { FastOpenConnect::On } else { FastOpenConnect::Off };
        Ok(Settings {
            url: self.url.clone(),
            target,
            handshakes,
            workload,
            schedule,
            threads,
            timeout: self.timeout.unwrap_or(Duration::from_secs(10)),
            backlog: self.backlog.unwrap_or(100_000) as usize,
            fast_open,
            server: self.server,
            keeps_records: false,
            listing: self.listing(),
        })
    }

    /// Rejects options about handshakes for an `http` URL: they were probably meant for another URL.
    fn refuse_tls(&self) -> Result<(), BenchError> {
        let mut names = if self.handshake_only { vec!["--handshake-only"] } else { Vec::new() };
        // From the list for reports, so that no option of handshakes can be forgotten here.
        names.extend(self.listing_of_handshakes().into_iter().map(|(option, _)| option));
        names.dedup();
        if names.is_empty() {
            return Ok(());
        }
        let names = names.join(", ");
        Err(BenchError::settings(format!("not without TLS, which needs a URL with https://: {names}")))
    }

    fn workload(&self, url: &UrlParts) -> Result<Workload, BenchError> {
        let http = self.http_version()?;
        let requests = match (self.handshake_only, self.per_connection) {
            (true, None) => PerConnection::HandshakeOnly,
            (true, Some(_)) => return Err(conflict("--handshake-only", "--per-connection")),
            (false, Some(number)) => PerConnection::Requests(number),
            (false, None) => PerConnection::Unlimited,
        };
        let early = self.mix.iter().flat_map(Mix::kinds).any(|kind| kind == Resumption::EarlyData);
        if self.handshake_only && early {
            return Err(BenchError::settings("0-rtt sends a request: it does not go with --handshake-only"));
        }
        let headers = self.headers.iter().map(|text| workload::header(text)).collect::<Result<_, _>>()?;
        let common = Common { scheme: url.scheme.clone(), authority: url.authority.clone(), headers };
        let choice = match &self.urls {
            Some(file) => workload::read_list(file, &common)?,
            None => Weighted::one(self.request(&url.path, &common)?),
        };
        Ok(Workload { requests, http, choice })
    }

    fn http_version(&self) -> Result<HttpVersion, BenchError> {
        let Some(streams) = self.http3 else {
            return Ok(self.streams.map_or(HttpVersion::One, |streams| HttpVersion::Two { streams }));
        };
        let conflicts = [
            (self.streams.is_some(), "--h2"),
            (self.fast_open, "--fast-open"),
            // rustls derives sessions over QUIC for one use.
            (self.session_use == Some(SessionUse::Many), "--sessions many"),
        ];
        if let Some((_, option)) = conflicts.iter().find(|(conflicts, _)| *conflicts) {
            return Err(conflict("--h3", option));
        }
        if self.handshake_only && streams.get() > 1 {
            return Err(BenchError::settings("--handshake-only sends no requests: it goes with --h3 1"));
        }
        if self.versions.iter().any(|version| *version != ProtocolVersion::TLS1_3) {
            return Err(BenchError::settings("HTTP/3 needs TLS 1.3, so --h3 goes with --tls 1.3 only"));
        }
        Ok(HttpVersion::Three { streams })
    }

    fn request(&self, path: &PathAndQuery, common: &Common) -> Result<Request, BenchError> {
        let body = self.body.as_deref().map_or(Ok(Bytes::new()), workload::body)?;
        let usual = if self.body.is_some() { "POST" } else { "GET" };
        let method = workload::method(self.method.as_deref().unwrap_or(usual))?;
        Request::new(method, path, body, common)
    }

    fn schedule(&self) -> Result<Schedule, BenchError> {
        let streams = self.streams.or(self.http3).map_or(1, NonZeroU32::get);
        let at_once = |usual: u32| self.connections.map_or(usual, NonZeroU32::get).saturating_mul(streams);
        let rate = match (self.rate, self.ramp) {
            (Some(_), Some(_)) => return Err(conflict("--rate", "--ramp")),
            (Some(rate), None) if rate > 0.0 && rate.is_finite() => Some(Steps::constant(rate)),
            (Some(_), None) => return Err(BenchError::settings("--rate has to be above 0")),
            (None, ramp) => ramp,
        };
        let pace = match (rate, self.ramp_connections) {
            (Some(_), Some(_)) => return Err(conflict("--ramp-connections", "a rate")),
            (Some(rate), None) => Pace::Fixed { rate, concurrency: at_once(CONCURRENCY_FIXED) as usize },
            (None, Some(_)) if self.connections.is_some() => {
                return Err(conflict("--ramp-connections", "-c"));
            }
            (None, Some(steps)) if !steps.is_whole() => {
                return Err(BenchError::settings("--ramp-connections: connections come in whole numbers"));
            }
            (None, Some(steps)) => Pace::Closed(steps.times(streams)),
            (None, None) => Pace::Closed(Steps::constant(f64::from(at_once(CONCURRENCY)))),
        };
        if pace.most() > MOST {
            return Err(BenchError::settings("connections times streams must be at most 10 million"));
        }
        let warmup = self.warmup.unwrap_or(if self.count.is_some() { Duration::ZERO } else { WARMUP });
        // Endless only without time, count and steps: then the default time applies.
        let schedule = Schedule::new(pace.clone(), warmup, self.time, self.count);
        Ok(if schedule.is_endless() { Schedule::new(pace, warmup, Some(TIME), None) } else { schedule })
    }

    fn handshakes(&self, url: &UrlParts, http: HttpVersion) -> Result<Handshakes, BenchError> {
        let name = self.name.as_deref().unwrap_or(&url.host);
        let usual = || vec![http.alpn().to_owned()];
        let identity = self.identity.clone().map(|(chain, key)| ClientIdentity { chain, key });
        let is_quic = matches!(http, HttpVersion::Three { .. });
        let client = ClientSettings {
            versions: if is_quic { vec![ProtocolVersion::TLS1_3] } else { self.versions.clone() },
            suites: self.suites.clone(),
            groups: self.groups.clone(),
            schemes: self.certificate.map(CertificateType::schemes).unwrap_or_default(),
            send_server_name: !self.no_sni,
            protocols: self.alpn.clone().unwrap_or_else(usual),
            identity,
            verification: self.verification()?,
            key_shares: self.key_shares()?,
            // A client certificate in TLS 1.2 signs the whole hello, so its staple request cannot be removed
            // afterwards.
            staple_request: if self.ocsp || self.identity.is_some() {
                StapleRequest::Sent
            } else {
                StapleRequest::Omitted
            },
            ..ClientSettings::new(name)
        };
        let session_use = if is_quic { Some(SessionUse::Once) } else { self.session_use };
        let mix = self.mix.clone().unwrap_or_default();
        let handshakes = Handshakes { mix: mix.weighted(), client, session_use };
        for kind in mix.kinds() {
            if handshakes.client(kind, SessionUse::Once).is_none() {
                if is_quic {
                    return Err(BenchError::settings(format!(
                        "{kind} needs TLS 1.2, which HTTP/3 does not use"
                    )));
                }
                let version = if kind == Resumption::SessionId { "1.2" } else { "1.3" };
                return Err(BenchError::settings(format!(
                    "{kind} needs TLS {version}, which --tls leaves out"
                )));
            }
        }
        Ok(handshakes)
    }

    fn key_shares(&self) -> Result<KeyShares, BenchError> {
        match (self.fresh_keys, self.unit_keys) {
            (false, false) => Ok(KeyShares::Reused),
            (true, false) => Ok(KeyShares::Fresh),
            (false, true) => Ok(KeyShares::Unit),
            (true, true) => Err(conflict("--fresh-keys", "--unit-keys")),
        }
    }

    fn verification(&self) -> Result<Verification, BenchError> {
        match (self.insecure, &self.authorities[..]) {
            (true, []) => Ok(Verification::Off),
            (true, _) => Err(conflict("--insecure", "--ca")),
            (false, []) => Ok(Verification::System),
            (false, files) => Ok(Verification::Authorities(files.to_vec())),
        }
    }
}

fn conflict(one: &str, other: &str) -> BenchError {
    BenchError::settings(format!("{one} does not go with {other}"))
}

#[cfg(test)]
mod tests;
