//! A CA for local development and its certificates for localhost, so that HTTPS works at the first start without files.
//!
//! Trust in this CA is limited to this machine: it may sign for localhost and the loopback addresses only (name
//! constraints, RFC 5280 section 4.2.1.10), and for servers only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_RSA_SHA256, PublicKeyData,
    RsaKeySize,
};
use rustix::fs::OFlags;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::chain::Chain;
use crate::error::CertError;

const CA_LIFETIME: Duration = Duration::from_hours(3650 * 24);
/// Browsers refuse server certificates with a validity of more than 398 days; two hours are left for [`BACKDATE`].
const SERVER_LIFETIME: Duration = Duration::from_hours(397 * 24 - 2);
/// Certificates with less than this left are issued again.
const RENEWAL: Duration = Duration::from_hours(30 * 24);
/// Validity begins this long ago, for clients whose clock is behind.
const BACKDATE: Duration = Duration::from_hours(1);

/// A CA for localhost, and the files of its two server certificates.
#[derive(Debug)]
pub struct DevelopmentCa {
    certificate: PathBuf,
    servers: [ServerFiles; 2],
    created: bool,
}

/// Files of a server certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// The chain, PEM.
    pub chain: PathBuf,
    /// The private key, PKCS#8 PEM, readable by its owner only.
    pub key: PathBuf,
}

impl DevelopmentCa {
    /// Subject alternative names of the server certificates.
    pub const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

    /// Opens or creates the CA in `folder`: `ca.pem`, `ca.key`, and `localhost-ecdsa` and `localhost-rsa`, each with
    /// `.pem` and `.key`. Server certificates that are invalid or expire within 30 days of `now` are issued again.
    ///
    /// Several processes may call this at once. Blocks on the file system; generating an RSA key takes about 100 ms.
    pub fn open_or_create(folder: &Path, now: SystemTime) -> Result<Self, CertError> {
        make_folder(folder)?;
        // Two first starts at once would create two CAs, and the user might trust the one that was
        // overwritten.
        let _lock = lock(folder)?;
        let certificate = folder.join("ca.pem");
        let (authority, created) = match Authority::open(folder, now)? {
            Some(authority) => (authority, false),
            None => (Authority::create(folder, now)?, true),
        };
        let servers =
            [ServerFiles::new(folder, "localhost-ecdsa"), ServerFiles::new(folder, "localhost-rsa")];
        for (files, kind) in servers.iter().zip([KeyKind::EcdsaP256, KeyKind::Rsa2048]) {
            if !files.serve(&authority, now) {
                authority.issue(files, kind, now)?;
            }
        }
        Ok(Self { certificate, servers, created })
    }

    /// Path of the CA certificate, for clients to trust.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The server certificates: ECDSA P-256, then RSA-2048.
    pub fn servers(&self) -> &[ServerFiles] {
        &self.servers
    }

    /// Whether the CA was created by this call, so that no client trusts it yet.
    pub fn created(&self) -> bool {
        self.created
    }
}

#[derive(Debug, Clone, Copy)]
enum KeyKind {
    EcdsaP256,
    Rsa2048,
}

impl ServerFiles {
    fn new(folder: &Path, stem: &str) -> Self {
        Self { chain: folder.join(format!("{stem}.pem")), key: folder.join(format!("{stem}.key")) }
    }

    /// Whether the files are valid, issued by `authority` and not due for renewal.
    fn serve(&self, authority: &Authority, now: SystemTime) -> bool {
        let Ok(chain) = Chain::read(&self.chain) else {
            return false;
        };
        let Ok(key) = read_key(&self.key) else {
            return false;
        };
        chain.issued_by(&authority.chain)
            && chain.names() == DevelopmentCa::NAMES
            && key.subject_public_key_info() == chain.public_key()
            && lasts(&chain, now)
    }
}

/// The CA with its private key.
struct Authority {
    chain: Chain,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Opens the CA; `None` if there is none or it expires soon.
    fn open(folder: &Path, now: SystemTime) -> Result<Option<Self>, CertError> {
        let (certificate, key_file) = (folder.join("ca.pem"), folder.join("ca.key"));
        // If one of the two is missing, opening fails below: a new CA would silently replace one that
        // clients trust.
        if !certificate.exists() && !key_file.exists() {
            return Ok(None);
        }
        let wrong = |path: &Path, reason: String| CertError::Development { path: path.to_owned(), reason };
        let chain = Chain::read(&certificate).map_err(|error| wrong(folder, error.to_string()))?;
        if !lasts(&chain, now) {
            return Ok(None);
        }
        let key = read_key(&key_file).map_err(|reason| wrong(&key_file, reason))?;
        if key.subject_public_key_info() != chain.public_key() {
            return Err(wrong(&key_file, "not the key of the CA in ca.pem".to_owned()));
        }
        let der = chain.certificates().next().expect("a chain has a certificate");
        let issuer =
            Issuer::from_ca_cert_der(der, key).map_err(|error| wrong(&certificate, error.to_string()))?;
        Ok(Some(Self { chain, issuer }))
    }

