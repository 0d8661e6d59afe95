//! Certificate chains as sent to clients: server certificate first, each link checked, without the root.
//!
//! Signatures are not verified: names and key identifiers reveal mistakes with files, and clients verify the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use brisk_keys::{KeyAlgorithm, KeyId, pem_certificates};
use rustls_pki_types::CertificateDer;

use crate::certificate::{Certificate, Fingerprint};
use crate::error::{CertError, Warning};
use crate::x509::Facts;

/// Upper bound of the period before expiry in which a renewal is late.
const LATE: Duration = Duration::from_hours(14 * 24);

/// A server certificate and its intermediates, without the root.
#[derive(Debug, Clone)]
pub struct Chain {
    source: PathBuf,
    /// Never empty: the server certificate, then its issuer, and so on.
    links: Vec<Link>,
    algorithm: KeyAlgorithm,
    /// The root above the last link, if it is in the file.
    root: Option<CertificateDer<'static>>,
    /// Subjects of certificates in the file that are not part of the chain.
    unused: Vec<String>,
}

#[derive(Debug, Clone)]
struct Link {
    der: CertificateDer<'static>,
    facts: Facts,
}

impl Chain {
    /// Reads the PEM file `path`. Blocks on the file system.
    pub fn read(path: &Path) -> Result<Self, CertError> {
        let pem = fs::read(path).map_err(|source| CertError::Read { path: path.to_owned(), source })?;
        Self::from_pem(&pem, path)
    }

    /// Parses the certificates in `pem` and sorts them into a chain. `source` is the file name in errors.
    ///
    /// The server certificate is the one that is not a CA; a single certificate may be either. A root and duplicates
    /// are dropped.
    pub fn from_pem(pem: &[u8], source: &Path) -> Result<Self, CertError> {
        let mut pool = parse(pem, source)?;
        let leaf = pool.remove(find_leaf(&pool, source)?);
        let algorithm = leaf
            .facts
            .algorithm
            .clone()
            .map_err(|algorithm| CertError::UnsupportedKey { path: source.to_owned(), algorithm })?;
        let (links, root) = climb(leaf, &mut pool, source)?;
        let unused = pool
            .into_iter()
            // No warning for a root: clients have their own roots, so its omission changes nothing for
            // them.
            .filter(|link| !link.facts.self_issued())
            .map(|link| link.facts.subject)
            .collect();
        Ok(Self { source: source.to_owned(), links, algorithm, root, unused })
    }

