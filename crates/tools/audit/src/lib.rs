//! Audits: `brisk probe --audit` grades a server's TLS from outside, `brisk probe --config` advises on a configuration.
//!
//! [`run`] finds versions, suites, groups and weaknesses with hellos from `wire`, without a TLS library, and uses `tls-client`
//! for complete handshakes. A probe stops as soon as it has shown a weakness. Properties that cannot be judged are reported as
//! such, never guessed. [`configuration`] judges facts about a configuration and its machine.

mod caa;
pub mod catalogue;
mod cbc;
mod certificate;
mod clients;
pub mod configuration;
mod contact;
mod difference;
mod error;
pub mod grade;
mod groups;
mod http;
mod judged;
mod modern;
pub mod output;
mod protocols;
mod random;
mod rsa;
mod tls12;
mod weaknesses;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use brisk_report::json::timestamp;
use brisk_wire::offer::extension;
use brisk_wire::registry::{CipherSuite, ProtocolVersion};
use brisk_wire::suites::{Exchange, Suite};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

pub use caa::{Caa, CaaIssuer, CaaRecord};
pub use certificate::{Certificate, Trust};
pub use clients::ClientResult;
pub use contact::Limits;
pub use difference::{Differences, EarlierAudit, EarlierError};
pub use error::AuditError;
pub use grade::{Grade, Letter};
pub use groups::Groups;
pub use http::{Cookie, Hsts, Http, PlainHttp};
pub use judged::{Finding, is_below};
pub use modern::Sessions;
pub use protocols::{AcceptedSuite, Protocol, Protocols};
pub use weaknesses::Weaknesses;

use certificate::{AuthoritySets, SentChain};
use contact::AuditTarget;

/// Target and limits of an audit.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port of HTTPS.
    pub port: u16,
    /// Path of requests.
    pub path: String,
    /// Address to connect to instead of resolving the host.
    pub address: Option<SocketAddr>,
    /// Files with trusted authorities in addition to Mozilla's and the system's (PEM).
    pub authorities: Vec<PathBuf>,
    /// DNS servers for CAA records; empty for those of the system, `None` skips this check.
    pub dns: Option<Vec<SocketAddr>>,
    /// Port of plain HTTP; `None` skips this check.
    pub plain_port: Option<u16>,
    /// Duration for which ticket keys are watched; `None` skips this check.
    pub watch: Option<Duration>,
    /// Limits of time and connections.
    pub limits: Limits,
}

/// Result of an audit.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// Version of the JSON document; increased when fields change their meaning.
    pub format: u32,
    /// The host.
    pub host: String,
    /// Audited address.
    pub address: String,
    /// Time of the audit.
    pub time: String,
    /// Number of connections made.
    pub connections: u32,
    /// The grade.
    pub grade: Grade,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// Versions and suites.
    pub protocols: Protocols,
    /// Groups and signature schemes.
    pub groups: Groups,
    /// Certificates sent to different clients.
    pub certificates: Vec<Certificate>,
    /// CAA records for the names of the certificates.
    pub caa: Vec<Caa>,
    /// Known weaknesses.
    pub weaknesses: Weaknesses,
    /// Sessions, tickets and early data.
    pub sessions: Sessions,
    /// HTTP; `None` without a handshake of TLS 1.2 or 1.3 or without a response.
    pub http: Option<Http>,
    /// Version and suite of known clients with the server, as in [`ClientResult`].
    pub clients: Vec<ClientResult>,
    /// Properties that were not judged, with reasons.
    pub not_judged: Vec<String>,
    /// Differences to an earlier audit, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differences: Option<Differences>,
}

impl Audit {
    /// Audited port.
    fn port(&self) -> u16 {
        self.address.parse().map_or(0, |address: SocketAddr| address.port())
    }
}

