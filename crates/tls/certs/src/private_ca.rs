//! A CA for a closed group of programs, such as key servers and their gateways.
//!
//! Its certificates are valid as long as the CA. They are not revoked: peers authorise clients by name, and a name that
//! is removed from a peer's configuration is refused there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::chain::Chain;
use crate::development::{make_folder, read_key, write_file};
use crate::error::CertError;

/// Validity of the CA: ten years.
const LIFETIME: Duration = Duration::from_hours(3650 * 24);
/// Validity begins this long ago, for peers whose clock is behind.
const BACKDATE: Duration = Duration::from_hours(1);

/// The CA in a folder with the files `ca.pem` and `ca.key`.
pub struct PrivateCa {
    certificate: PathBuf,
    not_after: SystemTime,
    issuer: Issuer<'static, KeyPair>,
}

/// Purpose of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A server with these host names and addresses; the first is its common name.
    Server(Vec<String>),
    /// A client with this common name.
    Client(String),
}

/// Files of an issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, PEM.
    pub chain: PathBuf,
    /// Its private key, PKCS#8 PEM, readable by its owner only.
    pub key: PathBuf,
}

impl PrivateCa {
    /// Creates a CA in `folder`, and the folder if it does not exist. Blocks on the file system.
    ///
    /// # Errors
    ///
    /// An existing CA, which is not changed.
    pub fn create(folder: &Path, name: &str, now: SystemTime) -> Result<Self, CertError> {
        make_folder(folder)?;
        let (certificate, key_file) = files(folder);
        // `write_file` would replace the files, and with the key every issued certificate would lose its
        // CA.
        for path in [&certificate, &key_file] {
            refuse_existing(path)?;
        }
        let failed = |source| CertError::Issue { subject: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let not_after = now + LIFETIME;
        let mut params = params(name, now, not_after);
        // RFC 5280 section 4.2.1.9: a path length of 0 permits no further CAs.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).map_err(failed)?.pem();
        // The certificate is written last, so that a reader of the certificate finds its key.
        write_file(&key_file, &Zeroizing::new(key.serialize_pem()), 0o600)?;
        write_file(&certificate, &pem, 0o644)?;
        Ok(Self { certificate, not_after, issuer: Issuer::new(params, key) })
    }

    /// Opens the CA in `folder`. Blocks on the file system.
    pub fn open(folder: &Path) -> Result<Self, CertError> {
        let (certificate, key_file) = files(folder);
        let wrong = |path: &Path, reason: String| CertError::Authority { path: path.to_owned(), reason };
        let chain = Chain::read(&certificate)?;
        let key = read_key(&key_file).map_err(|reason| wrong(&key_file, reason))?;
        if key.subject_public_key_info() != chain.public_key() {
            return Err(wrong(&key_file, "it is not the key of the certificate in ca.pem".to_owned()));
        }
        let der = chain.certificates().next().expect("a chain has a certificate");
        let issuer =
            Issuer::from_ca_cert_der(der, key).map_err(|error| wrong(&certificate, error.to_string()))?;
        Ok(Self { not_after: chain.not_after(), certificate, issuer })
    }

    /// Path of the CA certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Checks whether [`issue`](Self::issue) could create its files, as far as possible without the CA. Writes nothing.
    pub fn check(stem: &Path, purpose: &Purpose) -> Result<(), CertError> {
        refuse_existing(&stem.with_added_extension("pem"))?;
        refuse_existing(&stem.with_added_extension("key"))?;
        let failed = |source| CertError::Issue { subject: purpose.name().to_owned(), source };
        purpose.names().map_err(failed)?;
        Ok(())
    }

    /// Issues a certificate with a new ECDSA key: `STEM.pem` and `STEM.key`. It is valid as long as the CA. Blocks on
    /// the file system.
    ///
    /// # Errors
    ///
    /// Existing files, which are not changed.
    pub fn issue(&self, stem: &Path, purpose: &Purpose, now: SystemTime) -> Result<Issued, CertError> {
        let files = Issued { chain: stem.with_added_extension("pem"), key: stem.with_added_extension("key") };
        for path in [&files.chain, &files.key] {
            refuse_existing(path)?;
        }
        if let Some(folder) = stem.parent() {
            make_folder(folder)?;
        }
        let name = purpose.name();
        let failed = |source| CertError::Issue { subject: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let params = self.params(purpose, now).map_err(failed)?;
        let pem = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        write_file(&files.key, &Zeroizing::new(key.serialize_pem()), 0o600)?;
        write_file(&files.chain, &pem, 0o644)?;
        Ok(files)
    }

    fn params(&self, purpose: &Purpose, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
        let mut params = params(purpose.name(), now, self.not_after);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.subject_alt_names = purpose.names()?;
        match purpose {
            Purpose::Server(_) => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            Purpose::Client(_) => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        }
        Ok(params)
    }
}

impl fmt::Debug for PrivateCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateCa").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Purpose {
    /// Subject alternative names.
    fn names(&self) -> Result<Vec<SanType>, rcgen::Error> {
        match self {
            Self::Server(names) => Ok(CertificateParams::new(names.clone())?.subject_alt_names),
            // Peers identify clients by the common name, see `Identity::is_named`.
            Self::Client(_) => Ok(Vec::new()),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Server(names) => names.first().map_or("server", String::as_str),
            Self::Client(name) => name,
        }
    }
}

fn files(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("ca.pem"), folder.join("ca.key"))
}