    fn create(folder: &Path, now: SystemTime) -> Result<Self, CertError> {
        let failed = |source| CertError::Issue { subject: "brisk development CA".to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let params = authority_params(&key, now);
        let pem = params.self_signed(&key).map_err(failed)?.pem();
        let (certificate, key_file) = (folder.join("ca.pem"), folder.join("ca.key"));
        // The certificate is written last, so that a reader of the new certificate finds its key.
        write_file(&key_file, &Zeroizing::new(key.serialize_pem()), 0o600)?;
        write_file(&certificate, &pem, 0o644)?;
        let chain = Chain::from_pem(pem.as_bytes(), &certificate)?;
        Ok(Self { chain, issuer: Issuer::new(params, key) })
    }

    fn issue(&self, files: &ServerFiles, kind: KeyKind, now: SystemTime) -> Result<(), CertError> {
        let failed = |source| CertError::Issue { subject: "localhost".to_owned(), source };
        let key = match kind {
            KeyKind::EcdsaP256 => KeyPair::generate(),
            KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        }
        .map_err(failed)?;
        let params = server_params(now).map_err(failed)?;
        let pem = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        write_file(&files.key, &Zeroizing::new(key.serialize_pem()), 0o600)?;
        write_file(&files.chain, &pem, 0o644)
    }
}

fn authority_params(key: &KeyPair, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    // The number distinguishes development CAs in a client's list of trusted CAs.
    let id = params.key_identifier(key);
    let mark = u32::from_be_bytes([0, id[0], id[1], id[2]]);
    params.distinguished_name = distinguished_name(&format!("brisk development CA {mark:06x}"));
    // RFC 5280 section 4.2.1.9: a path length of 0 permits no further CAs.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName("localhost".to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([127, 0, 0, 0], 8)),
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(
                std::net::Ipv6Addr::LOCALHOST.octets(),
                128,
            )),
        ],
        excluded_subtrees: Vec::new(),
    });
    params.not_before = OffsetDateTime::from(now - BACKDATE);
    params.not_after = OffsetDateTime::from(now + CA_LIFETIME);
    params
}

fn server_params(now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(DevelopmentCa::NAMES.map(str::to_owned))?;
    params.distinguished_name = distinguished_name("localhost");
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    // No `keyEncipherment`, also for RSA: brisk has no suite with RSA key exchange.
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_before = OffsetDateTime::from(now - BACKDATE);
    params.not_after = OffsetDateTime::from(now + SERVER_LIFETIME);
    Ok(params)
}

fn distinguished_name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "brisk development");
    name.push(DnType::CommonName, common);
    name
}

fn lasts(chain: &Chain, now: SystemTime) -> bool {
    chain.not_before() <= now && now + RENEWAL <= chain.not_after()
}

pub(crate) fn read_key(path: &Path) -> Result<KeyPair, String> {
    let pem = Zeroizing::new(fs::read_to_string(path).map_err(|error| error.to_string())?);
    KeyPair::from_pem(&pem).map_err(|error| error.to_string())
}

pub(crate) fn make_folder(folder: &Path) -> Result<(), CertError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| CertError::Write { path: folder.to_owned(), source })
}

/// Locks `folder` against other processes until the file is dropped.
fn lock(folder: &Path) -> Result<File, CertError> {
    let path = folder.join(".lock");
    // In a folder that others can write to, `.lock` may be a link to another file, which must not be followed or
    // truncated.
    let mut options = OpenOptions::new();
    options
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let open = options.open(&path);
    let locked = open.and_then(|file| file.lock().map(|()| file));
    locked.map_err(|source| CertError::Write { path, source })
}

