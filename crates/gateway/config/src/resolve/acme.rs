//! `[acme]` and the hosts with `acme = true`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_acme::dns::DnsProvider;
use brisk_acme::{
    AcmeSettings, AuthoritySettings, CertificateSpec, ChallengeKind, ExternalAccount, KeyKind, OnDemandHost,
};
use brisk_answer::settings::HostSettings;
use brisk_certs::Store;
use brisk_certs::store::Folder;
use brisk_config_file::KeyPath;
use brisk_gateway::settings::{FleetStore, SessionSettings};
use brisk_wire::uri::without_scheme;
use zeroize::Zeroizing;

use super::context::Context;
use super::{certificates, dns, on_demand};
use crate::raw;
use crate::values::Address;

/// The certificates that are obtained.
#[derive(Clone, Debug)]
pub struct ResolvedAcme {
    /// Authorities and methods.
    pub settings: AcmeSettings,
    /// Certificates to obtain; empty if no host uses ACME.
    pub wanted: Vec<CertificateSpec>,
    /// Hosts whose names are accepted at run time.
    pub demanded: Vec<OnDemandHost>,
    /// Storage of the certificates; `None` if none is obtained and there is no folder.
    pub place: Option<CertificatePlace>,
}

impl ResolvedAcme {
    /// Whether anything is obtained.
    pub fn is_used(&self) -> bool {
        !self.wanted.is_empty() || !self.demanded.is_empty()
    }
}

/// Storage of certificates.
#[derive(Clone, Debug)]
pub enum CertificatePlace {
    /// A folder.
    Folder(PathBuf),
    /// The Redis of the fleet, and the folder for the local copy, if there is one.
    Fleet(Box<FleetStore>, Option<PathBuf>),
}

impl CertificatePlace {
    /// The store there, if a fleet shares it.
    pub(super) fn shared(&self) -> Option<Arc<dyn Store>> {
        matches!(self, Self::Fleet(..)).then(|| self.store())
    }

    /// The store there. It fails while the Redis of a fleet is unavailable. Values that it removes are removed from the
    /// local copy too.
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Folder(folder) => Arc::new(Folder::new(folder)),
            Self::Fleet(fleet, None) => Arc::new(shared(fleet)),
            Self::Fleet(fleet, Some(folder)) => Arc::new(shared(fleet).removing_copies_in(folder.clone())),
        }
    }

    /// The store of a gateway: while the Redis of its fleet is unavailable, it reads from its local copy.
    pub fn store_with_copy(&self) -> Arc<dyn Store> {
        match self {
            Self::Fleet(fleet, Some(folder)) => Arc::new(shared(fleet).with_copy(folder.clone())),
            _ => self.store(),
        }
    }
}

fn shared(fleet: &FleetStore) -> brisk_acme::FleetStore {
    brisk_acme::FleetStore::new(fleet.redis.clone(), &fleet.secret)
}

