//! `jwt` of routes: tokens of an issuer.

use std::path::Path;
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_jwt::{Algorithms, ClaimHeader, KeySet, KeySetError, KeySource, TokenCheck, TokenRules};
use http::Uri;

use super::keys::{AccessKeys, Satisfy};
use super::settings::TokenAuth;
use super::token_keys::{Jwt, Texts};
use crate::features::{Context, RouteScope, headers};

/// Maximum size of a file with keys in bytes.
const MOST_OF_FILE: usize = 1 << 20;

/// Permitted difference of the clocks by default, and at most, in seconds.
const LEEWAY: u64 = 60;
const MOST_LEEWAY: u64 = 600;

/// The tokens that a route accepts.
pub(super) fn of_route(
    keys: &AccessKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<TokenAuth> {
    let raw = keys.jwt.as_ref()?;
    let path = route.key("jwt");
    if keys.basic_auth.is_some() && raw.cookie.is_none() && keys.satisfy != Some(Satisfy::Any) {
        let message = "a request cannot have a password and a token in `Authorization`: write satisfy = \"any\", or the \
                       `cookie` with the token";
        context.findings.wrong(&path, message);
    }
    let source = source(raw, &path, context);
    let rules = TokenRules {
        issuers: texts(raw.issuer.as_ref(), &path.key("issuer"), context),
        audiences: texts(raw.audience.as_ref(), &path.key("audience"), context),
        algorithms: algorithms(raw, &path.key("algorithms"), context),
        leeway: leeway(raw, &path.key("leeway"), context),
    };
    let claims = claims(raw, route, &path.key("claims_to_headers"), context);
    let forward = path.key("forward");
    if raw.forward.is_some() && !route.has_upstream() {
        context.findings.wrong(&forward, "has no effect without `upstream`");
    } else if raw.forward.is_some() && raw.cookie.is_some() {
        context.findings.wrong(&forward, "has no effect with `cookie`: upstreams get all cookies");
    }
    if raw.cookie.as_deref().is_some_and(|name| !is_token(name)) {
        context.findings.wrong(&path.key("cookie"), "not the name of a cookie: write one as \"session\"");
    }
    Some(TokenAuth {
        check: Arc::new(TokenCheck::new(rules, source?, claims)),
        cookie: raw.cookie.clone(),
        forwards: raw.forward.unwrap_or(true),
    })
}

/// Exactly one of the three.
fn source(raw: &Jwt, path: &KeyPath, context: &mut Context<'_>) -> Option<Arc<KeySource>> {
    if raw.ca.is_some() && raw.jwks_url.is_none() {
        context.findings.wrong(&path.key("ca"), "has no effect without `jwks_url`");
    }
    match (&raw.jwks_url, &raw.jwks_file, &raw.key_file) {
        (Some(url), None, None) => of_url(url, raw, path, context),
        (None, Some(file), None) => keys(file, &path.key("jwks_file"), KeySet::from_json, context),
        (None, None, Some(file)) => keys(file, &path.key("key_file"), KeySet::from_pem, context),
        (None, None, None) => {
            let message = "no key verifies the tokens: write one of `jwks_url`, `jwks_file`, `key_file`";
            context.findings.incomplete(path, message);
            None
        }
        _ => {
            let message = "the keys come from one place: keep one of `jwks_url`, `jwks_file`, `key_file`";
            context.findings.incomplete(path, message);
            None
        }
    }
}

fn of_url(url: &str, raw: &Jwt, path: &KeyPath, context: &mut Context<'_>) -> Option<Arc<KeySource>> {
    let parsed = url.parse::<Uri>().ok().filter(|url| url.host().is_some());
    let host = parsed.as_ref().and_then(Uri::host).unwrap_or_default();
    let is_local = host.eq_ignore_ascii_case("localhost") || matches!(host, "127.0.0.1" | "[::1]");
    match parsed.as_ref().and_then(Uri::scheme_str) {
        Some("https") => {}
        // No network is between this process and its own machine.
        Some("http") if is_local => {}
        Some("http") => {
            let message =
                format!("{url:?}: keys come over https, so that no attacker replaces them on the way");
            context.findings.wrong(&path.key("jwks_url"), message);
            return None;
        }
        _ => {
            let message = format!("{url:?} is not a URL: write one as \"https://id.example.com/jwks.json\"");
            context.findings.wrong(&path.key("jwks_url"), message);
            return None;
        }
    }
    let authorities = raw.ca.as_ref().map(|file| context.file(file));
    // The file is read with the first fetch, when a mistake would show itself in refused requests only.
    if let Some(file) = authorities.as_ref().filter(|file| !file.is_file()) {
        context.findings.wrong(&path.key("ca"), format!("there is no file {}", file.display()));
        return None;
    }
    // A source that runs already keeps its keys over a reload.
    Some(context.token_keys.of_url(url, authorities))
}

fn keys(
    file: &Path,
    path: &KeyPath,
    read: impl FnOnce(&[u8]) -> Result<KeySet, KeySetError>,
    context: &mut Context<'_>,
) -> Option<Arc<KeySource>> {
    let file = context.file(file);
    let name = file.display();
    let text = brisk_secrets::read_at_most(&file, MOST_OF_FILE + 1)
        .map_err(|error| format!("cannot read {name}: {error}"));
    let keys = text.and_then(|text| {
        if text.len() > MOST_OF_FILE {
            return Err(format!("{name}: larger than 1 MiB"));
        }
        read(&text).map_err(|error| format!("{name}: {error}"))
    });
    match keys {
        Ok(keys) => {
            for reason in keys.skipped() {
                context.findings.warn(format!("{path}: a key of {name} is not used: {reason}"));
            }
            Some(KeySource::of_file(keys))
        }
        Err(message) => {
            context.findings.wrong(path, message);
            None
        }
    }
}

fn texts(written: Option<&Texts>, path: &KeyPath, context: &mut Context<'_>) -> Vec<String> {
    let Some(Texts(texts)) = written else { return Vec::new() };
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        context.findings.wrong(path, "empty: write at least one text, or omit the key");
    }
    texts.clone()
}

