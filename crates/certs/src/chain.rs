//! A certificate chain as it goes on the wire: server certificate first, every link checked, no root.
//!
//! Signatures are not verified here: names and key identifiers find every mistake that is made with files, and the
//! client verifies the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use brisk_keys::{KeyAlgorithm, KeyId};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{PemObject, SectionKind};

use crate::certificate::Certificate;
use crate::error::{CertError, Warning};
use crate::x509::Facts;

/// A server certificate and the intermediates that lead to a root, which is left out.
#[derive(Debug, Clone)]
pub struct Chain {
    source: PathBuf,
    /// Never empty: the server certificate, then its issuer, and so on.
    links: Vec<Link>,
    algorithm: KeyAlgorithm,
    /// Subjects of certificates in the file that belong to no link.
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

    /// Puts the certificates in `pem` in order, whatever their order there. `source` is named in errors.
    ///
    /// The server certificate is the one that is no CA (a lone certificate may be either); a root and repetitions are
    /// dropped.
    pub fn from_pem(pem: &[u8], source: &Path) -> Result<Self, CertError> {
        let mut pool = parse(pem, source)?;
        let leaf = pool.remove(find_leaf(&pool, source)?);
        let algorithm = leaf.facts.algorithm.clone().map_err(|algorithm| CertError::UnsupportedKey {
            path: source.to_owned(),
            algorithm,
        })?;
        let links = climb(leaf, &mut pool, source)?;
        let unused = pool.into_iter().filter(|link| !link.facts.self_issued()).map(|link| link.facts.subject).collect();
        Ok(Self { source: source.to_owned(), links, algorithm, unused })
    }

    /// The certificates, server certificate first.
    pub fn certificates(&self) -> impl ExactSizeIterator<Item = &CertificateDer<'static>> {
        self.links.iter().map(|link| &link.der)
    }

    /// The server certificate's subject, for people.
    pub fn subject(&self) -> &str {
        &self.leaf().subject
    }

    /// The server certificate's subject alternative names: host names in lower case, addresses as text. The common
    /// name is not one of them: clients have long stopped reading it (RFC 9525 section 2).
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

    /// Whether the server certificate is past its end at `now`.
    pub fn expired(&self, now: SystemTime) -> bool {
        now > self.not_after()
    }

    /// The server certificate's public key: its `SubjectPublicKeyInfo`, DER.
    pub fn public_key(&self) -> &[u8] {
        &self.leaf().public_key
    }

    /// The kind of the server certificate's key.
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// Bytes of the TLS 1.3 Certificate message that carries this chain, uncompressed and without extensions.
    pub fn wire_size(&self) -> usize {
        // RFC 8446 section 4.4.2: handshake header 4, empty context 1, list length 3; per certificate a length of 3 and
        // the length of no extensions, 2.
        8 + self.certificates().map(|der| 3 + der.len() + 2).sum::<usize>()
    }

    /// What an operator should know of this chain at `now`.
    pub fn warnings(&self, now: SystemTime) -> Vec<Warning> {
        let mut warnings: Vec<_> = self.links.iter().filter_map(|link| self.validity(&link.facts, now)).collect();
        let leaf = self.leaf();
        if leaf.names.is_empty() {
            warnings.push(Warning::NoNames { path: self.source.clone(), subject: leaf.subject.clone() });
        }
        // Roots sign no server certificates, so an issuer that publishes itself is an intermediate.
        if self.links.len() == 1 && leaf.publishes_issuer && !leaf.self_issued() {
            warnings.push(Warning::NoIntermediate { path: self.source.clone(), issuer: leaf.issuer.clone() });
        }
        let unused = self.unused.iter();
        warnings.extend(unused.map(|subject| Warning::Unused { path: self.source.clone(), subject: subject.clone() }));
        warnings
    }

    /// This chain as a certificate whose private key is `key`.
    pub(crate) fn into_certificate(self, key: KeyId) -> Certificate {
        let leaf = self.leaf();
        Certificate {
            key,
            algorithm: self.algorithm,
            names: leaf.names.clone(),
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            source: self.source.clone(),
            chain: self.links.into_iter().map(|link| link.der).collect(),
        }
    }

    /// Whether names and key identifiers say that `issuer`'s server certificate signed this one's.
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
        (now < facts.not_before).then_some(Warning::NotYetValid { path, subject, until: facts.not_before })
    }
}

/// The certificates of a PEM file in the file's order, without repetitions; at least one.
fn parse(pem: &[u8], source: &Path) -> Result<Vec<Link>, CertError> {
    let mut links: Vec<Link> = Vec::new();
    let mut sections = 0;
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let (kind, der) = section
            .map_err(|error| CertError::Pem { path: source.to_owned(), reason: error.to_string() })?;
        sections += 1;
        if kind != SectionKind::Certificate || links.iter().any(|link| *link.der == *der) {
            continue;
        }
        let number = links.len() + 1;
        let facts = Facts::read(&der).map_err(|reason| CertError::Malformed {
            path: source.to_owned(),
            number,
            reason,
        })?;
        links.push(Link { der: der.into(), facts });
    }
    if links.is_empty() {
        let found = if sections > 0 { "a private key or something else" } else { "no PEM at all" };
        return Err(CertError::NoCertificate { path: source.to_owned(), found });
    }
    Ok(links)
}

/// The place of the server certificate in `pool`.
fn find_leaf(pool: &[Link], source: &Path) -> Result<usize, CertError> {
    let mut servers = pool.iter().enumerate().filter(|(_, link)| !link.facts.is_ca);
    match (servers.next(), servers.next()) {
        (Some((place, _)), None) => Ok(place),
        (Some((_, first)), Some((_, second))) => Err(CertError::SeveralLeaves {
            path: source.to_owned(),
            first: first.facts.subject.clone(),
            second: second.facts.subject.clone(),
        }),
        // `openssl req -x509` marks what it makes as a CA: take the one that issued none of the others.
        (None, _) => Ok(pool
            .iter()
            .position(|link| !pool.iter().any(|other| other.der != link.der && other.facts.issued_by(&link.facts)))
            .unwrap_or(0)),
    }
}

/// Takes the issuers of `leaf` from `pool`, up to the root, which is dropped.
fn climb(leaf: Link, pool: &mut Vec<Link>, source: &Path) -> Result<Vec<Link>, CertError> {
    let mut links = vec![leaf];
    loop {
        let last = &links.last().expect("begins with the server certificate").facts;
        if last.self_issued() {
            break;
        }
        // Of a cross-signed issuer and the root of the same name, the one that leads further is what old clients need.
        let fits = |link: &Link| last.issued_by(&link.facts);
        let place = pool
            .iter()
            .position(|link| fits(link) && !link.facts.self_issued())
            .or_else(|| pool.iter().position(fits));
        let Some(place) = place else {
            return end(links, pool, source);
        };
        links.push(pool.remove(place));
    }
    if links.len() > 1 {
        links.pop();
    }
    Ok(links)
}

/// The chain ends without a root in the file: right, unless the server certificate's own issuer is not what follows.
fn end(links: Vec<Link>, pool: &[Link], source: &Path) -> Result<Vec<Link>, CertError> {
    let last = &links.last().expect("begins with the server certificate").facts;
    match pool.first() {
        Some(stranger) if links.len() == 1 => Err(CertError::BrokenChain {
            path: source.to_owned(),
            subject: last.subject.clone(),
            issuer: last.issuer.clone(),
            found: stranger.facts.subject.clone(),
        }),
        _ => Ok(links),
    }
}