fn refuse_existing(path: &Path) -> Result<(), CertError> {
    if path.exists() { Err(CertError::Exists { path: path.to_owned() }) } else { Ok(()) }
}

fn params(name: &str, now: SystemTime, not_after: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params.not_before = OffsetDateTime::from(now - BACKDATE);
    params.not_after = OffsetDateTime::from(not_after);
    params
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use brisk_testkit::process::{TIMEOUT, command, run};

    use super::*;
    use crate::x509::common_name;

    fn verified(ca: &PrivateCa, purpose: &str, chain: &Path) -> bool {
        let mut openssl = command("openssl");
        openssl.args(["verify", "-x509_strict", "-purpose", purpose]);
        let output = run(openssl.arg("-CAfile").arg(ca.certificate()).arg(chain), b"", TIMEOUT);
        output.status.success()
    }

    #[test]
    fn servers_and_clients_of_the_ca_are_what_they_are_for_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let ca = PrivateCa::create(folder.path(), "key servers", now).unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let server = ca.issue(&folder.path().join("server"), &Purpose::Server(names.to_vec()), now).unwrap();
        let again = PrivateCa::open(folder.path()).unwrap();
        let stem = folder.path().join("clients/gateway.one");
        let client = again.issue(&stem, &Purpose::Client("gateway.one".to_owned()), now).unwrap();
        assert!(client.key.ends_with("clients/gateway.one.key"));
        assert_eq!(client.key.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(verified(&ca, "sslserver", &server.chain) && verified(&ca, "sslclient", &client.chain));
        assert!(!verified(&ca, "sslclient", &server.chain) && !verified(&ca, "sslserver", &client.chain));
        let chain = Chain::read(&client.chain).unwrap();
        assert_eq!(common_name(chain.certificates().next().unwrap()).as_deref(), Some("gateway.one"));
        assert_eq!(Chain::read(&server.chain).unwrap().names(), names);
    }

    #[test]
    fn nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let ca = PrivateCa::create(folder.path(), "key servers", now).unwrap();
        let stem = folder.path().join("a");
        let purpose = Purpose::Client("a".to_owned());
        ca.issue(&stem, &purpose, now).unwrap();
        for error in [
            PrivateCa::create(folder.path(), "another", now).unwrap_err(),
            ca.issue(&stem, &purpose, now).unwrap_err(),
        ] {
            assert!(error.to_string().contains("is there already"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_issued_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("a");
        let named = |name: &str| Purpose::Server(vec!["localhost".to_owned(), name.to_owned()]);
        PrivateCa::check(&stem, &named("keys.internal")).unwrap();
        PrivateCa::check(&stem, &named("k\u{e4}ys.internal")).unwrap_err();
        std::fs::write(stem.with_added_extension("key"), "").unwrap();
        let error = PrivateCa::check(&stem, &named("keys.internal")).unwrap_err();
        assert!(error.to_string().contains("is there already"), "{error}");
    }

    #[test]
    fn a_folder_without_a_ca_or_with_another_key_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(PrivateCa::open(folder.path()).unwrap_err().to_string().contains("ca.pem"));
        PrivateCa::create(folder.path(), "key servers", SystemTime::now()).unwrap();
        let other = KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(folder.path().join("ca.key"), other).unwrap();
        let error = PrivateCa::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("ca.key") && error.contains("not the key"), "{error}");
    }
}