/// Resolves `[acme]` for `hosts`, which have the order of the hosts in `raw`.
pub(super) fn acme(
    raw: &raw::Config,
    hosts: &[HostSettings],
    state_dir: Option<&Path>,
    sessions: &SessionSettings,
    context: &mut Context<'_>,
) -> ResolvedAcme {
    let path = KeyPath::of("acme");
    let challenges = challenges(raw, &path, context);
    let dns = raw.acme.dns.as_ref().and_then(|own| dns::dns(own, &path.key("dns"), context));
    let settings = AcmeSettings {
        authorities: authorities(&raw.acme, &path, context),
        contact: contact(&raw.acme, &path, context),
        challenges,
        dns,
        // URLs that an authority names may not lead into private networks, except to these hosts (SSRF,
        // CWE-918).
        allow_private: certificates::allow_private(&raw.certificates),
    };
    let keys = keys(raw.acme.keys.as_deref(), &path.key("keys"), context);
    let all = KeyPath::of("host");
    let (mut wanted, mut demanded) = (Vec::new(), Vec::new());
    for (index, (host, resolved)) in raw.host.iter().zip(hosts).enumerate() {
        let path = all.index(index);
        demanded.extend(on_demand::decided(host, resolved, &keys, &path, context));
        let raw::HostAcme::On(own) = &host.own.acme else { continue };
        // The resolved names: wrong ones are reported already, and the others are in one form.
        provable(&resolved.tls.names, &settings.challenges, &path, context);
        room(&resolved.tls.names, &settings, &path, context);
        wanted.push(CertificateSpec {
            names: resolved.tls.names.clone(),
            keys: own.keys.as_ref().map_or_else(
                || keys.clone(),
                |own| self::keys(Some(own), &path.key("acme").key("keys"), context),
            ),
            profile: own.profile.clone(),
        });
    }
    if !wanted.is_empty() || !demanded.is_empty() {
        // Only with a certificate to obtain: `[acme]` alone connects to nothing.
        ports(raw, &settings.challenges, context);
    }
    let place = place(&raw.acme, state_dir, sessions, context);
    let resolved = ResolvedAcme { settings, wanted, demanded, place };
    if resolved.is_used() && resolved.place.is_none() {
        let message = "acme = true needs a folder for keys and certificates: write server.state_dir = \"/var/lib/brisk\"";
        context.shared.findings.incomplete(&KeyPath::of("server"), message);
    }
    resolved
}

fn place(
    raw: &raw::Acme,
    state_dir: Option<&Path>,
    sessions: &SessionSettings,
    context: &mut Context<'_>,
) -> Option<CertificatePlace> {
    if raw.store == Some(raw::AcmeStore::Redis) {
        // A table that was written but has errors is reported where it is wrong, and not as missing too.
        if sessions.fleet.is_none() && !context.shared.findings.written(&KeyPath::of("sessions").key("redis"))
        {
            let message = "needs [sessions.redis] with its `servers`, and `sessions.secret`";
            context.shared.findings.wrong(&KeyPath::of("acme").key("store"), message);
        }
        // A folder of its own: the copy has the sealed values of Redis, and no files of certificates.
        let copy = state_dir.map(|dir| dir.join("fleet-certificates"));
        return sessions.fleet.clone().map(|fleet| CertificatePlace::Fleet(Box::new(fleet), copy));
    }
    state_dir.map(|dir| CertificatePlace::Folder(dir.join("certificates")))
}

/// Reports names that the configured challenges cannot validate, as warnings or errors.
fn provable(names: &[String], challenges: &[ChallengeKind], path: &KeyPath, context: &mut Context<'_>) {
    let by_dns = |own: &ChallengeKind| matches!(own, ChallengeKind::Dns01 | ChallengeKind::DnsPersist01);
    let dns = challenges.iter().any(by_dns);
    for name in names.iter().filter(|name| name.starts_with("*.") && !dns) {
        let message = format!(
            "\"{name}\" can be proven by dns-01 alone, whose settings are in [acme.dns], or by dns-persist-01: write one of them"
        );
        context.shared.findings.wrong(&path.key("names"), message);
    }
    let is_address = |name: &&String| name.parse::<IpAddr>().is_ok();
    for name in names.iter().filter(is_address).filter(|_| challenges.iter().all(by_dns)) {
        let message = format!(
            "the address {name} cannot be proven by DNS: write acme.challenges with \"tls-alpn-01\" or \"http-01\""
        );
        context.shared.findings.wrong(&path.key("names"), message);
    }
}

