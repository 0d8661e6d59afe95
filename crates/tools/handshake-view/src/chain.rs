//! Certificate chains as sent by servers: order, missing issuers and superfluous roots.

use std::net::IpAddr;

use brisk_coding::{Coding, Encoder};
use brisk_report::text::printable;
use serde::Serialize;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};
use x509_parser::public_key::PublicKey;

/// Certificates read of a chain, which has three or four.
const MOST: usize = 16;

/// Names read of a certificate.
const MOST_NAMES: usize = 100;

/// Brotli level of the estimate.
const LEVEL: u8 = 5;

/// Fields of an X.509 certificate for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// Common name of the subject, or the whole subject without one.
    pub subject: String,
    /// Common name of the issuer, or the whole issuer without one.
    pub issuer: String,
    /// Size in bytes (DER).
    pub bytes: usize,
    /// Kind and size of its key, e.g. `RSA 2048`.
    pub key: String,
    /// Begin of validity in seconds since 1970.
    pub not_before: i64,
    /// End of validity in seconds since 1970.
    pub not_after: i64,
    /// Subject and issuer are equal.
    pub is_self_signed: bool,
    /// The certificate contains the URL of an OCSP responder.
    pub names_responder: bool,
    /// The certificate contains the URL of its issuer's certificate (`caIssuers`).
    pub names_issuer: bool,
    /// DNS names and addresses for which the certificate is valid (`subjectAltName`), at most 100.
    pub names: Vec<String>,
    /// Public key with its algorithm (DER of `SubjectPublicKeyInfo`).
    #[serde(skip)]
    pub public_key: Vec<u8>,
}

/// A certificate chain as a server sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Readable certificates in the server's order, at most 16.
    pub certificates: Vec<Certificate>,
    /// Size of all certificates in bytes (DER).
    pub bytes: usize,
    /// Size and algorithm of the `CompressedCertificate` message, if there was one.
    pub compressed: Option<(usize, String)>,
    /// Size after compression with brotli, if the chain was sent uncompressed.
    pub compressible: Option<usize>,
    /// Size of the stapled OCSP response in bytes; 0 for none.
    pub staple_bytes: usize,
    /// Subjects of certificates that did not issue their predecessor, against RFC 8446 section 4.4.2.
    pub out_of_order: Vec<String>,
    /// Subject and size of a root in the chain; superfluous, since clients have their own copy.
    pub root: Option<(String, usize)>,
    /// The chain is a single certificate that is not self-signed: its issuer is missing unless clients know it.
    pub is_alone: bool,
    /// Number of certificates that cannot be parsed.
    pub unreadable: usize,
}

impl Chain {
    /// Reads certificates in DER. Never fails: unreadable certificates are counted.
    pub fn read(chain: &[impl AsRef<[u8]>], staple_bytes: usize) -> Self {
        let mut found = Self { staple_bytes, ..Self::default() };
        // Certificates beyond `MOST` count too, because they were sent.
        found.bytes = chain.iter().map(|der| der.as_ref().len()).sum();
        let mut expected: Option<Vec<u8>> = None;
        for (index, der) in chain.iter().take(MOST).enumerate() {
            let der = der.as_ref();
            let Ok((_, certificate)) = X509Certificate::from_der(der) else {
                found.unreadable += 1;
                // Without a readable issuer there is no reason to call the next certificate out of order.
                expected = None;
                continue;
            };
            let read = Certificate::of(&certificate, der.len());
            if expected.is_some_and(|issuer| issuer != certificate.subject().as_raw()) {
                found.out_of_order.push(read.subject.clone());
            }
            // A self-signed first certificate is the server's own, and not superfluous.
            if index > 0 && read.is_self_signed && found.root.is_none() {
                found.root = Some((read.subject.clone(), der.len()));
            }
            expected = Some(certificate.issuer().as_raw().to_vec());
            found.certificates.push(read);
        }
        found.is_alone =
            chain.len() == 1 && found.certificates.first().is_some_and(|only| !only.is_self_signed);
        found
    }

