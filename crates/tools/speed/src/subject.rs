//! Subjects of measurements and their names.

use std::fmt;

/// An algorithm of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum Algorithm {
    Rsa2048,
    Rsa3072,
    Rsa4096,
    P256,
    P384,
    Ed25519,
    X25519,
    X25519MlKem768,
    MlKem768,
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
    Sha256,
}

impl Algorithm {
    /// All algorithms, in the order of measurements and reports.
    pub const ALL: [Self; 13] = [
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
        Self::P256,
        Self::P384,
        Self::Ed25519,
        Self::X25519,
        Self::X25519MlKem768,
        Self::MlKem768,
        Self::Aes128Gcm,
        Self::Aes256Gcm,
        Self::ChaCha20Poly1305,
        Self::Sha256,
    ];

    /// Name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::Ed25519 => "ed25519",
            Self::X25519 => "x25519",
            Self::X25519MlKem768 => "x25519mlkem768",
            Self::MlKem768 => "mlkem768",
            Self::Aes128Gcm => "aes128gcm",
            Self::Aes256Gcm => "aes256gcm",
            Self::ChaCha20Poly1305 => "chacha20poly1305",
            Self::Sha256 => "sha256",
        }
    }

    /// Name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Rsa2048 => "RSA-2048",
            Self::Rsa3072 => "RSA-3072",
            Self::Rsa4096 => "RSA-4096",
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::Ed25519 => "Ed25519",
            Self::X25519 => "X25519",
            Self::X25519MlKem768 => "X25519MLKEM768",
            Self::MlKem768 => "ML-KEM-768",
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            Self::Sha256 => "SHA-256",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// A subject of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// All operations of an algorithm.
    Algorithm(Algorithm),
    /// The [`Forecast`](crate::result::Forecast) of handshakes.
    Handshakes,
}

impl Subject {
    /// All subjects: the algorithms, then the handshakes.
    pub fn all() -> impl Iterator<Item = Self> {
        Algorithm::ALL.into_iter().map(Self::Algorithm).chain([Self::Handshakes])
    }

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Algorithm(algorithm) => algorithm.name(),
            Self::Handshakes => "handshakes",
        }
    }

    /// Name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Algorithm(algorithm) => algorithm.title(),
            Self::Handshakes => "handshakes",
        }
    }

    /// The subject with this [`name`](Self::name) or [`title`](Self::title), ignoring case.
    pub fn named(text: &str) -> Option<Self> {
        let is = |name: &str| name.eq_ignore_ascii_case(text);
        Self::all().find(|subject| is(subject.name()) || is(subject.title()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_titles_are_understood() {
        for subject in Subject::all() {
            assert_eq!(Subject::named(subject.name()), Some(subject));
            assert_eq!(Subject::named(subject.title()), Some(subject));
        }
        assert_eq!(Subject::named("rsa-2048"), Some(Subject::Algorithm(Algorithm::Rsa2048)));
        assert_eq!(Subject::named("rsa"), None);
    }
}
