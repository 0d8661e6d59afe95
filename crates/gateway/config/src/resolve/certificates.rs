//! `[certificates]`: maintenance of certificates, and staples in files.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::{Catalogue, CertError, Certificate, MaintenanceSettings};
use brisk_config_file::{KeyPath, Period};
use brisk_fetch::PrivateHost;

use super::context::Context;
use crate::raw;

/// Permitted wait for staples at the start.
const WAITS: RangeInclusive<Period> = Period(Duration::ZERO)..=Period(Duration::from_mins(1));

/// The settings of `[certificates]`.
pub(super) fn maintenance(raw: &raw::Certificates, context: &mut Context<'_>) -> MaintenanceSettings {
    let usual = MaintenanceSettings::default();
    let path = KeyPath::of("certificates").key("staple_wait");
    MaintenanceSettings {
        staples: raw.staple.unwrap_or(usual.staples),
        watches: raw.watch_revocation.unwrap_or(usual.watches),
        completes: raw.complete_chains.unwrap_or(usual.completes),
        wait: context.shared.findings.within(&path, raw.staple_wait, Period(usual.wait), &WAITS).0,
    }
}

/// The hosts of `allow_private`.
pub(super) fn allow_private(raw: &raw::Certificates) -> Arc<[PrivateHost]> {
    raw.allow_private.iter().map(|host| host.0.clone()).collect()
}

/// `certificate` with the staple from its file, if any. Fails if clients would refuse the certificate because its
/// staple is missing (RFC 7633).
pub(super) fn stapled(
    certificate: Arc<Certificate>,
    files: &raw::Certificate,
    raw: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<Certificate>> {
    if let Some(file) = &files.staple {
        let file = context.file(file);
        return match certificate.read_staple(&file, SystemTime::now()) {
            Ok(staple) => {
                // A copy if another host has the certificate too: the staple belongs to this entry of the
                // file.
                let mut certificate = Arc::unwrap_or_clone(certificate);
                certificate.staple = Some(Arc::new(staple));
                Some(Arc::new(certificate))
            }
            // An old one does less harm than a gateway that does not start.
            Err(error @ CertError::Staple { expired: true, .. }) => {
                context.shared.findings.warn(format!("{error}; it is not shown, put a new one there"));
                Some(certificate)
            }
            Err(error) => {
                context.shared.findings.wrong(&path.key("staple"), error.to_string());
                None
            }
        };
    }
    let reason = if certificate.services.responders.is_empty() {
        "it names no OCSP responder, and there is no `staple` file: have one issued without must-staple"
    } else if raw.certificates.staple == Some(false) {
        "certificates.staple is false and there is no `staple` file: remove one of the two"
    } else {
        // The gateway fetches the staple itself, and waits for it at the start, up to `staple_wait`.
        return Some(certificate);
    };
    if !certificate.services.must_staple {
        return Some(certificate);
    }
    let error =
        CertError::MustStaple { path: certificate.source.clone(), title: certificate.title(), reason };
    context.shared.findings.wrong(&path.key("chain"), error.to_string());
    None
}

/// The names of `certificate_folder`.
pub(super) fn catalogue(
    host: &raw::Host,
    raw: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<Catalogue>> {
    let path = path.key("certificate_folder");
    let folder = context.shared.base.join(host.own.certificate_folder.as_ref()?);
    if raw.keys.isolate == Some(true) {
        let message =
            "its keys are read by this process, and not by that of keys.isolate: leave one of the two out";
        context.shared.findings.wrong(&path, message);
        return None;
    }
    let opened = context
        .running
        .catalogues
        .open(&folder)
        .map_err(|error| context.shared.findings.wrong(&path, error.to_string()));
    let catalogue = opened.ok()?;
    if catalogue.statistics().names == 0 {
        let folder = folder.display();
        context
            .shared
            .findings
            .warn(format!("{path}: {folder} has no NAME.pem yet; those that come are served at once"));
    }
    Some(catalogue)
}
