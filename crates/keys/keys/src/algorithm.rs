//! [`KeyAlgorithm`] of a private key, and each TLS [`SignatureScheme`] that it supports.

use std::fmt;

use brisk_wire::registry::SignatureScheme;

/// Algorithm of a private key, with its strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyAlgorithm {
    /// ECDSA on the curve secp256r1.
    EcdsaP256,
    /// ECDSA on the curve secp384r1.
    EcdsaP384,
    /// RSA; signs both with PSS and with PKCS#1 v1.5 padding.
    Rsa {
        /// Length of the modulus in bits, 2048 to 8192.
        bits: u16,
    },
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// ML-DSA-44 (FIPS 204), for TLS 1.3 only (draft-ietf-tls-mldsa).
    MlDsa44,
    /// ML-DSA-65.
    MlDsa65,
    /// ML-DSA-87.
    MlDsa87,
}

impl KeyAlgorithm {
    /// Whether TLS 1.2 defines signatures of this algorithm: `false` for ML-DSA.
    pub const fn signs_tls12(self) -> bool {
        !matches!(self, Self::MlDsa44 | Self::MlDsa65 | Self::MlDsa87)
    }

    /// Signature schemes that a key of this algorithm supports, in order of preference.
    ///
    /// An ECDSA key has one scheme: TLS 1.3 binds the hash to the curve (RFC 8446 section 4.2.3), and brisk does the
    /// same in TLS 1.2. The PKCS#1 v1.5 schemes of RSA are for TLS 1.2 only; the caller removes them in TLS 1.3.
    pub const fn schemes(self) -> &'static [SignatureScheme] {
        match self {
            Self::EcdsaP256 => &[SignatureScheme::ECDSA_SECP256R1_SHA256],
            Self::EcdsaP384 => &[SignatureScheme::ECDSA_SECP384R1_SHA384],
            // SHA-256 first: it is as strong as the key itself, and the cheapest of the three.
            Self::Rsa { .. } => &[
                SignatureScheme::RSA_PSS_RSAE_SHA256,
                SignatureScheme::RSA_PSS_RSAE_SHA384,
                SignatureScheme::RSA_PSS_RSAE_SHA512,
                SignatureScheme::RSA_PKCS1_SHA256,
                SignatureScheme::RSA_PKCS1_SHA384,
                SignatureScheme::RSA_PKCS1_SHA512,
            ],
            Self::Ed25519 => &[SignatureScheme::ED25519],
            Self::MlDsa44 => &[SignatureScheme::ML_DSA_44],
            Self::MlDsa65 => &[SignatureScheme::ML_DSA_65],
            Self::MlDsa87 => &[SignatureScheme::ML_DSA_87],
        }
    }

    /// The `algorithm` label of metrics, in lower case and without the size of RSA keys: `ecdsa-p256`, `rsa`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::Rsa { .. } => "rsa",
            Self::Ed25519 => "ed25519",
            Self::MlDsa44 => "ml-dsa-44",
            Self::MlDsa65 => "ml-dsa-65",
            Self::MlDsa87 => "ml-dsa-87",
        }
    }
}

impl fmt::Display for KeyAlgorithm {
    /// Writes the algorithm for operators: `ECDSA P-256`, `RSA-2048`, `Ed25519`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EcdsaP256 => f.write_str("ECDSA P-256"),
            Self::EcdsaP384 => f.write_str("ECDSA P-384"),
            Self::Rsa { bits } => write!(f, "RSA-{bits}"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::MlDsa44 => f.write_str("ML-DSA-44"),
            Self::MlDsa65 => f.write_str("ML-DSA-65"),
            Self::MlDsa87 => f.write_str("ML-DSA-87"),
        }
    }
}

/// [`KeyAlgorithm::label`] of the keys that sign with `scheme`, without the key at hand.
pub(crate) fn scheme_label(scheme: SignatureScheme) -> &'static str {
    match scheme {
        SignatureScheme::ECDSA_SECP256R1_SHA256 => KeyAlgorithm::EcdsaP256.label(),
        SignatureScheme::ECDSA_SECP384R1_SHA384 => KeyAlgorithm::EcdsaP384.label(),
        SignatureScheme::ED25519 => KeyAlgorithm::Ed25519.label(),
        SignatureScheme::ML_DSA_44 => KeyAlgorithm::MlDsa44.label(),
        SignatureScheme::ML_DSA_65 => KeyAlgorithm::MlDsa65.label(),
        SignatureScheme::ML_DSA_87 => KeyAlgorithm::MlDsa87.label(),
        SignatureScheme::RSA_PSS_RSAE_SHA256
        | SignatureScheme::RSA_PSS_RSAE_SHA384
        | SignatureScheme::RSA_PSS_RSAE_SHA512
        | SignatureScheme::RSA_PKCS1_SHA256
        | SignatureScheme::RSA_PKCS1_SHA384
        | SignatureScheme::RSA_PKCS1_SHA512 => "rsa",
        // Metrics need the label before the engine has checked the scheme, so any code point may occur.
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_the_label_of_the_keys_that_make_it() {
        for algorithm in [
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::Rsa { bits: 2048 },
            KeyAlgorithm::Ed25519,
            KeyAlgorithm::MlDsa44,
            KeyAlgorithm::MlDsa65,
            KeyAlgorithm::MlDsa87,
        ] {
            for scheme in algorithm.schemes() {
                assert_eq!(scheme_label(*scheme), algorithm.label(), "{scheme}");
            }
        }
    }

    #[test]
    fn pss_comes_before_pkcs1() {
        let schemes = KeyAlgorithm::Rsa { bits: 2048 }.schemes();
        assert_eq!(schemes[0], SignatureScheme::RSA_PSS_RSAE_SHA256);
        assert_eq!(schemes[3], SignatureScheme::RSA_PKCS1_SHA256);
    }
}