/// Audits a server. Blocks for at most [`Limits::whole`], [`AuditSettings::watch`] and ten seconds for CAA records, after
/// the resolution of the name;
/// `progress` receives the name of each step as it begins.
pub fn run(settings: &AuditSettings, progress: &mut dyn FnMut(&str)) -> Result<Audit, AuditError> {
    let addresses = match settings.address {
        Some(address) => vec![address],
        None => resolve(&settings.host, settings.port, settings.limits.whole)?,
    };
    // Before the first connection, so that an unreadable file of `--ca` ends the command without a load on
    // the server.
    let judges = AuthoritySets::new(&settings.authorities)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| AuditError::System(format!("no runtime: {error}")))?;
    let mut contact = AuditTarget::new(&settings.host, &addresses, settings.limits);
    let mut audit = gather(settings, &mut contact, &runtime, &judges, progress)?;
    audit.not_judged = not_judged(&audit);
    let silent = contact.silent_steps().into_iter();
    audit.not_judged.extend(silent.map(|step| format!("{step}: asked twice, and some got no answer")));
    audit.grade = grade::grade(&audit);
    audit.findings = judged::findings(&audit);
    audit.clients = clients::simulate(&audit);
    Ok(audit)
}

/// Performs all steps. The result has no [`Grade`] and no [`Finding`] yet.
fn gather(
    settings: &AuditSettings,
    contact: &mut AuditTarget,
    runtime: &Runtime,
    judges: &AuthoritySets,
    progress: &mut dyn FnMut(&str),
) -> Result<Audit, AuditError> {
    // Versions and suites first: later hellos offer accepted suites only, so that a refusal concerns the
    // tested property.
    progress("versions and suites");
    let protocols = protocols::find(contact)?;
    progress("groups and signature schemes");
    let groups = groups::find(contact, &protocols)?;
    progress("certificates");
    let shown = chains(contact, &protocols, runtime)?;
    let now = SystemTime::now();
    let judge = |shown: &SentChain| certificate::judge(shown, &settings.host, judges, now);
    let certificates: Vec<_> = shown.iter().filter_map(judge).collect();
    let caa = match &settings.dns {
        Some(servers) => {
            progress("CAA records");
            runtime.block_on(caa::find(&settings.host, servers, &certificates))
        }
        None => Vec::new(),
    };
    progress("known weaknesses");
    let weaknesses = weaknesses::find(contact, &protocols)?;
    progress("sessions and HTTP");
    let (mut http, mut sessions) = runtime.block_on(modern::sessions(contact, &protocols, &settings.path))?;
    // The result of port 80 is a part of `Http`, which does not exist without a response over TLS.
    if let (Some(http), Some(port)) = (&mut http, settings.plain_port) {
        http.plain = runtime.block_on(http::plain(contact, port))?;
    }
    // Only TLS 1.3 sessions have a lifetime, and the watch connects with TLS 1.3 alone.
    if let Some(time) = settings.watch.filter(|_| sessions.ticket_lifetime.is_some()) {
        let changed = modern::watch(runtime, contact, time, progress)?;
        sessions.watched = Some((time.as_secs(), changed));
    }
    Ok(Audit {
        format: 1,
        host: settings.host.clone(),
        address: contact.address.to_string(),
        time: timestamp(now),
        connections: contact.used(),
        grade: Grade::pending(),
        findings: Vec::new(),
        protocols,
        groups,
        certificates,
        caa,
        weaknesses,
        sessions,
        http,
        clients: Vec::new(),
        not_judged: Vec::new(),
        differences: None,
    })
}

