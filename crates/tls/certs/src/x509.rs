//! The properties of an X.509 certificate, extracted from its DER once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_keys::KeyAlgorithm;
use brisk_wire::uri::without_scheme;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::extensions::{
    AuthorityInfoAccess, CRLDistributionPoints, DistributionPointName, GeneralName, ParsedExtension,
};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_MD5WITHRSAENC,
    OID_PKCS1_RSAENCRYPTION, OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Properties of a certificate.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Subject for display: `C=US, O=Example, CN=example.com`.
    pub(crate) subject: String,
    /// Issuer for display.
    pub(crate) issuer: String,
    subject_der: Vec<u8>,
    issuer_der: Vec<u8>,
    key_id: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
    /// Whether basic constraints permit the certificate to sign others.
    pub(crate) is_ca: bool,
    /// Addresses and requirements stated in its extensions.
    pub(crate) services: Services,
    /// Reason to distrust it: `RSA of 1024 bits`, `signed with SHA-1`.
    pub(crate) weakness: Option<String>,
    /// Subject alternative names; host names are in lower case.
    pub(crate) names: Vec<String>,
    /// Start of the validity.
    pub(crate) not_before: SystemTime,
    /// End of the validity.
    pub(crate) not_after: SystemTime,
    /// `SubjectPublicKeyInfo` in DER.
    pub(crate) public_key: Vec<u8>,
    /// Type of the key; the error is the name of an unsupported type.
    pub(crate) algorithm: Result<KeyAlgorithm, String>,
}

impl Facts {
    /// Parses `der`. The error is a message for the operator.
    pub(crate) fn read(der: &[u8]) -> Result<Self, String> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        // The bytes are sent to clients as they are, and clients refuse a certificate with trailing bytes.
        if !rest.is_empty() {
            return Err(format!("{} bytes follow the certificate", rest.len()));
        }
        let mut facts = Self {
            subject: describe(&certificate),
            issuer: certificate.issuer().to_string(),
            subject_der: certificate.subject().as_raw().to_vec(),
            issuer_der: certificate.issuer().as_raw().to_vec(),
            key_id: None,
            authority_key_id: None,
            is_ca: certificate.is_ca(),
            services: Services {
                serial: certificate.tbs_certificate.raw_serial().to_vec(),
                ..Services::default()
            },
            weakness: weakness(&certificate),
            names: Vec::new(),
            not_before: system_time(certificate.validity().not_before),
            not_after: system_time(certificate.validity().not_after),
            public_key: certificate.public_key().raw.to_vec(),
            algorithm: algorithm(certificate.public_key()),
        };
        for extension in certificate.extensions() {
            facts.note(extension.parsed_extension());
            facts.services.must_staple |= extension.oid == TLS_FEATURE && asks_for_staple(extension.value);
        }
        Ok(facts)
    }

    /// Whether subject and issuer are the same: a root, or a self-signed server certificate.
    pub(crate) fn self_issued(&self) -> bool {
        // RFC 5280 section 3.2: a self-issued certificate is not always self-signed. Different key
        // identifiers mark the link between two keys of one CA, which is no root.
        self.subject_der == self.issuer_der
            && (self.key_id.is_none()
                || self.authority_key_id.is_none()
                || self.key_id == self.authority_key_id)
    }

    /// Whether `issuer` issued this certificate, by names and key identifiers.
    // RFC 5280 section 4.2.1.1: the authority key identifier distinguishes several keys of one issuer.
    pub(crate) fn issued_by(&self, issuer: &Self) -> bool {
        let keys_agree = match (&self.authority_key_id, &issuer.key_id) {
            (Some(named), Some(own)) => named == own,
            _ => true,
        };
        self.issuer_der == issuer.subject_der && keys_agree
    }

    fn note(&mut self, extension: &ParsedExtension<'_>) {
        match extension {
            ParsedExtension::SubjectKeyIdentifier(id) => self.key_id = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(authority) => {
                self.authority_key_id = authority.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            ParsedExtension::SubjectAlternativeName(alternatives) => {
                self.names = alternatives.general_names.iter().filter_map(name).collect();
            }
            ParsedExtension::AuthorityInfoAccess(access) => {
                self.services.issuers = addresses(access, &CA_ISSUERS);
                self.services.responders = addresses(access, &OCSP);
            }
            ParsedExtension::CRLDistributionPoints(points) => self.services.lists = lists(points),
            _ => {}
        }
    }
}

/// Addresses and requirements in the extensions of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// HTTP addresses of the issuer's certificate (`caIssuers`).
    pub issuers: Vec<String>,
    /// HTTP addresses of OCSP responders.
    pub responders: Vec<String>,
    /// HTTP addresses of the revocation list (CRL distribution points).
    pub lists: Vec<String>,
    /// Whether clients refuse the certificate without a staple (RFC 7633).
    pub must_staple: bool,
    /// Contents of the serial number's DER INTEGER.
    pub serial: Vec<u8>,
}

/// `id-ad-caIssuers` (RFC 5280 section 4.2.2.1).
const CA_ISSUERS: Oid<'static> = x509_parser::der_parser::oid!(1.3.6.1.5.5.7.48.2);
/// `id-ad-ocsp` (RFC 5280 section 4.2.2.1).
const OCSP: Oid<'static> = x509_parser::der_parser::oid!(1.3.6.1.5.5.7.48.1);
/// `id-pe-tlsfeature` (RFC 7633 section 6).
const TLS_FEATURE: Oid<'static> = x509_parser::der_parser::oid!(1.3.6.1.5.5.7.1.24);