fn algorithms(raw: &Jwt, path: &KeyPath, context: &mut Context<'_>) -> Algorithms {
    let Some(names) = &raw.algorithms else { return Algorithms::default() };
    if names.is_empty() {
        context.findings.wrong(path, "empty: write at least one, or omit the key for all");
    }
    Algorithms::new(names.iter().map(String::as_str)).unwrap_or_else(|(index, message)| {
        context.findings.wrong(&path.index(index), message);
        // The route is mistaken, so the default is never used.
        Algorithms::default()
    })
}

fn leeway(raw: &Jwt, path: &KeyPath, context: &mut Context<'_>) -> u64 {
    let Some(written) = raw.leeway else { return LEEWAY };
    let seconds = written.0.as_secs();
    if seconds > MOST_LEEWAY {
        context.findings.wrong(path, format!("\"{written}\" is too long: write \"0s\" to \"10m\""));
    }
    seconds
}

fn claims(raw: &Jwt, route: &RouteScope<'_>, path: &KeyPath, context: &mut Context<'_>) -> Vec<ClaimHeader> {
    if !raw.claims_to_headers.is_empty() && !route.has_upstream() {
        context.findings.wrong(path, "has no effect without `upstream`");
    }
    let header = |(name, claim): (&String, &String)| {
        let path = path.key(name);
        if claim.is_empty() {
            context.findings.wrong(&path, "no claim: write its name, as \"sub\"");
        }
        let header = headers::name(name, &path, context)?;
        Some(ClaimHeader { header, claim: claim.clone() })
    };
    raw.claims_to_headers.iter().filter_map(header).collect()
}

/// RFC 6265 section 4.1.1.
fn is_token(name: &str) -> bool {
    // A name of a cookie is a token, as the name of a header is.
    http::HeaderName::from_bytes(name.as_bytes()).is_ok()
}
