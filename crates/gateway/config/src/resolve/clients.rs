//! `client_certificates`: accepted client certificates and their revocation.

use std::path::Path;
use std::time::SystemTime;

use brisk_answer::features::client_certificates::{
    ClientCertificateMode, ClientCertificates as Written, CrlMode, ForwardCertificate,
};
use brisk_certs::{Crl, subject};
use brisk_config_file::KeyPath;
use brisk_keys::pem_certificates;
use brisk_tls::settings::{ClientCertificates, Revocation, UnknownRevocation};
use brisk_upstream_group::features::proxy_protocol::HeaderVersion;
use rustls_pki_types::CertificateDer;

use super::context::Context;
use crate::raw;

/// A host's demands on the certificates of clients.
pub(super) fn authenticated(
    raw: &Written,
    host: &raw::Host,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> ClientCertificates {
    let file = context.file(&raw.ca);
    let roots = authorities(&file).unwrap_or_else(|message| {
        context.shared.findings.wrong(&path.key("ca"), message);
        Vec::new()
    });
    let revocation = revocation(raw, path, context);
    if let Some(revocation) = &revocation {
        uncovered(&roots, revocation, &file, context);
    }
    ClientCertificates {
        required: raw.mode == ClientCertificateMode::Required,
        roots,
        revocation,
        keep: matches!(
            raw.forward,
            Some(ForwardCertificate::Certificate | ForwardCertificate::Chain)
        ) || host.routes().iter().any(|route| route.access.client_certificate.is_some())
            // The PROXY header contains the common name.
            || config.upstream.values().any(|group| group.features.proxy_protocol.proxy_protocol == Some(HeaderVersion::V2)),
    }
}

fn revocation(raw: &Written, path: &KeyPath, context: &mut Context<'_>) -> Option<Revocation> {
    let files = path.key("crl");
    if raw.crl.is_empty() {
        if context.shared.findings.written(&files) {
            context.shared.findings.wrong(&files, "no file: write at least one, or leave `crl` out");
        } else if raw.crl_mode.is_some() {
            context.shared.findings.wrong(&path.key("crl_mode"), "has no effect without `crl`");
        }
        return None;
    }
    let mut lists = Vec::new();
    for (index, file) in raw.crl.iter().enumerate() {
        let file = context.file(file);
        match Crl::read(&file) {
            Ok(read) => {
                let now = SystemTime::now();
                for warning in read.iter().filter_map(|list| list.warning(&file, now)) {
                    context.shared.findings.warn(warning.to_string());
                }
                lists.extend(read);
            }
            Err(error) => context.shared.findings.wrong(&files.index(index), error.to_string()),
        }
    }
    let unknown = match raw.crl_mode {
        Some(CrlMode::Lenient) => UnknownRevocation::Accept,
        // Strict by default: revocations by an authority without a list would be missed without a
        // notice.
        Some(CrlMode::Strict) | None => UnknownRevocation::Refuse,
    };
    Some(Revocation { lists, unknown })
}

/// Warns of authorities without a revocation list: all certificates that they issued are refused.
fn uncovered(roots: &[CertificateDer<'_>], revocation: &Revocation, file: &Path, context: &mut Context<'_>) {
    if revocation.unknown == UnknownRevocation::Accept {
        return;
    }
    for root in roots.iter().filter(|root| !revocation.lists.iter().any(|list| list.is_of(root))) {
        let (file, name) = (file.display(), subject(root).unwrap_or_default());
        context.shared.findings.warn(format!(
            "{file}: no list in `crl` is of \"{name}\": all certificates below it are refused, unless crl_mode = \"lenient\""
        ));
    }
}

/// The certificates of a PEM file; at least one.
pub(super) fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let certificates =
        pem_certificates(&pem).map_err(|fault| format!("{}: damaged PEM: {fault}", file.display()))?;
    if certificates.is_empty() {
        return Err(format!(
            "{}: holds no certificate; the file of a CA begins with -----BEGIN CERTIFICATE-----",
            file.display()
        ));
    }
    Ok(certificates)
}