fn addresses(access: &AuthorityInfoAccess<'_>, method: &Oid<'_>) -> Vec<String> {
    let entries = access.accessdescs.iter().filter(|entry| entry.access_method == *method);
    entries.filter_map(|entry| address_of(&entry.access_location)).collect()
}

fn lists(points: &CRLDistributionPoints<'_>) -> Vec<String> {
    // Indirect lists and lists for some reasons are skipped, since they do not determine the status alone.
    let whole = points.iter().filter(|point| point.crl_issuer.is_none() && point.reasons.is_none());
    let names = whole.filter_map(|point| match &point.distribution_point {
        Some(DistributionPointName::FullName(names)) => Some(names),
        _ => None,
    });
    names.flatten().filter_map(address_of).collect()
}

/// Returns an HTTP address; other schemes, such as LDAP, are not supported.
fn address_of(name: &GeneralName<'_>) -> Option<String> {
    let GeneralName::URI(address) = name else { return None };
    let is_http = ["http://", "https://"].iter().any(|scheme| without_scheme(address, scheme).is_some());
    (is_http && address.len() <= 2048).then(|| (*address).to_owned())
}

/// Whether the TLS features (RFC 7633 section 4) include `status_request`, 5.
fn asks_for_staple(value: &[u8]) -> bool {
    let Ok(mut features) = crate::der::sequence(value) else { return false };
    std::iter::from_fn(|| features.next().ok()).any(|feature| feature.content == [5])
}

fn weakness(certificate: &X509Certificate<'_>) -> Option<String> {
    let signed = &certificate.signature_algorithm.algorithm;
    if let Ok(PublicKey::RSA(key)) = certificate.public_key().parsed()
        && key.key_size() < 2048
    {
        return Some(format!("its key is RSA of {} bits", key.key_size()));
    }
    // No client verifies the signature of a root.
    if certificate.subject().as_raw() == certificate.issuer().as_raw() {
        return None;
    }
    let sha1 = [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(signed) || *signed == ECDSA_SHA1;
    let hash = if sha1 { "SHA-1" } else { (*signed == OID_PKCS1_MD5WITHRSAENC).then_some("MD5")? };
    Some(format!("it is signed with {hash}"))
}

pub(crate) const ML_DSA_44: Oid<'static> = x509_parser::der_parser::oid!(2.16.840.1.101.3.4.3.17);
pub(crate) const ML_DSA_65: Oid<'static> = x509_parser::der_parser::oid!(2.16.840.1.101.3.4.3.18);
pub(crate) const ML_DSA_87: Oid<'static> = x509_parser::der_parser::oid!(2.16.840.1.101.3.4.3.19);

/// `ecdsa-with-SHA1` (RFC 3279 section 2.2.3).
const ECDSA_SHA1: Oid<'static> = x509_parser::der_parser::oid!(1.2.840.10045.4.1);

/// The subject, or the first alternative name if the subject is empty.
fn describe(certificate: &X509Certificate<'_>) -> String {
    let subject = certificate.subject().to_string();
    if !subject.is_empty() {
        return subject;
    }
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    alternatives
        .and_then(|found| found.value.general_names.iter().find_map(name))
        .unwrap_or_else(|| format!("serial number {}", certificate.raw_serial_as_string()))
}

fn name(general: &GeneralName<'_>) -> Option<String> {
    match general {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

fn algorithm(key: &SubjectPublicKeyInfo<'_>) -> Result<KeyAlgorithm, String> {
    let kind = &key.algorithm.algorithm;
    if *kind == OID_SIG_ED25519 {
        return Ok(KeyAlgorithm::Ed25519);
    }
    if *kind == OID_PKCS1_RSAENCRYPTION {
        return rsa(key);
    }
    // RFC 9881 section 2.
    for (oid, algorithm) in [
        (ML_DSA_44, KeyAlgorithm::MlDsa44),
        (ML_DSA_65, KeyAlgorithm::MlDsa65),
        (ML_DSA_87, KeyAlgorithm::MlDsa87),
    ] {
        if *kind == oid {
            return Ok(algorithm);
        }
    }
    if *kind != OID_KEY_TYPE_EC_PUBLIC_KEY {
        return Err(format!("of the kind {kind}"));
    }
    let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    match curve {
        Some(curve) if curve == OID_EC_P256 => Ok(KeyAlgorithm::EcdsaP256),
        Some(curve) if curve == OID_NIST_EC_P384 => Ok(KeyAlgorithm::EcdsaP384),
        Some(curve) => Err(format!("ECDSA on the curve {curve}")),
        None => Err("ECDSA on a curve without a name".to_owned()),
    }
}

fn rsa(key: &SubjectPublicKeyInfo<'_>) -> Result<KeyAlgorithm, String> {
    match key.parsed() {
        Ok(PublicKey::RSA(public)) => match public.key_size() {
            bits @ 2048..=8192 => Ok(KeyAlgorithm::Rsa { bits: bits as u16 }),
            bits => Err(format!("RSA of {bits} bits")),
        },
        _ => Err("RSA that cannot be read".to_owned()),
    }
}

pub(crate) fn system_time(at: ASN1Time) -> SystemTime {
    let seconds = Duration::from_secs(at.timestamp().unsigned_abs());
    let time =
        if at.timestamp() < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    time.unwrap_or(UNIX_EPOCH)
}

/// The subject of a certificate as text (`CN=someone, O=somewhere`); `None` if it cannot be parsed.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.subject().to_string())
}

/// The issuer of a certificate as text; `None` if it cannot be parsed.
pub fn issuer(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.issuer().to_string())
}

/// The end of a certificate's validity; `None` if it cannot be parsed.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(system_time(certificate.validity().not_after))
}

/// The first common name in a certificate's subject; `None` if it has none or cannot be parsed.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}
