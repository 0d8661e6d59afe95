//! A CA for one test: a root, an intermediate, and certificates of servers and clients as PEM files.

mod revocation;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CrlDistributionPoint, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_ML_DSA_44, PKCS_RSA_SHA256, PublicKeyData, RsaKeySize,
    SerialNumber, SubjectPublicKeyInfo,
};
use tempfile::TempDir;

pub use revocation::Crls;

const DAY: Duration = Duration::from_hours(24);

/// Key types of leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LeafKey {
    /// ECDSA on secp256r1.
    #[default]
    EcdsaP256,
    /// ECDSA on secp384r1.
    EcdsaP384,
    /// RSA of 2048 bits; generating it takes about 100 ms.
    Rsa2048,
    /// Ed25519.
    Ed25519,
    /// ML-DSA-44.
    MlDsa44,
}

/// A root and an intermediate. The files are deleted when it and all its [`Leaf`]s have been dropped.
#[derive(Debug)]
pub struct TestCa {
    folder: Arc<TempDir>,
    root: CertifiedIssuer<'static, KeyPair>,
    intermediate: CertifiedIssuer<'static, KeyPair>,
    issued: AtomicUsize,
}

impl TestCa {
    /// Creates a CA with new keys in a temporary folder.
    pub fn new() -> Self {
        Self::with_intermediate(issuer_params("brisk test intermediate"))
    }

    /// Creates a CA whose intermediate has this organisation.
    pub fn of_organization(name: &str) -> Self {
        let mut params = issuer_params("brisk test intermediate");
        params.distinguished_name.push(DnType::OrganizationName, name);
        Self::with_intermediate(params)
    }

    fn with_intermediate(params: CertificateParams) -> Self {
        let root =
            CertifiedIssuer::self_signed(issuer_params("brisk test root"), ecdsa_key()).expect("a root");
        let intermediate = CertifiedIssuer::signed_by(params, ecdsa_key(), &root).expect("an intermediate");
        let folder = TempDir::with_prefix("brisk-test-ca-").expect("a temporary folder");
        write(&folder.path().join("root.pem"), &root.pem());
        Self { folder: Arc::new(folder), root, intermediate, issued: AtomicUsize::new(0) }
    }

    /// The folder with all files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Path of the root certificate, for clients to trust (`curl --cacert`).
    pub fn root_file(&self) -> PathBuf {
        self.folder().join("root.pem")
    }

    /// The root certificate, PEM.
    pub fn root_pem(&self) -> String {
        self.root.pem()
    }

    /// The intermediate certificate, PEM.
    pub fn intermediate_pem(&self) -> String {
        self.intermediate.pem()
    }

    /// The intermediate certificate, DER.
    pub fn intermediate_der(&self) -> Vec<u8> {
        self.intermediate.der().to_vec()
    }

    /// Paths of the intermediate certificate and its key.
    pub fn intermediate_files(&self) -> (PathBuf, PathBuf) {
        let (certificate, key) =
            (self.folder().join("intermediate.crt"), self.folder().join("intermediate.key"));
        // The key is written last, so its presence shows both files.
        if !key.exists() {
            write(&certificate, &self.intermediate_pem());
            write(&key, &self.intermediate.key().serialize_pem());
        }
        (certificate, key)
    }