    /// Bytes saved by compression with brotli.
    pub fn saving(&self) -> usize {
        self.bytes.saturating_sub(self.compressible.unwrap_or(self.bytes))
    }
}

/// Size of the certificates after compression with brotli; `None` if compression fails.
pub fn compressible(chain: &[Vec<u8>]) -> Option<usize> {
    let mut output = Vec::new();
    let mut encoder = Encoder::new(Coding::Brotli, LEVEL);
    encoder.write_whole(&chain.concat(), &mut output).ok()?;
    Some(output.len())
}

impl Certificate {
    fn of(certificate: &X509Certificate<'_>, bytes: usize) -> Self {
        let (subject, issuer) = (certificate.subject(), certificate.issuer());
        Self {
            subject: name(subject),
            issuer: name(issuer),
            bytes,
            key: key(certificate),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            // The names suffice here: the TLS client judges trust, with a check of the signature.
            is_self_signed: subject.as_raw() == issuer.as_raw(),
            names_responder: names(certificate, "1.3.6.1.5.5.7.48.1"),
            names_issuer: names(certificate, "1.3.6.1.5.5.7.48.2"),
            names: alternative_names(certificate),
            public_key: certificate.public_key().raw.to_vec(),
        }
    }
}

fn name(name: &x509_parser::x509::X509Name<'_>) -> String {
    let common = name.iter_common_name().next().and_then(|name| name.as_str().ok());
    let text = common.map_or_else(|| name.to_string(), str::to_owned);
    printable(&text)
}

/// DNS names and IP addresses of the extension `subjectAltName` (RFC 5280 section 4.2.1.6).
fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(printable(name)),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    };
    names.filter_map(name).take(MOST_NAMES).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Whether the authority information access extension has this method (RFC 5280 section 4.2.2.1).
fn names(certificate: &X509Certificate<'_>, method: &str) -> bool {
    certificate.iter_extensions().any(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            access.accessdescs.iter().any(|one| one.access_method.to_id_string() == method)
        }
        _ => false,
    })
}

fn key(certificate: &X509Certificate<'_>) -> String {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA {}", key.key_size()),
        Ok(PublicKey::EC(point)) => format!("ECDSA P-{}", point.key_size()),
        _ => match certificate.public_key().algorithm.algorithm.to_id_string().as_str() {
            "1.3.101.112" => "Ed25519".to_owned(),
            "2.16.840.1.101.3.4.3.17" => "ML-DSA-44".to_owned(),
            "2.16.840.1.101.3.4.3.18" => "ML-DSA-65".to_owned(),
            "2.16.840.1.101.3.4.3.19" => "ML-DSA-87".to_owned(),
            _ => "unknown".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;

    use super::*;

    #[test]
    fn order_root_and_a_lone_certificate_are_noticed() {
        let ca = TestCa::new();
        let leaf = ca.server(&["example.test"]).issue();
        let pem = |path| std::fs::read(path).expect("a file");
        let ders = |pem: &[u8]| {
            x509_parser::pem::Pem::iter_from_buffer(pem)
                .map(|one| one.expect("PEM").contents)
                .collect::<Vec<_>>()
        };
        let (right, root) = (ders(&pem(&leaf.chain)), ders(&pem(&ca.root_file())));
        let chain = Chain::read(&right, 0);
        assert_eq!((right.len(), chain.certificates.len()), (2, 2));
        assert!(chain.out_of_order.is_empty() && chain.root.is_none() && !chain.is_alone, "{chain:?}");
        assert!(Chain::read(&right[..1], 0).is_alone);
        let with_root = Chain::read(&[right.clone(), root.clone()].concat(), 0);
        assert_eq!(with_root.root.map(|(_, bytes)| bytes), Some(root[0].len()));
        let wrong = [right[0].clone(), root[0].clone(), right[1].clone()];
        assert!(!Chain::read(&wrong, 0).out_of_order.is_empty());
        assert_eq!(Chain::read(&[vec![1, 2, 3]], 0).unreadable, 1);
    }
}
