//! `brisk cert`: status of the certificates of hosts with `acme`, and manual orders, revocations and imports.

mod certbot;
mod owner;

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use brisk_acme::{CertificateSpec, HostStatus, KeyKind, KeyStatus, OnDemandHost, Operator};
use brisk_config::{ResolvedAcme, Running};
use brisk_report::Table;

use crate::args::{Cert, CertCommand, Chosen, ImportCertbot, Revoke};
use crate::log;

/// Width of tables, in columns of the terminal.
const WIDTH: usize = 140;

/// Runs the subcommand of `brisk cert`.
pub(crate) fn run(arguments: Cert) -> anyhow::Result<()> {
    match arguments.command {
        CertCommand::List(chosen) => list(&chosen),
        CertCommand::Inspect(chosen) => inspect(&chosen),
        CertCommand::Records(chosen) => records(&chosen),
        CertCommand::Obtain(chosen) => obtain(&chosen),
        CertCommand::Renew(chosen) => renew(&chosen),
        CertCommand::Revoke(revoke) => self::revoke(&revoke),
        CertCommand::ImportCertbot(import) => import_certbot(&import),
    }
}

/// ACME part of a configuration, opened for the operator.
struct Site {
    acme: ResolvedAcme,
    operator: Operator,
    /// Names on demand that have a stored certificate.
    on_demand: Vec<CertificateSpec>,
    /// Names on demand whose first order is in progress or has failed.
    tried: Vec<CertificateSpec>,
}

impl Site {
    fn open(config: &Path) -> anyhow::Result<Self> {
        let acme = brisk_config::check(config, &Running::default())?.acme;
        let Some(place) = acme.place.as_ref().filter(|_| acme.is_used()) else {
            bail!("{}: no host has `acme` or `on_demand`", config.display());
        };
        // After the configuration, which may be readable by root only, and before the first file is written.
        owner::become_owner(place)?;
        let operator = Operator::new(acme.settings.clone(), place.store())?;
        let (mut obtained, mut tried) = (Vec::new(), Vec::new());
        if !acme.demanded.is_empty() {
            obtained = operator.records().demanded()?;
            tried = operator.records().tried()?;
        }
        // A name with a certificate is listed once, also if the record of its first order is still there.
        tried.retain(|name| !obtained.contains(name));
        let specify = |names: Vec<String>| names.iter().filter_map(|name| on_demand(&acme, name)).collect();
        let (on_demand, tried) = (specify(obtained), specify(tried));
        Ok(Self { acme, operator, on_demand, tried })
    }

    /// Certificates to order: of the hosts with these names, or of all hosts with `acme` if `names` is empty. Names on
    /// demand are ordered only when named: the gateway orders the others, after checking that their host serves them.
    fn ordered(&self, names: &[String]) -> anyhow::Result<Vec<CertificateSpec>> {
        match (names.is_empty(), self.acme.wanted.is_empty()) {
            (true, true) => bail!("no host has `acme`: write the names on demand that are meant"),
            (true, false) => Ok(self.acme.wanted.clone()),
            (false, _) => self.hosts(names),
        }
    }

    /// Certificates of the hosts with these names; if `names` is empty, of all hosts with `acme` and of all names on demand
    /// that have a stored certificate.
    fn hosts(&self, names: &[String]) -> anyhow::Result<Vec<CertificateSpec>> {
        if names.is_empty() {
            return Ok(self.acme.wanted.iter().chain(&self.on_demand).cloned().collect());
        }
        let host = |name: &String| {
            let found = self.acme.wanted.iter().find(|wanted| wanted.names.contains(name)).cloned();
            let known = || self.acme.wanted.iter().map(CertificateSpec::name).collect::<Vec<_>>().join(", ");
            found
                .or_else(|| on_demand(&self.acme, name))
                .ok_or_else(|| anyhow!("no host with `acme` has the name {name:?}; there are {}", known()))
        };
        names.iter().map(host).collect()
    }
}

/// Specification for a name on demand; `None` if no `on_demand` host covers the name, or a host with `acme` has it.
fn on_demand(acme: &ResolvedAcme, name: &str) -> Option<CertificateSpec> {
    let is_own = |wanted: &&CertificateSpec| wanted.names.iter().any(|own| own == name);
    let fits = |host: &&OnDemandHost| host.names.settings().names.iter().any(|pattern| pattern.fits(name));
    let host = acme.demanded.iter().find(fits).filter(|_| !acme.wanted.iter().any(|own| is_own(&own)))?;
    Some(host.settings.wanted(name))
}

fn list(chosen: &Chosen) -> anyhow::Result<()> {
    let _log = log::start(&chosen.log)?;
    let site = Site::open(&chosen.config)?;
    let table = ["names", "key", "issuer", "expires", "next renewal", "last error"];
    let mut table = table.into_iter().fold(Table::new("certificates"), Table::text);
    let mut hosts = site.hosts(&chosen.names)?;
    if chosen.names.is_empty() {
        hosts.extend_from_slice(&site.tried);
    }
    for wanted in &hosts {
        let status = site.operator.status(wanted)?;
        for key in &status.keys {
            table.row(row(&status, key));
        }
    }
    print!("{}", table.to_text(WIDTH));
    println!("kept in {}", site.operator.records().place());
    Ok(())
}

fn row(status: &HostStatus, key: &KeyStatus) -> [String; 6] {
    let expires = key.not_after.map_or_else(|| "none yet".to_owned(), day);
    let renewal = if key.renewal <= SystemTime::now() { "due".to_owned() } else { day(key.renewal) };
    let issuer = key.issuer.clone().unwrap_or_default();
    let error = key.last_error.clone().unwrap_or_default();
    [status.names.join(" "), key.kind.to_string(), issuer, expires, renewal, error]
}