    /// The certificates, server certificate first.
    pub fn certificates(&self) -> impl ExactSizeIterator<Item = &CertificateDer<'static>> {
        self.links.iter().map(|link| &link.der)
    }

    /// The server certificate's subject as text.
    pub fn subject(&self) -> &str {
        &self.leaf().subject
    }

    /// The server certificate's subject alternative names: host names in lower case, addresses as text. The common name
    /// is not included, because clients ignore it (RFC 9525 section 2).
    pub fn names(&self) -> &[String] {
        &self.leaf().names
    }

    /// Start of the server certificate's validity.
    pub fn not_before(&self) -> SystemTime {
        self.leaf().not_before
    }

    /// End of the server certificate's validity.
    pub fn not_after(&self) -> SystemTime {
        self.leaf().not_after
    }

    /// Whether the server certificate is expired at `now`.
    pub fn expired(&self, now: SystemTime) -> bool {
        now > self.not_after()
    }

    /// The server certificate's `SubjectPublicKeyInfo` in DER.
    pub fn public_key(&self) -> &[u8] {
        &self.leaf().public_key
    }

    /// Type of the server certificate's key.
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// Warnings about this chain at `now`, for operators.
    pub fn warnings(&self, now: SystemTime) -> Vec<Warning> {
        let mut warnings: Vec<_> =
            self.links.iter().filter_map(|link| self.validity(&link.facts, now)).collect();
        let leaf = self.leaf();
        if leaf.names.is_empty() {
            warnings.push(Warning::NoNames { path: self.source.clone(), subject: leaf.subject.clone() });
        }
        if let Some(address) = self.missing_issuer() {
            let (path, issuer) = (self.source.clone(), leaf.issuer.clone());
            warnings.push(Warning::NoIntermediate { path, issuer, address: address.to_owned() });
        }
        warnings.extend(self.links.iter().filter_map(|Link { facts, .. }| {
            let (subject, weakness) = (facts.subject.clone(), facts.weakness.clone()?);
            Some(Warning::Weak { path: self.source.clone(), subject, weakness })
        }));
        let unused = self.unused.iter();
        warnings.extend(
            unused.map(|subject| Warning::Unused { path: self.source.clone(), subject: subject.clone() }),
        );
        warnings
    }

    /// Address of the intermediate that the file lacks.
    // Roots sign no server certificates, so an issuer with a `caIssuers` address is an intermediate.
    fn missing_issuer(&self) -> Option<&str> {
        let (leaf, alone) = (self.leaf(), self.links.len() == 1 && self.root.is_none());
        let first = leaf.services.issuers.first().filter(|_| alone && !leaf.self_issued());
        first.map(String::as_str)
    }

    /// Converts the chain into a certificate with the private key `key`.
    pub(crate) fn into_certificate(self, key: KeyId) -> Certificate {
        let leaf = self.leaf();
        // The root counts as issuer too: OCSP responses for a certificate directly below a root are
        // verified with its key.
        let above = self.links.get(1).map(|link| &link.der).or(self.root.as_ref());
        Certificate {
            fingerprint: Fingerprint::of(&self.links[0].der),
            issuer: above.cloned(),
            is_complete: self.missing_issuer().is_none(),
            services: leaf.services.clone(),
            staple: None,
            key,
            algorithm: self.algorithm,
            names: leaf.names.clone(),
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            source: self.source.clone(),
            chain: self.links.into_iter().map(|link| link.der).collect(),
        }
    }

    /// Whether the server certificate of `issuer` issued this one, by names and key identifiers.
    pub(crate) fn issued_by(&self, issuer: &Self) -> bool {
        self.leaf().issued_by(issuer.leaf())
    }

    fn leaf(&self) -> &Facts {
        &self.links.first().expect("a chain has a server certificate").facts
    }

    fn validity(&self, facts: &Facts, now: SystemTime) -> Option<Warning> {
        let (path, subject) = (self.source.clone(), facts.subject.clone());
        if now > facts.not_after {
            return Some(Warning::Expired { path, subject, since: facts.not_after });
        }
        if now >= renewal_is_late(facts.not_before, facts.not_after) {
            return Some(Warning::ExpiresSoon { path, subject, at: facts.not_after });
        }
        (now < facts.not_before).then_some(Warning::NotYetValid { path, subject, until: facts.not_before })
    }
}

/// The time from which a renewal is late: the last sixth of the validity, at most two weeks.
fn renewal_is_late(not_before: SystemTime, not_after: SystemTime) -> SystemTime {
    let life = not_after.duration_since(not_before).unwrap_or_default();
    not_after.checked_sub((life / 6).min(LATE)).unwrap_or(not_after)
}

/// The certificates of a PEM file in the file's order, without duplicates; at least one.
fn parse(pem: &[u8], source: &Path) -> Result<Vec<Link>, CertError> {
    let mut links: Vec<Link> = Vec::new();
    let certificates =
        pem_certificates(pem).map_err(|reason| CertError::Pem { path: source.to_owned(), reason })?;
    for der in certificates {
        if links.iter().any(|link| link.der == der) {
            continue;
        }
        let number = links.len() + 1;
        let facts = Facts::read(&der).map_err(|reason| CertError::Malformed {
            path: source.to_owned(),
            number,
            reason,
        })?;
        links.push(Link { der, facts });
    }
    if links.is_empty() {
        let has_sections = pem.windows(11).any(|bytes| bytes == b"-----BEGIN ");
        let found = if has_sections { "a private key or something else" } else { "no PEM at all" };
        return Err(CertError::NoCertificate { path: source.to_owned(), found });
    }
    Ok(links)
}

/// Index of the server certificate in `pool`.
fn find_leaf(pool: &[Link], source: &Path) -> Result<usize, CertError> {
    let mut servers = pool.iter().enumerate().filter(|(_, link)| !link.facts.is_ca);
    match (servers.next(), servers.next()) {
        (Some((place, _)), None) => Ok(place),
        (Some((_, first)), Some((_, second))) => Err(CertError::SeveralLeaves {
            path: source.to_owned(),
            first: first.facts.subject.clone(),
            second: second.facts.subject.clone(),
        }),
        // `openssl req -x509` sets the CA flag: choose the certificate that issued none of the others.
        (None, _) => Ok(pool
            .iter()
            .position(|link| {
                !pool.iter().any(|other| other.der != link.der && other.facts.issued_by(&link.facts))
            })
            .unwrap_or(0)),
    }
}

