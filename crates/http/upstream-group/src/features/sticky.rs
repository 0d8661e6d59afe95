//! Cookies by which clients return to a server or to an upstream: `sticky` of groups and `split` of routes.

mod keys;

use std::path::Path;
use std::time::Duration;

use brisk_config_file::{KeyPath, Period};
use brisk_rules::StickySettings;
use zeroize::Zeroizing;

use super::{Context, GroupFeature, GroupScope};
pub use keys::{CookieKeys, SameSite, StickyKeys};

/// Name of the cookie, unless another is written.
const COOKIE: &str = "brisk_server";

/// Minimum length of a `secret` in bytes.
const SECRET: usize = 32;

/// Maximum size of a file with a `secret` in bytes.
const FILE: usize = 4096;

/// `sticky` of groups.
#[derive(Debug)]
pub struct StickyFeature;

impl GroupFeature for StickyFeature {
    type Keys = StickyKeys;
    type Settings = Option<StickySettings>;

    fn resolve(
        keys: &StickyKeys,
        group: &GroupScope<'_>,
        context: &mut Context<'_, '_>,
    ) -> Option<StickySettings> {
        keys.sticky.as_ref().map(|written| cookie(written, COOKIE, &group.key("sticky"), context))
    }
}

/// Resolves the table at `path`. The cookie is called `name`, unless another name is written.
pub fn cookie(raw: &CookieKeys, name: &str, path: &KeyPath, context: &mut Context<'_, '_>) -> StickySettings {
    let cookie = raw.cookie.as_deref().unwrap_or(name);
    // RFC 6265 section 4.1.1: a token, as the name of a header.
    if cookie.parse::<http::HeaderName>().is_err() {
        let message = format!("{cookie:?} is not the name of a cookie: write letters, digits, - and _");
        context.findings.wrong(&path.key("cookie"), message);
    }
    let is_secure = raw.secure.unwrap_or(true);
    // The prefixes `__Secure-` and `__Host-` require the attribute too.
    if !is_secure && (raw.same_site == Some(SameSite::None) || cookie.starts_with("__")) {
        let message = "browsers refuse this cookie without Secure: remove `secure`, or change `same_site` and the prefix";
        context.findings.wrong(&path.key("secure"), message);
    }
    let key = match &raw.secret {
        // One random key for the process, so that a reload does not move the clients to other servers.
        None => StickySettings::random_key(),
        Some(file) => {
            let file = context.file(file);
            context.read_privately(&file, &path.key("secret"), secret).unwrap_or_default()
        }
    };
    let max_age = raw.max_age.map(|age| {
        // Browsers cut longer lifetimes to 400 days.
        let range = Period(Duration::from_secs(1))..=Period(Duration::from_hours(400 * 24));
        context.findings.within(&path.key("max_age"), Some(age), age, &range).0.as_secs()
    });
    let age = max_age.map(|seconds| format!("; Max-Age={seconds}"));
    let mut attributes = format!("; Path=/{}", age.unwrap_or_default());
    if is_secure {
        attributes.push_str("; Secure");
    }
    if raw.http_only.unwrap_or(true) {
        attributes.push_str("; HttpOnly");
    }
    attributes.push_str(match raw.same_site.unwrap_or(SameSite::Lax) {
        SameSite::Strict => "; SameSite=Strict",
        SameSite::Lax => "; SameSite=Lax",
        SameSite::None => "; SameSite=None",
    });
    StickySettings { cookie: cookie.to_owned(), key, attributes }
}

fn secret(file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let wrong = |reason: &dyn std::fmt::Display| format!("cannot read {}: {reason}", file.display());
    // A bound, since the path may name a device or a file that is not meant.
    let secret = brisk_secrets::read_at_most(file, FILE).map_err(|error| wrong(&error))?;
    if secret.len() < SECRET {
        return Err(format!(
            "{} has {} bytes, fewer than {SECRET}: write a random secret, as with `openssl rand -out FILE {SECRET}`",
            file.display(),
            secret.len()
        ));
    }
    Ok(secret)
}
