//! The certificates that a server sent: which order they have, which is missing, which is of no use.

use brisk_coding::{Coding, Encoder};
use serde::Serialize;
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};
use x509_parser::public_key::PublicKey;

/// Certificates looked at; a chain has three or four.
const MOST: usize = 16;

/// Level of brotli for the estimate.
const LEVEL: u8 = 5;

/// Characters kept of a name.
const NAME: usize = 200;

/// Characters kept of the value of a header field.
const VALUE: usize = 2000;

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// Common name, or the whole subject without one.
    pub subject: String,
    /// The same of the issuer.
    pub issuer: String,
    /// Bytes (DER).
    pub bytes: usize,
    /// Kind and size of its key, e.g. `RSA 2048`.
    pub key: String,
    /// Begin of its validity, in seconds since 1970.
    pub not_before: i64,
    /// Its end.
    pub not_after: i64,
    /// Issued by itself.
    pub is_self_signed: bool,
    /// It names an OCSP responder.
    pub names_responder: bool,
    /// It names where its issuer's certificate is (`caIssuers`).
    pub names_issuer: bool,
}

/// What a server sent as its chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// In the order of the server.
    pub certificates: Vec<Certificate>,
    /// Bytes of all (DER).
    pub bytes: usize,
    /// Bytes and algorithm of the compressed message, if it was compressed.
    pub compressed: Option<(usize, String)>,
    /// Bytes that brotli makes of all, if they were not compressed.
    pub compressible: Option<usize>,
    /// Bytes of the stapled OCSP response; 0 for none.
    pub staple_bytes: usize,
    /// Certificates that do not certify the one before them (RFC 8446 section 4.4.2 wants that they do).
    pub out_of_order: Vec<String>,
    /// A root among them, which clients have themselves: name and bytes.
    pub root: Option<(String, usize)>,
    /// The end-entity certificate came alone, and is not self-signed: its issuer is missing unless clients know it.
    pub is_alone: bool,
    /// Certificates that cannot be read.
    pub unreadable: usize,
}

impl Chain {
    /// Reads the certificates (DER).
    pub(crate) fn read(chain: &[Vec<u8>], staple_bytes: usize) -> Self {
        let mut found = Self { staple_bytes, ..Self::default() };
        found.bytes = chain.iter().map(Vec::len).sum();
        let mut expected: Option<Vec<u8>> = None;
        for (index, der) in chain.iter().take(MOST).enumerate() {
            let Ok((_, certificate)) = X509Certificate::from_der(der) else {
                found.unreadable += 1;
                expected = None;
                continue;
            };
            let read = Certificate::of(&certificate, der.len());
            if expected.is_some_and(|issuer| issuer != certificate.subject().as_raw()) {
                found.out_of_order.push(read.subject.clone());
            }
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
}

impl Chain {
    /// Bytes that compression would save.
    pub(crate) fn saving(&self) -> usize {
        self.bytes.saturating_sub(self.compressible.unwrap_or(self.bytes))
    }
}

/// Bytes that brotli makes of the certificates.
pub(crate) fn compressible(chain: &[Vec<u8>]) -> Option<usize> {
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
            is_self_signed: subject.as_raw() == issuer.as_raw(),
            names_responder: names(certificate, "1.3.6.1.5.5.7.48.1"),
            names_issuer: names(certificate, "1.3.6.1.5.5.7.48.2"),
        }
    }
}

fn name(name: &x509_parser::x509::X509Name<'_>) -> String {
    let common = name.iter_common_name().next().and_then(|name| name.as_str().ok());
    let text = common.map_or_else(|| name.to_string(), str::to_owned);
    printable(&text)
}

/// Text of a stranger for a terminal: no control or format characters, no more than [`NAME`] characters.
pub(crate) fn printable(text: &str) -> String {
    cleaned(text, NAME)
}

/// The value of a header field for a terminal.
pub(crate) fn value(text: &str) -> String {
    cleaned(text, VALUE)
}

fn cleaned(text: &str, most: usize) -> String {
    let is_hidden = |letter: char| letter.is_control() || is_format(letter);
    text.chars().take(most).map(|letter| if is_hidden(letter) { '\u{fffd}' } else { letter }).collect()
}

/// Characters of Unicode's categories Cf, Zl and Zp: they are not seen, and turn around or break the text beside them.
const fn is_format(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether it names something that is reached in this way (RFC 5280 section 4.2.2.1).
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

    #[test]
    fn names_have_no_control_characters_and_an_end() {
        assert_eq!(printable("a\x1b[2Jb"), "a\u{fffd}[2Jb");
        let turned = "a\u{202e}b\u{2066}c\u{2028}d\u{2029}e\u{200b}f\u{feff}é→";
        assert_eq!(printable(turned), "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}é→");
        assert_eq!(value(turned), printable(turned));
        assert_eq!(printable(&"x".repeat(5000)).len(), NAME);
    }
}
