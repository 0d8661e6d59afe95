//! `brisk probe --audit`: everything about a server's TLS that can be judged from outside, graded.
//!
//! Versions, suites, groups and weaknesses are found by hellos of `wire`, without a TLS library; what takes a whole handshake,
//! by `tls-client`. Probes go no further than what shows a weakness. What cannot be judged is left out, never guessed.

pub mod catalogue;
mod cbc;
mod certificate;
mod contact;
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

pub use certificate::{Certificate, Trust};
pub use contact::Limits;
pub use error::AuditError;
pub use grade::{Grade, Letter};
pub use groups::Groups;
pub use http::{Cookie, Hsts, Http, Plain};
pub use judged::{Finding, is_below};
pub use modern::Sessions;
pub use protocols::{AcceptedSuite, Protocol, Protocols};
pub use weaknesses::Weaknesses;

use certificate::{Judges, Shown};
use contact::Contact;

/// What is audited, and how.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port of HTTPS.
    pub port: u16,
    /// Path of requests.
    pub path: String,
    /// Connect here instead of resolving the host.
    pub address: Option<SocketAddr>,
    /// Authorities that are trusted beside Mozilla's and the system's (PEM).
    pub authorities: Vec<PathBuf>,
    /// Port of plain HTTP; `None` does not ask there.
    pub plain_port: Option<u16>,
    /// How long the keys of tickets are watched.
    pub watch: Option<Duration>,
    /// What the audit may cost.
    pub limits: Limits,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// Version of this document; it changes when fields change their meaning.
    pub format: u32,
    /// The host.
    pub host: String,
    /// The address that was asked.
    pub address: String,
    /// When.
    pub time: String,
    /// Connections that it took.
    pub connections: u32,
    /// The grade.
    pub grade: Grade,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// Versions and suites.
    pub protocols: Protocols,
    /// Groups and signature schemes.
    pub groups: Groups,
    /// Certificates that are shown to different clients.
    pub certificates: Vec<Certificate>,
    /// Known weaknesses.
    pub weaknesses: Weaknesses,
    /// Sessions, tickets and early data.
    pub sessions: Sessions,
    /// HTTP; `None` where no handshake with TLS 1.2 or 1.3 is possible, or no answer came.
    pub http: Option<Http>,
    /// What was not judged, and why.
    pub not_judged: Vec<String>,
}

impl Audit {
    /// The port that was asked.
    fn port(&self) -> u16 {
        self.address.parse().map_or(0, |address: SocketAddr| address.port())
    }
}

/// Audits a server. Blocks until the end; `progress` gets what is done now.
pub fn run(settings: &AuditSettings, progress: &mut dyn FnMut(&str)) -> Result<Audit, AuditError> {
    let addresses = match settings.address {
        Some(address) => vec![address],
        None => resolve(&settings.host, settings.port, settings.limits.whole)?,
    };
    let address = addresses[0];
    let judges = Judges::new(&settings.authorities)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| AuditError::System(format!("no runtime: {error}")))?;
    let mut contact = Contact::new(&settings.host, &addresses, settings.limits);
    progress("versions and suites");
    let protocols = protocols::find(&contact)?;
    progress("groups and signature schemes");
    let groups = groups::find(&contact, &protocols)?;
    progress("certificates");
    let shown = chains(&contact, &protocols, &runtime)?;
    let now = SystemTime::now();
    let judge = |shown: &Shown| certificate::judge(shown, &settings.host, &judges, now);
    let certificates: Vec<_> = shown.iter().filter_map(judge).collect();
    progress("known weaknesses");
    let weaknesses = weaknesses::find(&contact, &protocols)?;
    progress("sessions and HTTP");
    let (mut http, mut sessions) =
        runtime.block_on(modern::sessions(&contact, &protocols, &settings.path))?;
    if let (Some(http), Some(port)) = (&mut http, settings.plain_port) {
        http.plain = runtime.block_on(http::plain(&contact, port))?;
    }
    if let Some(time) = settings.watch.filter(|_| sessions.ticket_lifetime.is_some()) {
        let changed = modern::watch(&runtime, &mut contact, time, progress)?;
        sessions.watched = Some((time.as_secs(), changed));
    }
    let mut audit = Audit {
        format: 1,
        host: settings.host.clone(),
        address: address.to_string(),
        time: timestamp(now),
        connections: contact.used(),
        grade: Grade {
            letter: Letter::F,
            if_trusted: Letter::F,
            guide: grade::GUIDE,
            protocol: 0,
            key_exchange: 0,
            cipher: 0,
            score: 0,
            reasons: Vec::new(),
        },
        findings: Vec::new(),
        protocols,
        groups,
        certificates,
        weaknesses,
        sessions,
        http,
        not_judged: Vec::new(),
    };
    audit.not_judged = not_judged(&audit);
    let silent = contact.silent_steps().into_iter();
    audit.not_judged.extend(silent.map(|step| format!("{step}: asked twice, and some got no answer")));
    audit.grade = grade::grade(&audit);
    audit.findings = judged::findings(&audit);
    Ok(audit)
}

/// The addresses of a name, at least one. A resolver that does not return in time is left behind.
fn resolve(host: &str, port: u16, limit: Duration) -> Result<Vec<SocketAddr>, AuditError> {
    let failed = |error| AuditError::Resolve { host: host.to_owned(), error };
    let bare = host.trim_matches(['[', ']']).to_owned();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let all = (bare.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        // The audit is over where no one receives it.
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

/// The chains that clients get: those for ECDSA, those for RSA, and in TLS 1.3 where nothing older is spoken.
fn chains(
    contact: &Contact,
    protocols: &Protocols,
    runtime: &tokio::runtime::Runtime,
) -> Result<Vec<Shown>, AuditError> {
    contact.step("certificates");
    let mut found: Vec<Shown> = Vec::new();
    if let Some(version) = protocols.newest_before_13() {
        let kinds: [fn(&Suite) -> bool; 3] = [
            |suite| suite.name.contains("ECDSA"),
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
            if version > ProtocolVersion::SSL3_0 {
                asked = asked.staple().with(extension::SCT, Vec::new());
            }
            let answer = contact.ask(&asked)?;
            let Some(hello) = answer.agreed(version) else { continue };
            let scts = hello.extension(extension::SCT).map(<[u8]>::to_vec);
            let (chain, staple) = (answer.certificates.clone(), answer.staple.clone());
            let shown = Shown { chain, staple, scts, is_tls13: false };
            if !shown.chain.is_empty() && !found.contains(&shown) {
                found.push(shown);
            }
        }
    }
    if found.is_empty() && protocols.version(ProtocolVersion::TLS1_3).is_some() {
        found = runtime.block_on(modern::chains(contact))?;
    }
    Ok(found)
}

/// What this audit cannot say of this server.
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
    if audit.http.as_ref().is_some_and(|http| http.plain == Plain::Unjudged) {
        all.push("port 80: it takes connections, and gave no answer of HTTP in time".to_owned());
    }
    if audit.certificates.is_empty() {
        all.push("certificates: none could be read".to_owned());
    }
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
