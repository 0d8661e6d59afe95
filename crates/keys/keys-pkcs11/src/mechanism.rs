//! Choice of the token's mechanism for a signature scheme, and its input.
//!
//! Messages are hashed here if the token has a mechanism for digests, because less data is transferred. Otherwise the
//! token gets the complete message.

use aws_lc_rs::digest;
use brisk_keys::KeyAlgorithm;
use brisk_wire::registry::SignatureScheme;
use cryptoki::{
    mechanism::{
        Mechanism, MechanismType,
        rsa::{PkcsMgfType, PkcsPssParams},
    },
    types::Ulong,
};

/// Properties of a hash in all parts of a signature.
#[derive(Debug, PartialEq, Eq)]
struct Hash {
    algorithm: &'static digest::Algorithm,
    name: MechanismType,
    mgf: PkcsMgfType,
    size: u8,
    /// Last byte of the object identifier 2.16.840.1.101.3.4.2.x.
    oid: u8,
}

static SHA256: Hash = Hash {
    algorithm: &digest::SHA256,
    name: MechanismType::SHA256,
    mgf: PkcsMgfType::MGF1_SHA256,
    size: 32,
    oid: 1,
};
static SHA384: Hash = Hash {
    algorithm: &digest::SHA384,
    name: MechanismType::SHA384,
    mgf: PkcsMgfType::MGF1_SHA384,
    size: 48,
    oid: 2,
};
static SHA512: Hash = Hash {
    algorithm: &digest::SHA512,
    name: MechanismType::SHA512,
    mgf: PkcsMgfType::MGF1_SHA512,
    size: 64,
    oid: 3,
};

/// Method for signatures of one scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SigningMethod {
    padding: Padding,
    hash: &'static Hash,
    hashed_here: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Pkcs1,
    Pss,
    Ecdsa,
}

impl SigningMethod {
    /// Chooses a method that needs only the [`Mechanism`]s `has`.
    ///
    /// # Errors
    ///
    /// The names of the mechanisms that would be suitable.
    pub(crate) fn choose(scheme: SignatureScheme, has: &[MechanismType]) -> Result<Self, String> {
        let (padding, hash) = parts(scheme).ok_or_else(|| format!("for {scheme}"))?;
        let method = |hashed_here| Self { padding, hash, hashed_here };
        let methods = [method(true), method(false)];
        let found = methods.into_iter().find(|method| has.contains(&method.mechanism().mechanism_type()));
        found.ok_or_else(|| {
            let [first, second] = methods.map(|method| method.mechanism().mechanism_type().to_string());
            format!("{first} or {second}")
        })
    }

    pub(crate) fn mechanism(&self) -> Mechanism<'static> {
        let hash = self.hash;
        // RFC 8446 section 4.2.3: the salt is as long as the hash.
        let pss = PkcsPssParams { hash_alg: hash.name, mgf: hash.mgf, s_len: Ulong::new(hash.size.into()) };
        match (self.padding, self.hashed_here, hash.oid) {
            (Padding::Pkcs1, true, _) => Mechanism::RsaPkcs,
            (Padding::Pkcs1, false, 1) => Mechanism::Sha256RsaPkcs,
            (Padding::Pkcs1, false, 2) => Mechanism::Sha384RsaPkcs,
            (Padding::Pkcs1, false, _) => Mechanism::Sha512RsaPkcs,
            (Padding::Pss, true, _) => Mechanism::RsaPkcsPss(pss),
            (Padding::Pss, false, 1) => Mechanism::Sha256RsaPkcsPss(pss),
            (Padding::Pss, false, 2) => Mechanism::Sha384RsaPkcsPss(pss),
            (Padding::Pss, false, _) => Mechanism::Sha512RsaPkcsPss(pss),
            (Padding::Ecdsa, true, _) => Mechanism::Ecdsa,
            (Padding::Ecdsa, false, 1) => Mechanism::EcdsaSha256,
            (Padding::Ecdsa, false, 2) => Mechanism::EcdsaSha384,
            (Padding::Ecdsa, false, _) => Mechanism::EcdsaSha512,
        }
    }

    /// The input of the [`Mechanism`] for `message`.
    pub(crate) fn input(&self, message: &[u8]) -> Vec<u8> {
        if !self.hashed_here {
            return message.to_vec();
        }
        let digest = digest::digest(self.hash.algorithm, message);
        // `CKM_RSA_PKCS` adds the padding only, so that `DigestInfo` is part of the input.
        let mut input = if self.padding == Padding::Pkcs1 { digest_info(self.hash) } else { Vec::new() };
        input.extend(digest.as_ref());
        input
    }

    /// Returns whether the token's result is a pair of integers that must be encoded for TLS.
    pub(crate) fn is_ecdsa(&self) -> bool {
        self.padding == Padding::Ecdsa
    }
}

