//! Advice on a configuration and its machine (`brisk probe --config`), without network.
//!
//! The program gathers [`Facts`] from its settings; [`judge`] turns them into [`Advice`] with the command that corrects
//! each problem.

mod machine;
mod route;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use brisk_report::{Table, json};
use serde::Serialize;

pub use machine::Machine;

use crate::catalogue::Severity;

/// Judged facts about a configuration.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// Configuration file.
    pub file: PathBuf,
    /// Hosts.
    pub hosts: Vec<HostFacts>,
    /// Key files and their permissions.
    pub keys: Vec<KeyFile>,
    /// Whether listeners ask for TCP Fast Open (`server.fast_open`).
    pub fast_open: bool,
    /// Largest backlog of a listener.
    pub backlog: u32,
    /// Kernel settings of the machine.
    pub machine: Machine,
}

/// Facts about a host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostFacts {
    /// First name.
    pub name: String,
    /// Certificates.
    pub certificates: Vec<CertificateFacts>,
    /// Certificates are obtained and renewed by ACME.
    pub has_acme: bool,
    /// Whether the host sends `Strict-Transport-Security`.
    pub hsts: bool,
    /// Paths that accept early data for any method.
    pub early_paths: Vec<String>,
}

/// Facts about a certificate.
#[derive(Clone, Debug, Serialize)]
pub struct CertificateFacts {
    /// File.
    pub file: PathBuf,
    /// Algorithm of the key.
    pub algorithm: String,
    /// The key is for RSA.
    pub is_rsa: bool,
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// Identifier of the key, equal for certificates with the same key.
    pub key: String,
    /// Begin of validity.
    pub not_before: SystemTime,
    /// End of validity.
    pub not_after: SystemTime,
    /// Size of the chain in bytes.
    pub chain_bytes: usize,
    /// Maximum size of the first flight in bytes.
    pub flight: usize,
    /// Size of an initial window of 10 segments in bytes.
    pub window: usize,
    /// Sizes of the chain's certificates in bytes.
    pub parts: Vec<usize>,
}

/// A file with a private key.
#[derive(Clone, Debug, Serialize)]
pub struct KeyFile {
    /// File.
    pub file: PathBuf,
    /// Permissions, as in `chmod`, such as `0o600`.
    pub mode: u32,
}

/// A problem and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Stable name.
    pub id: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Observation.
    pub evidence: String,
    /// Remedy: a command or a setting.
    pub remedy: String,
}

/// All [`Advice::id`]s with their severities.
pub const IDS: &[(&str, Severity)] = &[
    ("inside-flight", Severity::Medium),
    ("inside-no-ecdsa", Severity::Low),
    ("inside-key-reused", Severity::Low),
    ("inside-expired", Severity::High),
    ("inside-expires-soon", Severity::Medium),
    ("inside-early-data", Severity::Medium),
    ("inside-no-hsts", Severity::Low),
    ("inside-key-readable", Severity::High),
    ("inside-fast-open", Severity::Low),
    ("inside-somaxconn", Severity::Medium),
    ("inside-notsent-lowat", Severity::Low),
    ("inside-congestion", Severity::Low),
    ("inside-initcwnd", Severity::Medium),
    ("inside-slow-start", Severity::Low),
];

/// Time before the end of a certificate without renewal at which it is reported; at most a third of its validity.
const SOON: Duration = Duration::from_hours(24 * 14);

/// Judges `facts` at the time `now`; the most severe [`Advice`] first.
pub fn judge(facts: &Facts, now: SystemTime) -> Vec<Advice> {
    let mut all = AdviceList::default();
    for host in &facts.hosts {
        self::host(host, now, facts.machine.initcwnd, &mut all);
    }
    reused(facts, &mut all);
    for key in facts.keys.iter().filter(|key| key.mode & 0o077 != 0) {
        let file = key.file.display();
        let evidence =
            format!("{file} has the permissions {:04o}: others may read or change it", key.mode & 0o7777);
        all.add("inside-key-readable", evidence, format!("chmod 600 {file}"));
    }
    machine(facts, &mut all);
    let mut all = all.0;
    all.sort_by_key(|advice| std::cmp::Reverse(advice.severity));
    all
}

#[derive(Default)]
struct AdviceList(Vec<Advice>);

impl AdviceList {
    fn add(&mut self, id: &'static str, evidence: impl Into<String>, remedy: impl Into<String>) {
        let severity =
            IDS.iter().find(|(own, _)| *own == id).map_or(Severity::Info, |(_, severity)| *severity);
        let advice = Advice { id, severity, evidence: evidence.into(), remedy: remedy.into() };
        // Hosts with the same certificate would repeat its advice.
        if !self.0.contains(&advice) {
            self.0.push(advice);
        }
    }
}

fn host(host: &HostFacts, now: SystemTime, initcwnd: Option<u32>, all: &mut AdviceList) {
    let name = &host.name;
    for certificate in &host.certificates {
        self::certificate(host, certificate, now, initcwnd, all);
    }
    if !host.certificates.is_empty() && host.certificates.iter().all(|certificate| certificate.is_rsa) {
        all.add(
            "inside-no-ecdsa",
            format!("{name} has certificates for RSA only"),
            format!(
                "brisk cert obtain --key ecdsa, or a second entry in certificates of {name} with an ECDSA key"
            ),
        );
    }
    if !host.early_paths.is_empty() {
        all.add(
            "inside-early-data",
            format!("{name} answers requests of any method early: {}", host.early_paths.join(", ")),
            "early_data = \"safe\", unless a request that arrives twice does no harm there",
        );
    }
    if !host.hsts && !is_local(name) {
        all.add("inside-no-hsts", format!("{name} sends no HSTS"), "hsts = { max_age = \"365d\" }");
    }
}

fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

fn certificate(
    host: &HostFacts,
    certificate: &CertificateFacts,
    now: SystemTime,
    initcwnd: Option<u32>,
    all: &mut AdviceList,
) {
    let file = certificate.file.display();
    // 1460 bytes: the payload of a segment on Ethernet with IPv4 and without TCP options.
    let window = initcwnd.map_or(certificate.window, |segments| segments as usize * 1460);
    if certificate.flight > window {
        let parts: Vec<_> = certificate.parts.iter().map(ToString::to_string).collect();
        all.add(
            "inside-flight",
            format!(
                "{file}: a first flight of up to {} bytes, more than the {window} that TCP sends at once: a round trip more \
                 (certificates of {} bytes)",
                certificate.flight,
                parts.join(" + ")
            ),
            "a chain without its root, an ECDSA certificate, or `ip route change default via GATEWAY initcwnd 20`",
        );
    }
    let life = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
    let left = certificate.not_after.duration_since(now);
    let end = json::timestamp(certificate.not_after);
    let renew = if host.has_acme {
        format!("brisk cert renew {}", host.name)
    } else {
        "acme = true of the host".to_owned()
    };
    match left {
        Err(_) => all.add("inside-expired", format!("{file} expired on {end}"), renew),
        Ok(left) if left < SOON.min(life / 3) => {
            let days = left.as_secs() / (24 * 3600);
            all.add("inside-expires-soon", format!("{file} ends on {end}, in {days} days"), renew);
        }
        Ok(_) => {}
    }
}

/// Reports keys used by several certificates: a leaked key affects all of them, and they must be revoked together.
fn reused(facts: &Facts, all: &mut AdviceList) {
    let mut by_key: BTreeMap<&str, Vec<&CertificateFacts>> = BTreeMap::new();
    for certificate in facts.hosts.iter().flat_map(|host| &host.certificates) {
        let own = by_key.entry(&certificate.key).or_default();
        // One certificate of several hosts is no reuse of a key.
        if own.iter().all(|other| other.fingerprint != certificate.fingerprint) {
            own.push(certificate);
        }
    }
    for certificates in by_key.values().filter(|own| own.len() > 1) {
        let files: Vec<_> = certificates.iter().map(|own| own.file.display().to_string()).collect();
        all.add(
            "inside-key-reused",
            format!("one key for {}", files.join(", ")),
            "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out NEW.key, and a certificate for it",
        );
    }
}

fn machine(facts: &Facts, all: &mut AdviceList) {
    let machine = &facts.machine;
    if facts.fast_open
        && let Some(value) = machine.fast_open.filter(|value| value & 2 == 0)
    {
        all.add(
            "inside-fast-open",
            format!("tcp_fastopen is {value}: the kernel ignores that listeners ask for Fast Open"),
            format!("sysctl -w net.ipv4.tcp_fastopen={}", value | 2),
        );
    }
    if let Some(value) = machine.somaxconn.filter(|value| *value < facts.backlog) {
        all.add(
            "inside-somaxconn",
            format!(
                "somaxconn is {value}, less than the backlog of {}: bursts of connections are dropped",
                facts.backlog
            ),
            format!("sysctl -w net.core.somaxconn={}", facts.backlog),
        );
    }
    if let Some(value) = machine.notsent_lowat.filter(|value| *value > 1 << 20) {
        all.add(
            "inside-notsent-lowat",
            format!("tcp_notsent_lowat is {value}: urgent answers wait behind what the kernel holds"),
            "sysctl -w net.ipv4.tcp_notsent_lowat=131072",
        );
    }
    if let Some(name) = machine.congestion.as_deref().filter(|name| *name != "bbr") {
        let has_bbr = machine.congestion_available.iter().any(|name| name == "bbr");
        let load = if has_bbr { "" } else { "modprobe tcp_bbr && " };
        all.add(
            "inside-congestion",
            format!("congestion control is {name}: links that lose packets are not filled"),
            format!("{load}sysctl -w net.core.default_qdisc=fq net.ipv4.tcp_congestion_control=bbr"),
        );
    }
    if let Some(segments) = machine.initcwnd.filter(|segments| *segments < 10) {
        all.add(
            "inside-initcwnd",
            format!("the default route has initcwnd {segments}, less than the 10 of RFC 6928"),
            "ip route change default via GATEWAY initcwnd 10",
        );
    }
    if machine.slow_start_after_idle == Some(1) {
        all.add(
            "inside-slow-start",
            "tcp_slow_start_after_idle is 1: kept connections begin slowly again after a pause",
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
        );
    }
}

/// Document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    advice: &'a [Advice],
    facts: &'a Facts,
}

/// Facts and advice as JSON.
pub fn json(facts: &Facts, advice: &[Advice]) -> String {
    json::document(&Document { format: 1, advice, facts })
}

/// Advice as text of at most `width` columns.
pub fn text(facts: &Facts, advice: &[Advice], width: usize) -> String {
    let mut text = format!("{}\n\n", facts.file.display());
    if advice.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Nothing to mend.\n");
    } else {
        let mut table =
            Table::new(format!("To mend ({})", advice.len())).text("severity").text("id").text("");
        for advice in advice {
            table.row([advice.severity.to_string(), advice.id.to_owned(), advice.evidence.clone()]);
            table.row([String::new(), String::new(), advice.remedy.clone()]);
        }
        text.push_str(&table.to_text(width));
        text.push('\n');
    }
    text.push_str(&facts.machine.table().to_text(width));
    text
}

#[cfg(test)]
mod tests;
