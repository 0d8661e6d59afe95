//! Private keys in PEM (RFC 7468).

use std::error::Error;
use std::fmt::{self, Display};

use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use zeroize::Zeroizing;

use crate::base64::{decode, encode_lines};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// RFC 7468 section 2: lines of 64 characters.
const WIDTH: usize = 64;

/// DER of a private key; wiped when dropped.
pub struct PrivateKeyDocument {
    form: Form,
    der: Zeroizing<Vec<u8>>,
}

/// Form of a private key, named by the label of its PEM section.
#[derive(Clone, Copy)]
enum Form {
    Pkcs1,
    Pkcs8,
    Sec1,
}

/// Reason for the refusal of PEM without a readable private key. It contains no part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PemError {
    /// No section with a private key.
    Missing,
    /// More than one section with a private key.
    Several,
    /// Malformed lines, or a section that is not base64.
    Damaged,
}

impl PrivateKeyDocument {
    /// Decodes the private key in `pem`: PKCS#8 (`PRIVATE KEY`), PKCS#1 (`RSA PRIVATE KEY`) or SEC1
    /// (`EC PRIVATE KEY`). Text outside of sections and other sections, such as certificates, are skipped. The DER is
    /// not parsed.
    ///
    /// # Errors
    ///
    /// A reason.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PemError> {
        let mut section: Option<(&[u8], usize)> = None;
        let mut found: Option<Self> = None;
        let (mut at, mut keys) = (0, 0);
        // RFC 7468 section 3: CRLF, CR and LF end a line.
        for line in pem.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let start = at;
            at += line.len();
            let line = line.trim_ascii_end();
            if let Some(rest) = line.strip_prefix(BEGIN) {
                // A label never ends with a hyphen (RFC 7468 section 3), so six dashes are damage.
                let label = rest.strip_suffix(DASHES).filter(|label| !label.ends_with(b"-"));
                // A section within another one is the rest of a file that was cut off.
                if section.is_some() {
                    return Err(PemError::Damaged);
                }
                section = Some((label.ok_or(PemError::Damaged)?, at));
            } else if let Some((label, from)) = section
                && let Some(rest) = line.strip_prefix(END).and_then(|rest| rest.strip_prefix(label))
            {
                // Two sections in one line: the second would be lost.
                if rest != DASHES {
                    return Err(PemError::Damaged);
                }
                section = None;
                // Keys in other forms count too, such as `ENCRYPTED PRIVATE KEY`: the choice between two keys
                // would be a guess.
                keys += usize::from(label.ends_with(b"PRIVATE KEY"));
                if keys > 1 {
                    return Err(PemError::Several);
                }
                if let Some(form) = Form::of(label) {
                    let der = decode(&pem[from..start]).ok_or(PemError::Damaged)?;
                    found = Some(Self { form, der });
                }
            }
        }
        if section.is_some() {
            return Err(PemError::Damaged);
        }
        found.ok_or(PemError::Missing)
    }

    /// A private key in PKCS#8.
    pub fn from_pkcs8(der: &[u8]) -> Self {
        Self { form: Form::Pkcs8, der: Zeroizing::new(der.to_vec()) }
    }

    /// The private key for a parser.
    pub fn der(&self) -> PrivateKeyDer<'_> {
        let der = &self.der[..];
        match self.form {
            Form::Pkcs1 => PrivatePkcs1KeyDer::from(der).into(),
            Form::Pkcs8 => PrivatePkcs8KeyDer::from(der).into(),
            Form::Sec1 => PrivateSec1KeyDer::from(der).into(),
        }
    }

    /// The private key as PEM, as [`from_pem`](Self::from_pem) reads it.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let label = self.form.label();
        let lines = self.der.len().div_ceil(WIDTH / 4 * 3);
        // Room for everything, so that the text is not copied while it grows.
        let mut pem = Zeroizing::new(String::with_capacity(lines * (WIDTH + 1) + 2 * (label.len() + 17)));
        for part in ["-----BEGIN ", label, "-----\n"] {
            pem.push_str(part);
        }
        encode_lines(&self.der, WIDTH, &mut pem);
        for part in ["-----END ", label, "-----\n"] {
            pem.push_str(part);
        }
        pem
    }
}