/// Moves the issuers of `leaf` from `pool` into a chain. The root is returned separately.
fn climb(
    leaf: Link,
    pool: &mut Vec<Link>,
    source: &Path,
) -> Result<(Vec<Link>, Option<CertificateDer<'static>>), CertError> {
    let mut links = vec![leaf];
    loop {
        let last = &links.last().expect("begins with the server certificate").facts;
        if last.self_issued() {
            break;
        }
        // Prefer a cross-signed intermediate to a root of the same name: old clients lack the root.
        let fits = |link: &Link| last.issued_by(&link.facts);
        let place = pool
            .iter()
            .position(|link| fits(link) && !link.facts.self_issued())
            .or_else(|| pool.iter().position(fits));
        let Some(place) = place else {
            return end(links, pool, source).map(|links| (links, None));
        };
        // Each step takes a certificate out of the pool, so cross-signed certificates that name each other
        // end the loop.
        links.push(pool.remove(place));
    }
    // RFC 8446 section 4.4.2: the root may be omitted, because clients have it. A self-signed server certificate stays.
    let root = if links.len() > 1 { links.pop().map(|root| root.der) } else { None };
    Ok((links, root))
}

/// Accepts a chain that ends without a root, unless the file contains other certificates but not the server
/// certificate's issuer.
fn end(links: Vec<Link>, pool: &[Link], source: &Path) -> Result<Vec<Link>, CertError> {
    let last = &links.last().expect("begins with the server certificate").facts;
    match pool.first() {
        // A lone server certificate is accepted, because its intermediate can be fetched. Other
        // certificates without the issuer show that files were mixed up.
        Some(stranger) if links.len() == 1 => Err(CertError::BrokenChain {
            path: source.to_owned(),
            subject: last.subject.clone(),
            issuer: last.issuer.clone(),
            found: stranger.facts.subject.clone(),
        }),
        _ => Ok(links),
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::{LeafKey, TestCa};
    use rcgen::{CertificateParams, CustomExtension, IsCa, KeyPair, PKCS_ECDSA_P521_SHA512};

    use super::*;

    fn chain(pem: &str) -> Result<Chain, CertError> {
        Chain::from_pem(pem.as_bytes(), Path::new("chain.pem"))
    }

    fn refusal(pem: &str) -> String {
        chain(pem).unwrap_err().to_string()
    }

    #[test]
    fn a_damaged_file_is_refused_with_line_and_correction() {
        let ca = TestCa::new();
        let pem = ca.server(&["a.test"]).issue().chain_pem;
        assert!(
            refusal(&format!("\u{feff}{pem}"))
                .contains("chain.pem: damaged PEM: line 1 begins with a byte order mark")
        );
        let text = refusal(&pem.replacen('\n', "\n> ", 1));
        assert!(text.contains("line 2: not base64"), "{text}");
        let text = refusal(&pem.replace("-----BEGIN", "----BEGIN"));
        assert!(text.contains("line 1: BEGIN and END lines have five dashes"), "{text}");
    }

    fn self_signed(params: &CertificateParams) -> String {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn any_order_becomes_leaf_first_without_root() {
        let ca = TestCa::new();
        let leaf = ca.server(&["Example.com", "*.example.com", "::1"]).issue();
        let right = chain(&leaf.chain_pem).unwrap();
        let (one, two, three) = (leaf.certificate_pem, ca.intermediate_pem(), ca.root_pem());
        for order in [[&three, &two, &one], [&two, &one, &three], [&one, &three, &two]] {
            let pem = order.map(String::as_str).concat() + &one;
            let chain = chain(&pem).unwrap();
            assert!(chain.certificates().eq(right.certificates()));
            assert_eq!(chain.warnings(SystemTime::now()), []);
        }
        assert_eq!(right.certificates().len(), 2);
        assert_eq!(right.names(), ["example.com", "*.example.com", "::1"]);
    }

    #[test]
    fn the_kind_of_key_is_reported() {
        let ca = TestCa::new();
        for (key, algorithm) in [
            (LeafKey::EcdsaP256, KeyAlgorithm::EcdsaP256),
            (LeafKey::EcdsaP384, KeyAlgorithm::EcdsaP384),
            (LeafKey::Rsa2048, KeyAlgorithm::Rsa { bits: 2048 }),
            (LeafKey::Ed25519, KeyAlgorithm::Ed25519),
        ] {
            let leaf = ca.server(&["a.test"]).key(key).issue();
            assert_eq!(chain(&leaf.chain_pem).unwrap().algorithm(), algorithm);
        }
    }

    #[test]
    fn a_curve_without_verifiers_is_refused() {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512).unwrap();
        let params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        let text = refusal(&params.self_signed(&key).unwrap().pem());
        assert!(text.contains("chain.pem") && text.contains("use ECDSA P-256"), "{text}");
    }

    #[test]
    fn the_intermediate_of_another_ca_breaks_the_chain_though_it_has_the_same_name() {
        let leaf = TestCa::new().server(&["a.test"]).issue();
        let text = refusal(&(leaf.certificate_pem + &TestCa::new().intermediate_pem()));
        assert!(text.contains("breaks after \"CN=a.test\""), "{text}");
    }

    #[test]
    fn the_root_in_place_of_the_intermediate_breaks_the_chain() {
        let ca = TestCa::new();
        let leaf = ca.server(&["a.test"]).issue();
        let text = refusal(&(leaf.certificate_pem + &ca.root_pem()));
        assert!(text.contains("its issuer is \"CN=brisk test intermediate\""), "{text}");
    }

    #[test]
    fn two_server_certificates_are_refused_by_name() {
        let ca = TestCa::new();
        let (one, two) = (ca.server(&["a.test"]).issue(), ca.server(&["b.test"]).issue());
        let text = refusal(&(one.chain_pem + &two.chain_pem));
        assert!(text.contains("CN=a.test") && text.contains("CN=b.test"), "{text}");
    }

    #[test]
    fn a_key_file_in_place_of_a_chain_is_reported() {
        let leaf = TestCa::new().server(&["a.test"]).issue();
        assert!(refusal(&leaf.key_pem).contains("holds no certificate (a private key"));
        assert!(refusal("hello").contains("no PEM at all"));
    }

    #[test]
    fn damaged_files_are_refused() {
        let leaf = TestCa::new().server(&["a.test"]).issue();
        let cut = &leaf.chain_pem[..leaf.chain_pem.len() - 40];
        assert!(refusal(cut).contains("damaged PEM"), "{}", refusal(cut));
        let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let text = refusal(&(leaf.chain_pem.clone() + hollow));
        assert!(text.contains("certificate number 3 is not valid X.509"), "{text}");
    }

    #[test]
    fn a_self_signed_certificate_is_served_even_if_it_is_a_ca() {
        let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        assert_eq!(chain(&self_signed(&params)).unwrap().certificates().len(), 1);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        assert_eq!(chain(&self_signed(&params)).unwrap().certificates().len(), 1);
    }

    #[test]
    fn validity_is_a_warning() {
        let ca = TestCa::new();
        let now = SystemTime::now();
        let expired = chain(&ca.server(&["a.test"]).expired().issue().chain_pem).unwrap();
        assert!(expired.expired(now));
        assert!(matches!(expired.warnings(now)[..], [Warning::Expired { .. }]));
        let early = chain(&ca.server(&["a.test"]).not_yet_valid().issue().chain_pem).unwrap();
        assert!(!early.expired(now));
        assert!(matches!(early.warnings(now)[..], [Warning::NotYetValid { .. }]));
        // In twenty years, the intermediate is expired too.
        let later = now + Duration::from_hours(20 * 365 * 24);
        assert_eq!(early.warnings(later).len(), 2);
    }

    #[test]
    fn a_certificate_without_names_is_a_warning() {
        let warnings =
            chain(&self_signed(&CertificateParams::default())).unwrap().warnings(SystemTime::now());
        assert!(matches!(warnings[..], [Warning::NoNames { .. }]), "{warnings:?}");
    }

    #[test]
    fn a_missing_intermediate_is_a_warning_when_the_certificate_says_where_it_is() {
        // `AuthorityInfoAccess` with one `caIssuers` entry, http://a.
        let content = [
            &[0x30, 0x16, 0x30, 0x14, 0x06, 0x08][..],
            &[0x2b, 6, 1, 5, 5, 7, 0x30, 2, 0x86, 8],
            b"http://a",
        ];
        let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], content.concat())];
        let mut above = CertificateParams::default();
        above.distinguished_name.push(rcgen::DnType::CommonName, "an intermediate");
        let issuer = rcgen::Issuer::new(above, KeyPair::generate().unwrap());
        let pem = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().pem();
        let warnings = chain(&pem).unwrap().warnings(SystemTime::now());
        assert!(matches!(&warnings[..], [Warning::NoIntermediate { issuer, address, .. }]
                if issuer == "CN=an intermediate" && address == "http://a"));
    }

    #[test]
    fn an_intermediate_too_many_is_left_out_with_a_warning() {
        let leaf = TestCa::new().server(&["a.test"]).issue();
        let chain = chain(&(leaf.chain_pem + &TestCa::new().intermediate_pem())).unwrap();
        assert_eq!(chain.certificates().len(), 2);
        assert!(matches!(chain.warnings(SystemTime::now())[..], [Warning::Unused { .. }]));
    }
}