/// Mechanism for decryption: raw RSA. The padding stays in place, because `PremasterEngine` removes it in constant
/// time.
pub(crate) const DECRYPTION: MechanismType = MechanismType::RSA_X_509;

/// The schemes of the trial signatures: one for each padding that TLS may use.
pub(crate) fn tried(algorithm: KeyAlgorithm) -> &'static [SignatureScheme] {
    match algorithm {
        KeyAlgorithm::Rsa { .. } => {
            &[SignatureScheme::RSA_PSS_RSAE_SHA256, SignatureScheme::RSA_PKCS1_SHA256]
        }
        other => other.schemes(),
    }
}

fn parts(scheme: SignatureScheme) -> Option<(Padding, &'static Hash)> {
    Some(match scheme {
        SignatureScheme::ECDSA_SECP256R1_SHA256 => (Padding::Ecdsa, &SHA256),
        SignatureScheme::ECDSA_SECP384R1_SHA384 => (Padding::Ecdsa, &SHA384),
        SignatureScheme::RSA_PSS_RSAE_SHA256 => (Padding::Pss, &SHA256),
        SignatureScheme::RSA_PSS_RSAE_SHA384 => (Padding::Pss, &SHA384),
        SignatureScheme::RSA_PSS_RSAE_SHA512 => (Padding::Pss, &SHA512),
        SignatureScheme::RSA_PKCS1_SHA256 => (Padding::Pkcs1, &SHA256),
        SignatureScheme::RSA_PKCS1_SHA384 => (Padding::Pkcs1, &SHA384),
        SignatureScheme::RSA_PKCS1_SHA512 => (Padding::Pkcs1, &SHA512),
        _ => return None,
    })
}

/// RFC 8017 section 9.2, note 1: the DER encoding of `DigestInfo` up to the digest.
fn digest_info(hash: &Hash) -> Vec<u8> {
    let (oid, size) = (hash.oid, hash.size);
    vec![
        0x30,
        17 + size,
        0x30,
        0x0d,
        0x06,
        0x09,
        0x60,
        0x86,
        0x48,
        0x01,
        0x65,
        0x03,
        0x04,
        0x02,
        oid,
        0x05,
        0x00,
        0x04,
        size,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_made_here_where_the_token_takes_one() {
        let scheme = SignatureScheme::RSA_PSS_RSAE_SHA384;
        let both = [MechanismType::SHA384_RSA_PKCS_PSS, MechanismType::RSA_PKCS_PSS];
        let here = SigningMethod::choose(scheme, &both).unwrap();
        assert_eq!(here.mechanism().mechanism_type(), MechanismType::RSA_PKCS_PSS);
        assert_eq!(here.input(b"message").len(), 48);
        let there = SigningMethod::choose(scheme, &both[..1]).unwrap();
        assert_eq!(there.mechanism().mechanism_type(), MechanismType::SHA384_RSA_PKCS_PSS);
        assert_eq!(there.input(b"message"), b"message");
    }

    #[test]
    fn what_a_token_lacks_is_named() {
        let lacks = |scheme| SigningMethod::choose(scheme, &[MechanismType::RSA_X_509]).unwrap_err();
        assert_eq!(lacks(SignatureScheme::ECDSA_SECP384R1_SHA384), "CKM_ECDSA or CKM_ECDSA_SHA384");
        assert_eq!(lacks(SignatureScheme::RSA_PKCS1_SHA256), "CKM_RSA_PKCS or CKM_SHA256_RSA_PKCS");
    }

    #[test]
    fn a_digest_info_is_as_long_as_it_says() {
        for hash in [&SHA256, &SHA384, &SHA512] {
            let info = digest_info(hash);
            assert_eq!(usize::from(info[1]) + 2, info.len() + usize::from(hash.size));
        }
    }
}
