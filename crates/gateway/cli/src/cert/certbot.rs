//! Files of certbot: `live/NAME` with chain and key, and `renewal/NAME.conf` with the authority.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use brisk_acme::{IssuedCertificate, KeyKind};
use brisk_certs::Chain;
use brisk_keys::{KeyAlgorithm, Keystore};
use zeroize::Zeroizing;

/// Certificate that certbot has obtained.
#[derive(Debug)]
pub(crate) struct Certbot {
    pub(crate) folder: PathBuf,
    pub(crate) kind: KeyKind,
    pub(crate) ends: SystemTime,
    names: Vec<String>,
    chain: String,
    key: Zeroizing<String>,
    authority: String,
}

impl Certbot {
    /// Whether the certificate is valid for all of `names`.
    pub(crate) fn is_for(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// The certificate as an [`IssuedCertificate`], for the host with `names`.
    pub(crate) fn issued(&self, names: &[String]) -> IssuedCertificate {
        IssuedCertificate::imported(names, &self.authority, &self.chain, &self.key, SystemTime::now())
    }
}

/// Reads all certificates in certbot's folder. A certificate with unreadable or mismatched files is an error that names it.
pub(crate) fn certificates(folder: &Path) -> anyhow::Result<Vec<Certbot>> {
    let live = folder.join("live");
    let entries = fs::read_dir(&live).with_context(|| format!("cannot read {}", live.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.join("fullchain.pem").is_file() {
            found.push(read(folder, path)?);
        }
    }
    Ok(found)
}

fn read(certbot: &Path, folder: PathBuf) -> anyhow::Result<Certbot> {
    let (chain_file, key_file) = (folder.join("fullchain.pem"), folder.join("privkey.pem"));
    let text =
        |file: &Path| fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let (pem, key) = (
        text(&chain_file)?,
        brisk_secrets::read_text(&key_file).with_context(|| format!("cannot read {}", key_file.display()))?,
    );
    let chain = Chain::from_pem(pem.as_bytes(), &chain_file)?;
    let mut keys = Keystore::new();
    let id = keys.add_pem(key.as_bytes()).with_context(|| key_file.display().to_string())?;
    // certbot replaces its links one after the other: during a renewal, chain and key may be
    // those of two certificates.
    if keys.public_key(id) != Some(chain.public_key()) {
        anyhow::bail!("the key in {} does not fit {}", key_file.display(), chain_file.display());
    }
    let kind = match chain.algorithm() {
        KeyAlgorithm::Rsa { .. } => KeyKind::Rsa,
        _ => KeyKind::Ecdsa,
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let renewal =
        // A missing file is no error: without it the authority is unknown, and the
        // certificate is still valid.
        fs::read_to_string(certbot.join("renewal").join(format!("{name}.conf"))).unwrap_or_default();
    let (names, ends) = (chain.names().to_vec(), chain.not_after());
    Ok(Certbot { folder, kind, ends, names, chain: pem, key, authority: server(&renewal) })
}

/// Directory URL of the authority, from `server = URL` of a renewal file; empty without it.
fn server(renewal: &str) -> String {
    let mut values = renewal.lines().filter_map(|line| line.split_once('='));
    values.find(|(key, _)| key.trim() == "server").map(|(_, url)| url.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_read_from_the_renewal_file() {
        let file = "version = 2.1.0\narchive_dir = /x\n[renewalparams]\nserver = https://ca.test/directory\n";
        assert_eq!(server(file), "https://ca.test/directory");
        assert_eq!(server("server_name = x\n"), "");
    }
}