    /// A path in the folder that no other call returns.
    pub fn unique_file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{}-{name}", self.issued.fetch_add(1, Ordering::Relaxed)))
    }

    /// A certificate for signing OCSP responses on behalf of the intermediate.
    pub fn ocsp_signer(&self) -> Request<'_> {
        Request::new(self, CertificateParams::default(), "responder", ExtendedKeyUsagePurpose::OcspSigning)
    }

    /// A server certificate for `names` (host names, wildcards, addresses): ECDSA P-256, valid, issued by the
    /// intermediate, unless changed by the methods of [`Request`].
    pub fn server(&self, names: &[&str]) -> Request<'_> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let common = names.first().cloned().unwrap_or_default();
        let params = CertificateParams::new(names).expect("names for a certificate");
        Request::new(self, params, &common, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate with this common name.
    pub fn client(&self, common_name: &str) -> Request<'_> {
        Request::new(self, CertificateParams::default(), common_name, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

/// Builder of a certificate.
#[derive(Debug)]
#[must_use = "nothing is issued before `issue`"]
pub struct Request<'a> {
    ca: &'a TestCa,
    params: CertificateParams,
    key: LeafKey,
    direct: bool,
    /// Entries of `AuthorityInfoAccess`, DER.
    access: Vec<u8>,
}

impl<'a> Request<'a> {
    fn new(
        ca: &'a TestCa,
        mut params: CertificateParams,
        common: &str,
        purpose: ExtendedKeyUsagePurpose,
    ) -> Self {
        params.distinguished_name.push(DnType::CommonName, common);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let request = Self { ca, params, key: LeafKey::default(), direct: false, access: Vec::new() };
        let now = SystemTime::now();
        request.valid(now - DAY, now + 90 * DAY)
    }

    /// Sets the key type.
    pub fn key(mut self, key: LeafKey) -> Self {
        self.key = key;
        self
    }

    /// Sets the validity, to the second.
    pub fn valid(mut self, not_before: SystemTime, not_after: SystemTime) -> Self {
        self.params.not_before = not_before.into();
        self.params.not_after = not_after.into();
        self
    }

    /// Makes it expired since yesterday.
    pub fn expired(self) -> Self {
        let now = SystemTime::now();
        self.valid(now - 90 * DAY, now - DAY)
    }

    /// Makes it valid from tomorrow.
    pub fn not_yet_valid(self) -> Self {
        let now = SystemTime::now();
        self.valid(now + DAY, now + 90 * DAY)
    }

    /// Adds the address of an OCSP responder.
    pub fn ocsp_at(self, url: &str) -> Self {
        self.with_access(1, url)
    }

    /// Adds the address of the issuer's certificate.
    pub fn issuer_at(self, url: &str) -> Self {
        self.with_access(2, url)
    }

    /// Adds the address of the issuer's revocation list.
    pub fn list_at(mut self, url: &str) -> Self {
        let uris = vec![url.to_owned()];
        self.params.crl_distribution_points.push(CrlDistributionPoint { uris });
        self
    }

    /// Requires a staple (must-staple, RFC 7633).
    pub fn must_staple(mut self) -> Self {
        // A list with one number: 5 is the extension `status_request` (RFC 7633).
        let feature = vec![0x30, 3, 2, 1, 5];
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], feature);
        self.params.custom_extensions.push(extension);
        self
    }

    fn with_access(mut self, method: u8, url: &str) -> Self {
        let method = [6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, method];
        // All entries are collected for one extension, since a certificate may contain each extension only
        // once (RFC 5280 section 4.2).
        self.access.extend(element(0x30, &[&method, &element(0x86, &[url.as_bytes()])]));
        self
    }

    /// Has the root sign it, without an intermediate in the chain file.
    pub fn below_root(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Generates the key, signs the certificate and writes both files.
    pub fn issue(self) -> Leaf {
        let key = match self.key {
            LeafKey::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            LeafKey::EcdsaP384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            LeafKey::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            LeafKey::Ed25519 => KeyPair::generate_for(&PKCS_ED25519),
            LeafKey::MlDsa44 => KeyPair::generate_for(&PKCS_ML_DSA_44),
        }
        .expect("a key");
        let mut leaf = self.signed(&key);
        leaf.key_pem = key.serialize_pem();
        write(&leaf.key, &leaf.key_pem);
        fs::set_permissions(&leaf.key, Permissions::from_mode(0o600)).expect("a file of ours");
        leaf
    }

    /// Signs a certificate for an external key with the `SubjectPublicKeyInfo` `spki` (DER). Writes no key file.
    pub fn issue_for(self, spki: &[u8]) -> Leaf {
        let key = SubjectPublicKeyInfo::from_der(spki).expect("a public key");
        self.signed(&key)
    }

    /// Writes the chain file only.
    fn signed(mut self, key: &impl PublicKeyData) -> Leaf {
        let number = self.ca.issued.fetch_add(1, Ordering::Relaxed);
        // Revocation lists and OCSP identify a certificate by its serial number, so no two may be equal.
        let serial = number as u64 + 1000;
        if !self.access.is_empty() {
            // AuthorityInfoAccess (RFC 5280 section 4.2.2.1).
            let extension = CustomExtension::from_oid_content(
                &[1, 3, 6, 1, 5, 5, 7, 1, 1],
                element(0x30, &[&self.access]),
            );
            self.params.custom_extensions.push(extension);
        }
        self.params.serial_number = Some(SerialNumber::from(serial));
        let issuer: &Issuer<'_, KeyPair> = if self.direct { &self.ca.root } else { &self.ca.intermediate };
        let certificate_pem = self.params.signed_by(key, issuer).expect("a certificate").pem();
        let below = if self.direct { String::new() } else { self.ca.intermediate_pem() };
        let leaf = Leaf {
            serial,
            chain: self.ca.folder().join(format!("leaf-{number}.pem")),
            key: self.ca.folder().join(format!("leaf-{number}.key")),
            chain_pem: certificate_pem.clone() + &below,
            certificate_pem,
            key_pem: String::new(),
            _folder: Arc::clone(&self.ca.folder),
        };
        write(&leaf.chain, &leaf.chain_pem);
        leaf
    }
}