/// Warns of challenges whose port has no listener: each one that is written, or all of the usual ones together. Listeners
/// on loopback are behind another server, whose ports are unknown here.
fn ports(raw: &raw::Config, challenges: &[ChallengeKind], context: &mut Context<'_>) {
    let is_missing = |listeners: &[Address], port: u16| {
        listeners.iter().all(|own| own.0.port() != port && !own.0.ip().is_loopback())
    };
    let missing: Vec<_> = [
        (ChallengeKind::TlsAlpn01, &raw.server.https, 443, "server.https"),
        (ChallengeKind::Http01, &raw.server.http, 80, "server.http"),
    ]
    .into_iter()
    .filter(|(kind, listeners, port, _)| challenges.contains(kind) && is_missing(listeners, *port))
    .collect();
    // One usual challenge that works is enough, since an authority needs one. A written one is meant, so each
    // is checked.
    if raw.acme.challenges.is_none() && missing.len() < challenges.len() {
        return;
    }
    for (kind, _, port, key) in missing {
        context.shared.findings.warn(format!(
            "{}: authorities connect to port {port}, and `{key}` has no address with it: add one, forward the port to brisk, \
             or write other `acme.challenges`",
            kind.name()
        ));
    }
}

/// acme-dns keeps two records of a registration: more that have to be there at the same time would drive each other out.
fn room(names: &[String], settings: &AcmeSettings, path: &KeyPath, context: &mut Context<'_>) {
    let by_acme_dns = settings.dns.as_ref().is_some_and(|dns| matches!(dns.by, DnsProvider::AcmeDns(_)));
    let only = settings.challenges == [ChallengeKind::Dns01];
    let stands = settings.challenges.contains(&ChallengeKind::DnsPersist01);
    let by_dns = names.iter().filter(|name| only || (name.starts_with("*.") && !stands)).count();
    if by_acme_dns && by_dns > 2 {
        let message = format!(
            "{by_dns} names are proven by dns-01, and acme-dns keeps two records: write hosts of at most two such names, or \
             `server` or `hook` in [acme.dns]"
        );
        context.shared.findings.wrong(&path.key("names"), message);
    }
}

fn authorities(raw: &raw::Acme, path: &KeyPath, context: &mut Context<'_>) -> Vec<AuthoritySettings> {
    let mut first = match &raw.directory {
        None => AuthoritySettings::lets_encrypt(),
        Some(directory) => {
            let usual = AuthoritySettings::lets_encrypt();
            let named = AuthoritySettings::new(url(directory, &path.key("directory"), context));
            // Written out, the directory of Let's Encrypt has the same trial directory as by default.
            if named.directory == usual.directory { usual } else { named }
        }
    };
    if let Some(raw::Trial(trial)) = &raw.trial {
        first.trial = trial.as_deref().map(|trial| url(trial, &path.key("trial"), context));
    }
    first.ca_file = raw.ca.as_ref().map(|ca| context.file(ca));
    first.profile.clone_from(&raw.profile);
    first.external_account = external(raw.external_account.as_ref(), &path.key("external_account"), context);
    let mut all = vec![first];
    for (index, raw) in raw.fallback.iter().enumerate() {
        let path = path.key("fallback").index(index);
        let mut next = AuthoritySettings::new(url(&raw.directory, &path.key("directory"), context));
        next.ca_file = raw.ca.as_ref().map(|ca| context.file(ca));
        next.profile.clone_from(&raw.profile);
        next.external_account =
            external(raw.external_account.as_ref(), &path.key("external_account"), context);
        // A second entry would only try an authority again that has failed.
        if all.iter().any(|one| one.directory == next.directory) {
            context
                .shared
                .findings
                .wrong(&path.key("directory"), "is asked already: write another authority");
        }
        all.push(next);
    }
    all
}

/// An account is worth protecting: its requests go over https.
fn url(text: &str, path: &KeyPath, context: &mut Context<'_>) -> String {
    let is_url =
        text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
    if !is_url {
        let message = format!(
            "{text:?} is no directory: write its address, as \"https://acme-v02.api.letsencrypt.org/directory\""
        );
        context.shared.findings.wrong(path, message);
    }
    text.to_owned()
}

