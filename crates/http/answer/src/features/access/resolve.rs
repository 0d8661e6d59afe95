//! Access control of hosts and routes.

use std::path::Path;
use std::sync::Arc;

use brisk_access::{CertificateRules, NetworkRules, Passwords};
use brisk_certs::InvalidFingerprint;
use brisk_config_file::{KeyPath, Network};

use super::keys::{self, AccessKeys, NetworkKeys, Satisfy};
use super::resolve_tokens as tokens;
use super::settings::{AccessSettings, BasicAuth};
use crate::features::early_data::EarlyData;
use crate::features::{Context, HostKeys, HostScope, RouteKeys, RouteScope};

/// Maximum size of a file with users in bytes.
const MOST_OF_FILE: usize = 16 << 20;

/// `allow` or `deny`.
type List<'c> = Option<&'c Vec<Network>>;

/// The networks of clients of a host.
pub(super) fn of_host(
    keys: &NetworkKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<NetworkRules>> {
    let (allow, deny) = (keys.allow.as_ref(), keys.deny.as_ref());
    let early_data = host.keys.early_data.early_data.as_ref();
    no_early_data(early_data, has_networks(allow, deny), host.path, context);
    networks(allow, deny, host.path, context)
}

/// The clients that may use a route.
pub(super) fn of_route(
    keys: &AccessKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> AccessSettings {
    let path = route.path;
    let is_restricted = restricts_networks(route.keys, route.host.keys);
    no_early_data(route.keys.early_data.early_data.as_ref(), is_restricted, path, context);
    let certificate = keys.client_certificate.as_ref();
    if certificate.is_some() && route.host.keys.client_certificates.client_certificates.is_none() {
        let message = "no client has one: write client_certificates = { mode = \"optional\", ca = \"FILE\" } for the host";
        context.findings.wrong(&path.key("client_certificate"), message);
    }
    let restrictions = [is_restricted, certificate.is_some(), keys.basic_auth.is_some(), keys.jwt.is_some()];
    // With one restriction, `any` and `all` have the same meaning.
    if keys.satisfy.is_some() && restrictions.iter().filter(|is_used| **is_used).count() < 2 {
        let message =
            "has no effect: write two of `allow` or `deny`, `client_certificate`, `basic_auth` and `jwt`";
        context.findings.wrong(&path.key("satisfy"), message);
    }
    AccessSettings {
        tokens: tokens::of_route(keys, route, context),
        is_any_sufficient: keys.satisfy == Some(Satisfy::Any),
        networks: networks(keys.allow.as_ref(), keys.deny.as_ref(), path, context),
        certificates: certificate
            .map(|certificate| certificates(certificate, &path.key("client_certificate"), context)),
        basic_auth: keys
            .basic_auth
            .as_ref()
            .and_then(|basic| basic_auth(basic, route, &path.key("basic_auth"), context)),
    }
}

fn basic_auth(
    raw: &keys::BasicAuth,
    route: &RouteScope<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<BasicAuth> {
    let realm = raw.realm.as_deref().unwrap_or("restricted");
    let challenge = BasicAuth::challenge(realm);
    if challenge.is_none() {
        let message = format!("{realm:?} is no realm: write printable ASCII characters");
        context.findings.wrong(&path.key("realm"), message);
    }
    if raw.forward.is_some() && !route.has_upstream() {
        context.findings.wrong(&path.key("forward"), "has no effect without `upstream`");
    }
    let passwords = passwords(&raw.file, &path.key("file"), context)?;
    Some(BasicAuth {
        passwords,
        threads: context.password_threads.clone(),
        challenge: challenge?,
        forwards: raw.forward.unwrap_or(false),
    })
}

fn passwords(file: &Path, path: &KeyPath, context: &mut Context<'_>) -> Option<Arc<Passwords>> {
    let file = context.file(file);
    let text = context.read_privately(&file, path, |file| {
        // One byte more than permitted shows a larger file without reading all of it.
        let text = brisk_secrets::read_at_most(file, MOST_OF_FILE + 1)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        if text.len() > MOST_OF_FILE {
            return Err(format!("{}: larger than 16 MiB", file.display()));
        }
        let is_utf8 = str::from_utf8(&text).is_ok();
        is_utf8.then_some(text).ok_or_else(|| format!("{}: not UTF-8", file.display()))
    })?;
    let text = str::from_utf8(&text).ok()?;
    // An unchanged file keeps its `Passwords`, and so the credentials that were verified.
    match context.password_files.read(&file, text) {
        Ok(passwords) => {
            if passwords.is_empty() {
                let file = file.display();
                context.findings.warn(format!(
                    "{path}: no user is in {file}, so no client may use the route; `htpasswd -B {file} NAME` adds one"
                ));
            }
            Some(passwords)
        }
        Err(errors) => {
            for error in errors {
                context.findings.wrong(path, format!("{}: {error}", file.display()));
            }
            None
        }
    }
}

fn certificates(
    raw: &keys::ClientCertificate,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Arc<CertificateRules> {
    for (key, list) in [("names", &raw.names), ("fingerprints", &raw.fingerprints)] {
        // Rules without names and fingerprints permit every certificate, so an empty
        // list could open the route.
        if list.as_ref().is_some_and(Vec::is_empty) {
            let message =
                "empty: write at least one; client_certificate = {} permits every verified certificate";
            context.findings.wrong(&path.key(key), message);
        }
    }
    let texts = raw.fingerprints.iter().flatten().enumerate();
    let fingerprint = |(index, text): (usize, &String)| {
        let read = text.parse().map_err(|error: InvalidFingerprint| format!("{text:?}: {error}"));
        read.map_err(|fault| context.findings.wrong(&path.key("fingerprints").index(index), fault)).ok()
    };
    let fingerprints = texts.filter_map(fingerprint).collect();
    Arc::new(CertificateRules { names: raw.names.clone().unwrap_or_default(), fingerprints })
}

/// Whether the address of a client decides about requests for the route. The lists of a route replace those of its host.
pub(crate) fn restricts_networks(route: &RouteKeys, host: &HostKeys) -> bool {
    let (own, inherited) = (&route.access, &host.networks);
    let (allow, deny) = match (own.allow.as_ref(), own.deny.as_ref()) {
        (None, None) => (inherited.allow.as_ref(), inherited.deny.as_ref()),
        of_route => of_route,
    };
    has_networks(allow, deny)
}

fn has_networks(allow: List<'_>, deny: List<'_>) -> bool {
    [allow, deny].into_iter().flatten().any(|list| !list.is_empty())
}

fn no_early_data(
    early_data: Option<&EarlyData>,
    is_restricted: bool,
    path: &KeyPath,
    context: &mut Context<'_>,
) {
    if is_restricted && !matches!(early_data, None | Some(EarlyData::No)) {
        let message = "not with `allow` or `deny`: the address of a client is not verified before the end of a handshake over QUIC";
        context.findings.wrong(&path.key("early_data"), message);
    }
}

fn networks(
    allow: List<'_>,
    deny: List<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<NetworkRules>> {
    if allow.is_none() && deny.is_none() {
        return None;
    }
    // A network that could not be read is missing in the list, and was reported already.
    if allow.is_some_and(Vec::is_empty) && !context.findings.written(&path.key("allow").index(0)) {
        let message = "no network: write at least one; or deny = [] for all clients, deny = [\"0.0.0.0/0\", \"::/0\"] for none";
        context.findings.wrong(&path.key("allow"), message);
    }
    let list =
        |networks: List<'_>| networks.into_iter().flatten().map(|network| network.0).collect::<Vec<_>>();
    NetworkRules::new(list(allow), list(deny))
        .map(Arc::new)
        .map_err(|network| {
            let message = format!("{network} is in `allow` already: keep one of the two");
            context.findings.wrong(&path.key("deny"), message);
        })
        .ok()
}
