//! The rule of a route, with its secrets.

use std::path::Path;

use brisk_access::LinkKeys;
use brisk_config_file::KeyPath;
use brisk_rules::{BodyTemplate, Variable};
use zeroize::Zeroizing;

use super::LinkRule;
use super::keys::SignedLinks;
use crate::features::action::with_groups;
use crate::features::{Context, RouteScope};

/// Names of the variables that only signed texts have.
pub(super) const OWN: [(&str, Variable); 2] =
    [("expires", Variable::LinkExpires), ("decoded_path", Variable::DecodedPath)];

/// Number of secrets, and their lengths in bytes.
const MOST_KEYS: usize = 4;
const SHORTEST: usize = 16;
const LONGEST: usize = 4096;

/// The rule of a route. All mistakes are reported.
pub(super) fn rule(raw: &SignedLinks, route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<LinkRule> {
    let path = route.key("signed_links");
    let keys = keys(raw, &path, context);
    let never = raw.expires.as_deref() == Some("none");
    let usual = if never { "{decoded_path}" } else { "{expires}{decoded_path}" };
    let text = raw.text.as_deref().unwrap_or(usual);
    let signature = raw.signature.as_deref().unwrap_or("{request.query.signature}");
    let text = template(text, &OWN, ("text", &path), route, context);
    let signature = template(signature, &[], ("signature", &path), route, context);
    let expires = raw.expires.as_deref().unwrap_or("{request.query.expires}");
    let expires = (!never).then(|| template(expires, &[], ("expires", &path), route, context));
    let (text, signature, expires) = (text?, signature?, expires.map_or(Some(None), |read| read.map(Some))?);
    if expires.is_some() && !text.has(&Variable::LinkExpires) {
        let message = "lacks {expires}, so that clients can change the expiry of a link: write {expires}, or expires = \"none\"";
        context.findings.warn(format!("{}: {message}", path.key("text")));
    }
    Some(LinkRule { keys: keys?, text, signature, expires })
}

fn keys(raw: &SignedLinks, path: &KeyPath, context: &mut Context<'_>) -> Option<LinkKeys> {
    if raw.md5 {
        if !raw.keys.is_empty() {
            let message = "has no effect with md5, whose secret is a part of `text`";
            context.findings.wrong(&path.key("keys"), message);
        }
        if raw.text.is_none() {
            context.findings.incomplete(path, "needs text with a secret in it, because MD5 has no key");
        }
        return (raw.keys.is_empty() && raw.text.is_some()).then_some(LinkKeys::Md5);
    }
    if raw.keys.is_empty() || raw.keys.len() > MOST_KEYS {
        let message = format!("needs keys, the names of 1 to {MOST_KEYS} files with secrets");
        context.findings.incomplete(path, message);
        return None;
    }
    let secrets = raw.keys.iter().enumerate().map(|(index, file)| {
        let file = context.file(file);
        context.read_privately(&file, &path.key("keys").index(index), secret)
    });
    // All files are read before the first mistake ends the resolution, so that all are reported.
    let secrets = secrets.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>()?;
    // Editors end a file with a line feed, which is no part of the secret.
    Some(LinkKeys::hmac(secrets.iter().map(|secret| secret.trim_ascii())))
}

fn secret(file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let secret = brisk_secrets::read_at_most(file, LONGEST + 1)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if !(SHORTEST..=LONGEST).contains(&secret.trim_ascii().len()) {
        return Err(format!(
            "{} has not {SHORTEST} to {LONGEST} bytes: write a random secret, as with `openssl rand -hex -out FILE 32`",
            file.display()
        ));
    }
    Ok(secret)
}

fn template(
    text: &str,
    own: &[(&str, Variable)],
    (key, path): (&str, &KeyPath),
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<BodyTemplate> {
    let read = with_groups(route, context, |maps, groups| BodyTemplate::with_own(text, own, maps, groups))?;
    let read = read.map_err(|reason| context.findings.wrong(&path.key(key), reason)).ok()?;
    context.note_fingerprints(|variable| read.has(variable));
    Some(read)
}