impl fmt::Debug for PrivateKeyDocument {
    /// Prints the form of the key only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrivateKeyDocument").field(&self.form.label()).finish()
    }
}

impl Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => {
                "no private key: wanted PEM with a section PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY"
            }
            Self::Several => {
                "the file contains several private keys: keep the one that belongs to the certificate"
            }
            Self::Damaged => "the PEM of the private key is damaged",
        })
    }
}

impl Error for PemError {}

impl Form {
    const ALL: [Self; 3] = [Self::Pkcs1, Self::Pkcs8, Self::Sec1];

    fn of(label: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.label().as_bytes() == label)
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Pkcs1 => "RSA PRIVATE KEY",
            Self::Pkcs8 => "PRIVATE KEY",
            Self::Sec1 => "EC PRIVATE KEY",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        let mut text = Zeroizing::new(String::new());
        encode_lines(der, WIDTH, &mut text);
        format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", *text)
    }

    fn refusal(text: &str) -> PemError {
        PrivateKeyDocument::from_pem(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn keys_are_read_in_each_form_and_written_as_they_were() {
        let der: Vec<u8> = (0..200).collect();
        for form in Form::ALL {
            let text = pem(form.label(), &der);
            let read = PrivateKeyDocument::from_pem(text.as_bytes()).unwrap();
            assert_eq!(read.der().secret_der(), der);
            let written = read.to_pem();
            assert_eq!(*written, text);
            assert_eq!(format!("{read:?}"), format!("PrivateKeyDocument({:?})", form.label()));
        }
        assert_eq!(*PrivateKeyDocument::from_pkcs8(&der).to_pem(), pem("PRIVATE KEY", &der));
    }

    /// A buffer that grows would leave a copy of its content.
    #[test]
    fn written_text_is_never_copied() {
        for length in [1, 47, 48, 49, 1200] {
            let pem = PrivateKeyDocument::from_pkcs8(&vec![7; length]).to_pem();
            let label = "PRIVATE KEY".len();
            let lines = length.div_ceil(48);
            assert_eq!(pem.capacity(), lines * 65 + 2 * (label + 17), "{length}");
        }
    }

    #[test]
    fn other_sections_and_other_text_are_skipped() {
        let key = pem("PRIVATE KEY", b"key");
        let texts = [
            format!("Bag Attributes\n{}{key}", pem("CERTIFICATE", b"certificate")),
            format!("{}{key}{}", pem("EC PARAMETERS", b"curve"), pem("CERTIFICATE", b"another")),
            key.replace('\n', "\r\n"),
            key.replace('\n', "\r"),
            key.replace("-----\n", "-----  \n"),
            key.trim_end().to_owned(),
            format!("-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n{key}"),
        ];
        for text in texts {
            let read = PrivateKeyDocument::from_pem(text.as_bytes());
            assert_eq!(read.unwrap().der().secret_der(), b"key", "{text:?}");
        }
    }

    #[test]
    fn damage_and_absence_are_distinguished() {
        let key = pem("PRIVATE KEY", b"key");
        assert_eq!(refusal(""), PemError::Missing);
        assert_eq!(refusal(&pem("CERTIFICATE", b"certificate")), PemError::Missing);
        for second in [&key, &pem("ENCRYPTED PRIVATE KEY", b"another"), &pem("ANY PRIVATE KEY", b"another")] {
            assert_eq!(refusal(&format!("{key}{second}")), PemError::Several);
            assert_eq!(refusal(&format!("{}{second}", key.trim_end())), PemError::Damaged);
        }
        assert_eq!(refusal(&format!("-----BEGIN CERTIFICATE-----\nQUJD\n{key}")), PemError::Damaged);
        assert_eq!(refusal(&key.replace("-----END", "!\n-----END")), PemError::Damaged);
        assert_eq!(refusal(&key.replace("-----END", "----END")), PemError::Damaged);
        assert_eq!(refusal(&key.replace("KEY-----\n", "KEY----\n")), PemError::Damaged);
        assert_eq!(refusal(&key.replace("KEY-----\n", "KEY------\n")), PemError::Damaged);
        assert_eq!(refusal(&key.replacen("PRIVATE", "RSA PRIVATE", 1)), PemError::Damaged);
        assert_eq!(refusal("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"), PemError::Damaged);
    }
}
