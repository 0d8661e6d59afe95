//! `brisk probe --config`: collects the facts of a configuration and of this machine for [`brisk_audit::configuration`].

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use brisk_answer::settings::{EarlyDataPolicy, EarlyPath, HostSettings};
use brisk_audit::configuration::{self, CertificateFacts, Facts, HostFacts, KeyFile, Machine};
use brisk_certs::Certificate;
use brisk_config::Running;
use brisk_gateway::settings::GatewaySettings;
use brisk_keys::KeyAlgorithm;
use brisk_probe::terminal::Paint;
use brisk_tls::FirstFlight;
use brisk_tls::flight::TCP_FLIGHT;

/// Prints advice about a configuration. Exit code: 2 if the file is invalid.
pub(super) fn run(file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let resolved = match brisk_config::check(file, &Running::default()) {
        Ok(resolved) => resolved,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(2));
        }
    };
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    let facts = facts(file, &resolved.settings);
    let advice = configuration::judge(&facts, SystemTime::now());
    let text = if as_json {
        configuration::json(&facts, &advice)
    } else {
        let paint = Paint::of_stdout();
        paint.titled(&configuration::text(&facts, &advice, paint.width()))
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn facts(file: &Path, settings: &GatewaySettings) -> Facts {
    let listeners = settings.https.iter();
    Facts {
        file: file.to_owned(),
        hosts: settings.service.hosts.iter().map(host).collect(),
        // By their contents: `files` has certificates, keys and configurations alike.
        keys: settings.server.files.iter().filter_map(|file| key_file(file)).collect(),
        fast_open: listeners.clone().any(|listener| listener.fast_open.is_some()),
        backlog: listeners.map(|listener| listener.backlog.unsigned_abs()).max().unwrap_or(0),
        machine: Machine::this(),
    }
}

fn host(host: &HostSettings) -> HostFacts {
    let early = host.routes.iter().flat_map(|route| match &route.early_data {
        EarlyDataPolicy::Paths(paths) => paths.as_slice(),
        _ => &[],
    });
    let early = early.map(|path| match path {
        EarlyPath::Exact(path) => path.clone(),
        EarlyPath::Prefix(path) => format!("{path}*"),
    });
    HostFacts {
        name: host.tls.names.first().cloned().unwrap_or_default(),
        certificates: host
            .tls
            .certificates
            .iter()
            .map(|certificate| self::certificate(certificate))
            .collect(),
        has_acme: host.tls.obtained,
        hsts: host.headers.hsts.is_some(),
        early_paths: early.collect(),
    }
}

fn certificate(certificate: &Certificate) -> CertificateFacts {
    let parts: Vec<usize> = certificate.chain.iter().map(|der| der.len()).collect();
    CertificateFacts {
        file: certificate.source.clone(),
        algorithm: certificate.algorithm.to_string(),
        is_rsa: matches!(certificate.algorithm, KeyAlgorithm::Rsa { .. }),
        fingerprint: format!("{:?}", certificate.fingerprint),
        key: format!("{:?}", certificate.key),
        not_before: certificate.not_before,
        not_after: certificate.not_after,
        chain_bytes: parts.iter().sum(),
        flight: FirstFlight::of(certificate, certificate.staple.as_deref()).most(),
        window: TCP_FLIGHT,
        parts,
    }
}

/// The file and its permissions, if its first 64 KiB contain a private key in PEM; otherwise `None`.
fn key_file(file: &Path) -> Option<KeyFile> {
    const HEAD: u64 = 64 << 10;
    let opened = File::open(file).ok()?;
    let mode = opened.metadata().ok()?.permissions().mode();
    let mut text = Vec::new();
    opened.take(HEAD).read_to_end(&mut text).ok()?;
    // The end of the label, which PKCS#8, `RSA PRIVATE KEY` and `EC PRIVATE KEY` share.
    let has_key = text.windows(16).any(|window| window == b"PRIVATE KEY-----");
    has_key.then(|| KeyFile { file: file.to_owned(), mode })
}