/// Replaces `path` atomically, so that no reader sees a partial file.
pub(crate) fn write_file(path: &Path, contents: &str, mode: u32) -> Result<(), CertError> {
    let fresh = path.with_added_extension("new");
    let write = || -> io::Result<()> {
        // A file left over from a crash may have wider permissions.
        if let Err(error) = fs::remove_file(&fresh)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&fresh)?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(|source| CertError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::process::Output;

    use brisk_testkit::process::command;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn open(folder: &Path) -> DevelopmentCa {
        DevelopmentCa::open_or_create(folder, SystemTime::now()).unwrap()
    }

    fn openssl_verify(ca: &Path, chain: &Path, more: &[&str]) -> Output {
        let mut command = command("openssl");
        command.args(["verify", "-x509_strict", "-purpose", "sslserver"]).args(more);
        command.arg("-CAfile").arg(ca).arg(chain).output().unwrap()
    }

    #[test]
    fn clients_that_trust_the_ca_accept_both_certificates_for_every_name() {
        let folder = folder();
        let ca = open(folder.path());
        assert!(ca.created());
        for files in ca.servers() {
            for name in
                [["-verify_hostname", "localhost"], ["-verify_ip", "127.0.0.1"], ["-verify_ip", "::1"]]
            {
                let output = openssl_verify(ca.certificate(), &files.chain, &name);
                assert!(output.status.success(), "{name:?} {output:?}");
            }
        }
    }

    #[test]
    fn server_certificates_last_no_longer_than_clients_accept() {
        let folder = folder();
        let ca = open(folder.path());
        for files in ca.servers() {
            let chain = Chain::read(&files.chain).unwrap();
            let lifetime = chain.not_after().duration_since(chain.not_before()).unwrap();
            assert!(lifetime <= 397 * DAY, "{lifetime:?}");
            assert_eq!(chain.warnings(SystemTime::now()), []);
        }
    }

    #[test]
    fn the_ca_cannot_certify_other_names() {
        let folder = folder();
        let ca = open(folder.path());
        let now = SystemTime::now();
        let authority = Authority::open(folder.path(), now).unwrap().unwrap();
        for name in ["example.com", "10.0.0.1", "2001:db8::1"] {
            let mut params = server_params(now).unwrap();
            params.subject_alt_names = CertificateParams::new([name.to_owned()]).unwrap().subject_alt_names;
            let key = KeyPair::generate().unwrap();
            let path = folder.path().join("stranger.pem");
            fs::write(&path, params.signed_by(&key, &authority.issuer).unwrap().pem()).unwrap();
            let output = openssl_verify(ca.certificate(), &path, &[]);
            assert!(
                String::from_utf8_lossy(&output.stderr).contains("permitted subtree violation"),
                "{output:?}"
            );
        }
    }

    #[test]
    fn only_the_owner_reads_keys() {
        let folder = folder();
        let inner = folder.path().join("state/development");
        let ca = open(&inner);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&inner), 0o700);
        assert_eq!(mode(&inner.join("ca.key")), 0o600);
        for files in ca.servers() {
            assert_eq!(mode(&files.key), 0o600);
        }
    }

    #[test]
    fn a_lock_that_leads_elsewhere_is_refused_and_one_with_contents_keeps_them() {
        let folder = folder();
        let (victim, lock) = (folder.path().join("victim"), folder.path().join(".lock"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &lock).unwrap();
        let error = DevelopmentCa::open_or_create(folder.path(), SystemTime::now()).unwrap_err();
        assert!(error.to_string().contains(".lock"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(&lock).unwrap();
        fs::hard_link(&victim, &lock).unwrap();
        open(folder.path());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn opening_again_changes_nothing() {
        let folder = folder();
        let read = |ca: &DevelopmentCa| {
            let files = ca.servers().iter().flat_map(|files| [&files.chain, &files.key]);
            files.map(|file| fs::read(file).unwrap()).collect::<Vec<_>>()
        };
        let before = read(&open(folder.path()));
        let again = open(folder.path());
        assert!(!again.created());
        assert_eq!(read(&again), before);
    }

    #[test]
    fn a_certificate_near_its_end_is_issued_anew_by_the_same_ca() {
        let folder = folder();
        let first = open(folder.path());
        let old = fs::read(&first.servers()[0].chain).unwrap();
        let later = SystemTime::now() + 380 * DAY;
        let second = DevelopmentCa::open_or_create(folder.path(), later).unwrap();
        assert!(!second.created());
        assert_ne!(fs::read(&second.servers()[0].chain).unwrap(), old);
        let later = later.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string();
        let output = openssl_verify(second.certificate(), &second.servers()[0].chain, &["-attime", &later]);
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn a_ca_near_its_end_is_replaced_with_everything_below_it() {
        let folder = folder();
        open(folder.path());
        let later = SystemTime::now() + CA_LIFETIME;
        let ca = DevelopmentCa::open_or_create(folder.path(), later).unwrap();
        assert!(ca.created());
        let authority = Chain::read(ca.certificate()).unwrap();
        for files in ca.servers() {
            assert!(Chain::read(&files.chain).unwrap().issued_by(&authority));
        }
    }

    #[test]
    fn missing_damaged_and_mismatched_server_files_are_mended() {
        let folder = folder();
        let ca = open(folder.path());
        let [ecdsa, rsa] = ca.servers() else { panic!("two") };
        fs::remove_file(&ecdsa.key).unwrap();
        fs::write(&rsa.chain, "damaged").unwrap();
        let mended = open(folder.path());
        for files in mended.servers() {
            let mut keystore = brisk_keys::Keystore::new();
            crate::load(&files.chain, &files.key, &mut keystore, SystemTime::now()).unwrap();
        }
    }

    #[test]
    fn a_damaged_ca_is_an_error_not_a_new_ca() {
        let folder = folder();
        open(folder.path());
        fs::write(folder.path().join("ca.key"), "damaged").unwrap();
        let error = DevelopmentCa::open_or_create(folder.path(), SystemTime::now()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("ca.key") && text.contains("remove the folder"), "{text}");
    }

    #[test]
    fn processes_that_start_at_once_share_one_ca() {
        let folder = folder();
        let created = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| open(folder.path()).created())).collect();
            starts.into_iter().filter_map(|start| start.join().unwrap().then_some(())).count()
        });
        assert_eq!(created, 1);
    }
}