/// A certificate with its key, as files and as text.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Path of the chain file: the certificate, then the intermediate if there is one; no root.
    pub chain: PathBuf,
    /// Path of the key file, PKCS#8.
    pub key: PathBuf,
    /// Contents of the chain file.
    pub chain_pem: String,
    /// The certificate without the rest of the chain.
    pub certificate_pem: String,
    /// Contents of the key file.
    pub key_pem: String,
    serial: u64,
    _folder: Arc<TempDir>,
}

/// A DER element of fewer than 65,536 bytes.
fn element(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let content = contents.concat();
    let [high, low] = u16::try_from(content.len()).expect("it is short").to_be_bytes();
    let head: &[u8] = match (high, low) {
        (0, ..0x80) => &[tag, low],
        (0, _) => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [head, &content].concat()
}

impl Leaf {
    /// Serial number of the certificate.
    pub fn serial(&self) -> u64 {
        self.serial
    }
}

fn issuer_params(role: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, role);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let now = SystemTime::now();
    params.not_before = (now - 365 * DAY).into();
    params.not_after = (now + 3650 * DAY).into();
    params
}

fn ecdsa_key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn write(path: &Path, contents: &str) {
    fs::write(path, contents).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command;

    fn openssl_verifies(ca: &TestCa, leaf: &Leaf) -> bool {
        let intermediate = ca.folder().join("intermediate.pem");
        write(&intermediate, &ca.intermediate_pem());
        let output = command("openssl")
            .args(["verify", "-x509_strict", "-CAfile"])
            .arg(ca.root_file())
            .arg("-untrusted")
            .arg(intermediate)
            .arg(&leaf.chain)
            .output()
            .unwrap();
        output.status.success()
    }

    #[test]
    fn every_kind_of_leaf_verifies() {
        let ca = TestCa::new();
        for key in [LeafKey::EcdsaP256, LeafKey::EcdsaP384, LeafKey::Rsa2048, LeafKey::Ed25519] {
            let leaf = ca.server(&["example.com", "*.example.com", "127.0.0.1"]).key(key).issue();
            assert!(openssl_verifies(&ca, &leaf), "{key:?}");
        }
        assert!(openssl_verifies(&ca, &ca.client("alice").issue()));
        assert!(openssl_verifies(&ca, &ca.server(&["example.com"]).below_root().issue()));
    }

    #[test]
    fn leaves_outside_their_validity_do_not_verify() {
        let ca = TestCa::new();
        assert!(!openssl_verifies(&ca, &ca.server(&["example.com"]).expired().issue()));
        assert!(!openssl_verifies(&ca, &ca.server(&["example.com"]).not_yet_valid().issue()));
    }

    #[test]
    fn another_ca_is_not_trusted() {
        let (ours, theirs) = (TestCa::new(), TestCa::new());
        let leaf = theirs.server(&["example.com"]).issue();
        assert!(openssl_verifies(&theirs, &leaf));
        assert!(!openssl_verifies(&ours, &leaf));
    }
}
