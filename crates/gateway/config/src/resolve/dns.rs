//! `[acme.dns]`: updates of DNS records for validation.

use std::path::Path;
use std::time::Duration;

use brisk_acme::dns::{
    AcmeDnsSettings, DnsProvider, DnsSettings, HookSettings, TsigAlgorithm, TsigKey, UpdateSettings,
};
use brisk_config_file::{KeyPath, Period};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::context::Context;
use crate::raw;

/// Default port of a DNS server.
const PORT: u16 = 53;

/// Limits of waits: a record that is not everywhere after an hour will not be.
const WAITS: std::ops::RangeInclusive<Period> = Period(Duration::ZERO)..=Period(Duration::from_hours(1));

/// Resolves the table at `path`, which must contain exactly one method.
pub(super) fn dns(raw: &raw::Dns, path: &KeyPath, context: &mut Context<'_>) -> Option<DnsSettings> {
    let ways = [raw.server.is_some(), raw.hook.is_some(), raw.acme_dns.is_some()];
    if ways.into_iter().filter(|is_there| *is_there).count() != 1 {
        let message = "write one of `server` (RFC 2136), `hook` (a program) and `acme_dns` (a file with the registration)";
        context.shared.findings.incomplete(path, message);
        return None;
    }
    let wait = context.shared.findings.within(&path.key("wait"), raw.wait, Period(Duration::ZERO), &WAITS).0;
    let by = if let Some(server) = &raw.server {
        DnsProvider::Update(update(raw, server, path, context)?)
    } else if let Some(file) = &raw.acme_dns {
        let file = context.file(file);
        DnsProvider::AcmeDns(context.shared.read_privately(&file, &path.key("acme_dns"), registration)?)
    } else {
        DnsProvider::Hook(hook(raw, path, context))
    };
    Some(DnsSettings { by, wait })
}

fn update(raw: &raw::Dns, server: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<UpdateSettings> {
    let (Some(name), Some(file)) = (&raw.key_name, &raw.key_file) else {
        let message = "needs `key_name` and `key_file`: the key that the server takes updates with (TSIG)";
        context.shared.findings.wrong(&path.key("server"), message);
        return None;
    };
    let file = context.file(file);
    let secret = context.shared.read_privately(&file, &path.key("key_file"), secret)?;
    let algorithm = match raw.key_algorithm {
        None | Some(raw::KeyAlgorithm::Sha256) => TsigAlgorithm::Sha256,
        Some(raw::KeyAlgorithm::Sha384) => TsigAlgorithm::Sha384,
        Some(raw::KeyAlgorithm::Sha512) => TsigAlgorithm::Sha512,
    };
    // A bare IPv6 address has colons too, but its last part is no port.
    let has_port = server.parse::<std::net::SocketAddr>().is_ok()
        || server
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
    Some(UpdateSettings {
        server: if has_port { server.to_owned() } else { format!("{server}:{PORT}") },
        zone: raw.zone.as_ref().map(|zone| zone.trim_end_matches('.').to_ascii_lowercase()),
        key: TsigKey { name: name.clone(), algorithm, secret },
    })
}

/// The secret as `keymgr -t` and `tsig-keygen` write it: base64.
fn secret(file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let text = brisk_secrets::read(file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    brisk_secrets::decode(&text).ok_or_else(|| format!("{}: not the secret alone in base64", file.display()))
}

fn hook(raw: &raw::Dns, path: &KeyPath, context: &mut Context<'_>) -> HookSettings {
    let limits = Period(Duration::from_secs(1))..=Period(Duration::from_mins(30));
    let limit = Period(Duration::from_mins(2));
    let limit = context.shared.findings.within(&path.key("hook_timeout"), raw.hook_timeout, limit, &limits).0;
    let program = |file: &std::path::PathBuf, context: &mut Context<'_>| {
        // Not watched: a changed program does not change the settings.
        let file = context.shared.base.join(file);
        // A bare name would be looked for in PATH.
        let file = std::path::absolute(&file).unwrap_or(file);
        if !file.is_file() {
            let message = format!("{} is no file: write the path of a program", file.display());
            context.shared.findings.wrong(&path.key("hook"), message);
        }
        file
    };
    let cleanup = raw.cleanup_hook.as_ref().map(|file| program(file, context));
    let program = raw.hook.as_ref().map(|file| program(file, context)).unwrap_or_default();
    HookSettings { program, cleanup, limit }
}

/// The response of acme-dns to the registration, with the address of its server.
fn registration(file: &Path) -> Result<AcmeDnsSettings, String> {
    #[derive(Deserialize)]
    struct Registration {
        server: String,
        username: String,
        password: String,
        subdomain: String,
    }
    let text = brisk_secrets::read_text(file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let found: Registration = toml::from_str(&text).map_err(|error| {
        format!("{}: {}; it has server, username, password and subdomain", file.display(), error.message())
    })?;
    let Registration { server: url, username, password, subdomain } = found;
    Ok(AcmeDnsSettings { url, username, password: Zeroizing::new(password), subdomain })
}
