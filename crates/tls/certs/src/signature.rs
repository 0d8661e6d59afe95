//! Verification of signatures on certificates, OCSP responses and revocation lists.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::oid_registry::{
    OID_NIST_HASH_SHA256, OID_NIST_HASH_SHA384, OID_NIST_HASH_SHA512, OID_PKCS1_RSASSAPSS,
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer;
use x509_parser::signature_algorithm::RsaSsaPssParams;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use crate::x509::{ML_DSA_44, ML_DSA_65, ML_DSA_87};

/// Prefix of a P-256 `SubjectPublicKeyInfo` with an uncompressed point (RFC 5480 section 2). Comparing the encoding
/// avoids keys in other forms, which parsers accept and clients refuse.
const P256: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04";

/// Prefix of a P-384 `SubjectPublicKeyInfo` with an uncompressed point.
const P384: &[u8] =
    b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00\x04";

/// Whether `signature` over `message` is valid for `key`. SHA-1, MD5 and RSA below 2048 bits are refused.
pub(crate) fn verifies(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    signature: &[u8],
    message: &[u8],
) -> bool {
    // The lower bound of RSA keys is part of the aws-lc algorithms that `verifier` returns.
    let Some(algorithm) = verifier(key, algorithm) else { return false };
    UnparsedPublicKey::new(algorithm, &key.subject_public_key.data).verify(message, signature).is_ok()
}

/// Whether `issuer` is the named issuer of `certificate` and signed it.
pub(crate) fn signed_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    certificate.issuer().as_raw() == issuer.subject().as_raw()
        && verifies(
            issuer.public_key(),
            &certificate.signature_algorithm,
            &certificate.signature_value.data,
            certificate.tbs_certificate.as_ref(),
        )
}

/// [`signed_by`] for certificates in DER.
pub(crate) fn is_signed_by(certificate: &[u8], issuer: &[u8]) -> bool {
    match (X509Certificate::from_der(certificate), X509Certificate::from_der(issuer)) {
        (Ok((_, certificate)), Ok((_, issuer))) => signed_by(&certificate, &issuer),
        _ => false,
    }
}

fn verifier(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
) -> Option<&'static dyn VerificationAlgorithm> {
    let oid = &algorithm.algorithm;
    let found: &dyn VerificationAlgorithm = if *oid == OID_PKCS1_SHA256WITHRSA {
        &signature::RSA_PKCS1_2048_8192_SHA256
    } else if *oid == OID_PKCS1_SHA384WITHRSA {
        &signature::RSA_PKCS1_2048_8192_SHA384
    } else if *oid == OID_PKCS1_SHA512WITHRSA {
        &signature::RSA_PKCS1_2048_8192_SHA512
    } else if *oid == OID_PKCS1_RSASSAPSS {
        return pss(algorithm);
    } else if *oid == OID_SIG_ED25519 {
        &signature::ED25519
    } else if let Some(found) = ml_dsa(oid) {
        found
    } else {
        return ecdsa(key, algorithm);
    };
    Some(found)
}

// RFC 9881 section 3.
fn ml_dsa(oid: &Oid<'_>) -> Option<&'static dyn VerificationAlgorithm> {
    if *oid == ML_DSA_44 {
        Some(&signature::ML_DSA_44)
    } else if *oid == ML_DSA_65 {
        Some(&signature::ML_DSA_65)
    } else if *oid == ML_DSA_87 {
        Some(&signature::ML_DSA_87)
    } else {
        None
    }
}

fn pss(algorithm: &AlgorithmIdentifier<'_>) -> Option<&'static dyn VerificationAlgorithm> {
    let parameters = RsaSsaPssParams::try_from(algorithm.parameters.as_ref()?).ok()?;
    // Mask and salt length are not compared: `aws-lc-rs` verifies with MGF1 of this hash and a salt of its
    // length, so a signature with other parameters fails.
    let hash = parameters.hash_algorithm_oid();
    if *hash == OID_NIST_HASH_SHA256 {
        Some(&signature::RSA_PSS_2048_8192_SHA256)
    } else if *hash == OID_NIST_HASH_SHA384 {
        Some(&signature::RSA_PSS_2048_8192_SHA384)
    } else if *hash == OID_NIST_HASH_SHA512 {
        Some(&signature::RSA_PSS_2048_8192_SHA512)
    } else {
        None
    }
}

fn ecdsa(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
) -> Option<&'static dyn VerificationAlgorithm> {
    let (p256, p384) = (key.raw.starts_with(P256), key.raw.starts_with(P384));
    let oid = &algorithm.algorithm;
    let (sha256, sha384, sha512) = (
        *oid == OID_SIG_ECDSA_WITH_SHA256,
        *oid == OID_SIG_ECDSA_WITH_SHA384,
        *oid == OID_SIG_ECDSA_WITH_SHA512,
    );
    Some(match (p256, p384, sha256, sha384, sha512) {
        (true, _, true, ..) => &signature::ECDSA_P256_SHA256_ASN1,
        (true, _, _, true, _) => &signature::ECDSA_P256_SHA384_ASN1,
        (true, .., true) => &signature::ECDSA_P256_SHA512_ASN1,
        (_, true, true, ..) => &signature::ECDSA_P384_SHA256_ASN1,
        (_, true, _, true, _) => &signature::ECDSA_P384_SHA384_ASN1,
        (_, true, .., true) => &signature::ECDSA_P384_SHA512_ASN1,
        _ => return None,
    })
}