fn inspect(chosen: &Chosen) -> anyhow::Result<()> {
    let _log = log::start(&chosen.log)?;
    let site = Site::open(&chosen.config)?;
    let mut text = String::new();
    for wanted in &site.hosts(&chosen.names)? {
        for key in site.operator.status(wanted)?.keys {
            describe(&site, wanted, &key, &mut text)?;
        }
    }
    print!("{text}");
    Ok(())
}

fn describe(site: &Site, wanted: &CertificateSpec, key: &KeyStatus, out: &mut String) -> anyhow::Result<()> {
    let (records, kind) = (site.operator.records(), key.kind);
    writeln!(out, "{} ({kind})", wanted.name())?;
    let mut line = |name: &str, value: &str| writeln!(out, "  {name:<13} {value}");
    line("names", &wanted.names.join(" "))?;
    line("kept in", &format!("{}/certificates/{}/{kind}", records.place(), wanted.name()))?;
    let status = records.status(wanted.name(), kind)?;
    match records.issued(wanted.name(), kind)? {
        None => line("certificate", "none yet")?,
        Some(issued) => {
            line("authority", if issued.authority.is_empty() { "imported" } else { &issued.authority })?;
            line("profile", issued.profile.as_deref().unwrap_or("the authority's choice"))?;
            line("issuer", key.issuer.as_deref().unwrap_or_default())?;
            line("expires", &key.not_after.map(time).unwrap_or_default())?;
        }
    }
    line("next renewal", &time(key.renewal))?;
    if let Some(advice) = status.advice.as_ref().and_then(brisk_acme::RenewalAdvice::window) {
        line("advised", &format!("{} to {}", time(advice.0), time(advice.1)))?;
    }
    if let Some(error) = &key.last_error {
        line("failures", &key.failures.to_string())?;
        line("last error", error)?;
    }
    Ok(())
}

/// Prints the DNS records of `dns-persist-01` in the format of a zone file, each group after a comment with its authority.
fn records(chosen: &Chosen) -> anyhow::Result<()> {
    let _log = log::start(&chosen.log)?;
    let site = Site::open(&chosen.config)?;
    let mut last = String::new();
    for wanted in &site.hosts(&chosen.names)? {
        for (directory, record) in site.operator.persistent_records(wanted)? {
            if directory != last {
                println!("; {directory}");
                last = directory;
            }
            println!("{record}");
        }
    }
    Ok(())
}

fn obtain(chosen: &Chosen) -> anyhow::Result<()> {
    each(chosen, |site, wanted, kind| {
        site.operator.obtain(wanted, kind)?;
        Ok("obtained")
    })
}

fn renew(chosen: &Chosen) -> anyhow::Result<()> {
    each(chosen, |site, wanted, kind| {
        let renewed = site.operator.renew(wanted, kind)?;
        Ok(if renewed { "obtained" } else { "not due" })
    })
}

/// Applies `act` to each chosen certificate and reports each result. The `Err` contains the number of failures.
fn each(
    chosen: &Chosen,
    act: impl Fn(&Site, &CertificateSpec, KeyKind) -> anyhow::Result<&'static str>,
) -> anyhow::Result<()> {
    let _log = log::start(&chosen.log)?;
    let site = Site::open(&chosen.config)?;
    let mut failed = 0;
    for wanted in &site.ordered(&chosen.names)? {
        for kind in wanted.keys.iter().copied() {
            match act(&site, wanted, kind) {
                Ok(outcome) => println!("{} ({kind}): {outcome}", wanted.name()),
                // A failure of one host must not keep the others from their certificates.
                Err(error) => {
                    failed += 1;
                    eprintln!("{} ({kind}): {error}", wanted.name());
                }
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(anyhow!("{failed} failed")) }
}

fn revoke(arguments: &Revoke) -> anyhow::Result<()> {
    let _log = log::start(&arguments.log)?;
    let site = Site::open(&arguments.config)?;
    for wanted in &site.hosts(&arguments.names)? {
        for kind in wanted.keys.iter().copied() {
            site.operator.revoke(wanted.name(), kind, arguments.key_compromised)?;
            println!("{} ({kind}): revoked", wanted.name());
        }
    }
    Ok(())
}

fn import_certbot(arguments: &ImportCertbot) -> anyhow::Result<()> {
    // Before [`Site::open`], which gives up root: certbot's folder may be readable by root only.
    let found = certbot::certificates(&arguments.from)?;
    let site = Site::open(&arguments.config)?;
    let mut imported = 0;
    for wanted in &site.acme.wanted {
        for kind in wanted.keys.iter().copied() {
            let fitting = found.iter().filter(|own| own.kind == kind && own.is_for(&wanted.names));
            // The newest: certbot may keep several certificates for the same names (`example.com-0001`).
            let newest = fitting.filter(|own| own.ends > SystemTime::now()).max_by_key(|own| own.ends);
            let Some(own) = newest else {
                println!("{} ({kind}): certbot has none that is valid; it will be ordered", wanted.name());
                continue;
            };
            site.operator.import(wanted, kind, &own.issued(&wanted.names))?;
            println!("{} ({kind}): imported from {}", wanted.name(), own.folder.display());
            imported += 1;
        }
    }
    let place = site.operator.records().place();
    println!("{imported} imported into {place}; leave certbot's timer off once brisk serves these hosts");
    Ok(())
}

fn day(at: SystemTime) -> String {
    time(at).get(..16).unwrap_or_default().replace('T', " ")
}

fn time(at: SystemTime) -> String {
    brisk_acme::rfc3339(at)
}