fn external(
    raw: Option<&raw::ExternalAccount>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<ExternalAccount> {
    let raw = raw?;
    let file = context.file(&raw.key_file);
    let key = context.shared.read_privately(&file, &path.key("key_file"), read_key)?;
    Some(ExternalAccount { key_id: raw.key_id.clone(), key })
}

/// The MAC key as authorities show it: base64url, with padding or without.
fn read_key(file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let text = brisk_secrets::read(file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    brisk_secrets::decode_url(&text).ok_or_else(|| {
        format!("{}: not a key in base64url, as the authority's web site shows it", file.display())
    })
}

fn contact(raw: &raw::Acme, path: &KeyPath, context: &mut Context<'_>) -> Vec<String> {
    let path = path.key("contact");
    let mut contact = Vec::new();
    for (index, text) in raw.contact.iter().enumerate() {
        // The scheme is optional, because operators write an address and authorities require a URL (RFC 8555
        // section 7.3).
        let address = without_scheme(text, "mailto:").unwrap_or(text);
        // `mailto:` may contain several addresses and header fields (RFC 6068). RFC 8555 section 7.3 forbids
        // both.
        if !address.contains('@') || address.contains([' ', ',', '?']) {
            context.shared.findings.wrong(
                &path.index(index),
                format!("{text:?} is no mail address: write one as \"admin@example.com\""),
            );
        }
        contact.push(format!("mailto:{address}"));
    }
    contact
}

fn challenges(raw: &raw::Config, path: &KeyPath, context: &mut Context<'_>) -> Vec<ChallengeKind> {
    let path = path.key("challenges");
    // http-01 without a port for it can only fail. With [acme.dns], authorities need no port: they may not reach one.
    let usual = || {
        if raw.acme.dns.is_some() {
            return vec![ChallengeKind::Dns01];
        }
        let http = (!raw.server.http.is_empty()).then_some(ChallengeKind::Http01);
        let tls = (!raw.server.https.is_empty()).then_some(ChallengeKind::TlsAlpn01);
        tls.into_iter().chain(http).collect()
    };
    let Some(written) = &raw.acme.challenges else { return usual() };
    if written.is_empty() && !context.shared.findings.written(&path.index(0)) {
        context.shared.findings.wrong(&path, "no challenge: write at least one, as \"tls-alpn-01\"");
    }
    for (index, challenge) in written.iter().enumerate() {
        if *challenge == raw::Challenge::Http && raw.server.http.is_empty() {
            context
                .shared
                .findings
                .wrong(&path.index(index), "needs `server.http`, the port 80 where authorities ask");
        }
        if *challenge == raw::Challenge::TlsAlpn && raw.server.https.is_empty() {
            let message = "needs `server.https`, the port 443 to which authorities connect";
            context.shared.findings.wrong(&path.index(index), message);
        }
        if *challenge == raw::Challenge::Dns && raw.acme.dns.is_none() {
            context
                .shared
                .findings
                .wrong(&path.index(index), "needs [acme.dns], which says how records are put into the DNS");
        }
    }
    written.iter().copied().map(kind).collect()
}

fn kind(challenge: raw::Challenge) -> ChallengeKind {
    match challenge {
        raw::Challenge::TlsAlpn => ChallengeKind::TlsAlpn01,
        raw::Challenge::Http => ChallengeKind::Http01,
        raw::Challenge::Dns => ChallengeKind::Dns01,
        raw::Challenge::DnsPersist => ChallengeKind::DnsPersist01,
    }
}

fn keys(written: Option<&[raw::AcmeKey]>, path: &KeyPath, context: &mut Context<'_>) -> Vec<KeyKind> {
    let Some(written) = written else { return vec![KeyKind::Ecdsa] };
    if written.is_empty() && !context.shared.findings.written(&path.index(0)) {
        context
            .shared
            .findings
            .wrong(path, "no kind of key: write [\"ecdsa\"], or [\"ecdsa\", \"rsa\"] for old clients too");
    }
    let kind = |key: &raw::AcmeKey| match key {
        raw::AcmeKey::Ecdsa => KeyKind::Ecdsa,
        raw::AcmeKey::Rsa => KeyKind::Rsa,
    };
    let mut keys: Vec<_> = written.iter().map(kind).collect();
    // Sorted, because the order of kinds has no meaning: two spellings of one list are the same settings.
    keys.sort();
    keys.dedup();
    keys
}