/// Addresses of a name, at least one. The thread of a resolver that does not return in time is abandoned.
fn resolve(host: &str, port: u16, limit: Duration) -> Result<Vec<SocketAddr>, AuditError> {
    let failed = |error| AuditError::Resolve { host: host.to_owned(), error };
    // The resolver does not accept an IPv6 address in brackets.
    let bare = host.trim_matches(['[', ']']).to_owned();
    let (sender, receiver) = mpsc::channel();
    // `getaddrinfo` has no timeout and cannot be cancelled, so the resolution runs on a thread of its own.
    thread::spawn(move || {
        let all = (bare.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        // The receiver is gone if the audit has ended.
        let _ = sender.send(all);
    });
    let all = receiver
        .recv_timeout(limit)
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(failed)?;
    if all.is_empty() {
        return Err(failed(io::Error::other("it has no address")));
    }
    Ok(all)
}

/// Chains sent to clients: for ECDSA, RSA and DSS, or in TLS 1.3 if the server supports no older version.
fn chains(
    contact: &AuditTarget,
    protocols: &Protocols,
    runtime: &Runtime,
) -> Result<Vec<SentChain>, AuditError> {
    contact.step("certificates");
    let mut found: Vec<SentChain> = Vec::new();
    if let Some(version) = protocols.newest_before_13() {
        let kinds: [fn(&Suite) -> bool; 3] = [
            |suite| suite.name.contains("ECDSA"),
            // Suites with static DH need a certificate with a DH key, even if their names contain RSA
            // (RFC 5246 section 7.4.2).
            |suite| suite.name.contains("_RSA_") && suite.exchange != Exchange::StaticDh,
            |suite| suite.name.contains("_DSS_"),
        ];
        for kind in kinds {
            let own = protocols.suites().filter(|(own, suite)| *own == version && kind(suite));
            let suites: Vec<CipherSuite> = own.map(|(_, suite)| suite.code).collect();
            if suites.is_empty() {
                continue;
            }
            let mut asked = protocols::offer(contact, version, suites)?;
            // RFC 6101 defines no extensions for SSL 3.0.
            if version > ProtocolVersion::SSL3_0 {
                asked = asked.staple().with(extension::SCT, Vec::new());
            }
            let answer = contact.ask(&asked)?;
            let Some(hello) = answer.agreed(version) else { continue };
            let scts = hello.extension(extension::SCT).map(<[u8]>::to_vec);
            let (chain, staple) = (answer.certificates.clone(), answer.staple.clone());
            let shown = SentChain { chain, staple, scts, is_tls13: false };
            if !shown.chain.is_empty() && !found.contains(&shown) {
                found.push(shown);
            }
        }
    }
    // TLS 1.3 encrypts the chain, so that only a complete handshake shows it. Older versions come first,
    // because the TLS client does not report SCTs of the TLS extension.
    if found.is_empty() && protocols.version(ProtocolVersion::TLS1_3).is_some() {
        found = runtime.block_on(modern::chains(contact))?;
    }
    Ok(found)
}

/// Properties that this audit cannot judge, with reasons.
fn not_judged(audit: &Audit) -> Vec<String> {
    let mut all = vec![
        "trust of Android, Windows and macOS: their authorities are not bundled; Mozilla's and this system's are".to_owned(),
        "signatures of SCTs: no library has a current list of logs with their keys, and none is bundled".to_owned(),
        "whether certificates are revoked by lists: that needs the network of others".to_owned(),
        "Lucky 13: it is seen in times alone".to_owned(),
    ];
    if audit.http.is_none() {
        all.push("HTTP: no answer over TLS 1.2 or TLS 1.3".to_owned());
    }
    if audit.http.as_ref().is_some_and(|http| http.plain == PlainHttp::Unjudged) {
        all.push("port 80: it takes connections, and gave no answer of HTTP in time".to_owned());
    }
    if audit.certificates.is_empty() {
        all.push("certificates: none could be read".to_owned());
    }
    let failures = audit.caa.iter().filter_map(|caa| Some((&caa.subject, caa.failure.as_ref()?)));
    all.extend(failures.map(|(name, reason)| format!("CAA records for {name}: {reason}")));
    // With TLS 1.3 alone these weaknesses cannot exist, and `None` is no gap of the audit.
    if audit.protocols.newest_before_13().is_some() {
        for (name, verdict) in [
            ("Heartbleed: no answer in time", audit.weaknesses.heartbleed),
            ("CCS injection: no answer in time", audit.weaknesses.early_ccs),
            ("ROBOT: no answer that repeats", audit.weaknesses.robot),
            (
                "oracles of CBC padding: a suite or a version that is not spoken here, or no answer that repeats in time",
                audit.weaknesses.padding_oracle,
            ),
            (
                "renegotiation by the client: no suite of ECDHE with AES-GCM, or no answer",
                audit.weaknesses.client_renegotiation,
            ),
        ] {
            if verdict.is_none() {
                all.push(name.to_owned());
            }
        }
    }
    if let Some((_, None)) = audit.sessions.watched {
        all.push("keys of tickets: tickets name no key, or none came at the end of the watch".to_owned());
    }
    if audit.certificates.iter().any(|certificate| certificate.has_hidden_scts && certificate.sct_logs < 2) {
        all.push("SCTs of the TLS extension: TLS 1.3 hides them".to_owned());
    }
    all
}

#[cfg(test)]
mod tests;
