//! Verification that the key of a URI belongs to a certificate and supports the operations of TLS.

use brisk_keys::{KeyAlgorithm, KeyId};
use brisk_wire::registry::SignatureScheme;
use cryptoki::{
    object::{Attribute, AttributeType, KeyType, ObjectHandle},
    session::Session,
};

use crate::{
    connection::TokenProperties,
    error::TokenError,
    key::{OperationFailure, TokenKey, sign},
    mechanism::{DECRYPTION, SigningMethod, tried},
    select,
    signature::PublicKey,
    uri::KeyUri,
};

/// Message of the trial signature. No handshake of TLS 1.2 or 1.3 signs such a message.
const TRIAL: &[u8] = b"brisk tries whether this is the key of the certificate";

/// Public key of a certificate.
#[derive(Clone, Debug)]
pub struct CertificateKey {
    /// DER `SubjectPublicKeyInfo`.
    pub public_key: Vec<u8>,
    /// Its algorithm.
    pub algorithm: KeyAlgorithm,
    /// Subject of the certificate, for messages.
    pub subject: String,
}

/// Finds the key of `uri` and verifies trial signatures, in a session of connection `epoch`.
///
/// # Errors
///
/// [`TokenError::Mismatch`] if it is the key of another certificate, [`TokenError::Unfit`] if key or token lack a
/// capability.
pub(crate) fn examine(
    session: &Session,
    epoch: u64,
    facts: &TokenProperties,
    uri: &KeyUri,
    certified: &CertificateKey,
) -> Result<TokenKey, TokenError> {
    let handle = select::key(session, uri, &facts.label)?;
    let unfit = |reason: String| TokenError::Unfit { uri: uri.to_string(), reason };
    let unsupported = || {
        unfit(format!("{} is not supported in tokens; use ECDSA P-256 or P-384, or RSA", certified.algorithm))
    };
    let kind = kind_of(certified.algorithm).ok_or_else(unsupported)?;
    let public = PublicKey::read(&certified.public_key, certified.algorithm).ok_or_else(unsupported)?;
    let decrypts = attributes(session, handle, uri, certified, kind)?;
    let method = |scheme: &SignatureScheme| {
        SigningMethod::choose(*scheme, &facts.mechanisms)
            .map(|method| (*scheme, method))
            .map_err(|wanted| unfit(format!("the token lacks the mechanism {wanted}, which {scheme} needs")))
    };
    // A scheme without a mechanism is an error at load, not in the handshake of the client that needs the
    // scheme.
    let methods = certified.algorithm.schemes().iter().map(method).collect::<Result<Vec<_>, _>>()?;
    // Only a verified signature proves that the key belongs to the certificate: label and id prove nothing.
    for scheme in tried(certified.algorithm) {
        let Some((_, method)) = methods.iter().find(|(own, _)| own == scheme) else { continue };
        let signature = sign(session, handle, *method, TRIAL).map_err(|failure| match failure {
            OperationFailure::Token(cause) | OperationFailure::Unclear(cause) => TokenError::Call(cause),
            _ => unfit(format!("the token did not sign with {scheme}")),
        })?;
        if !signature.is_some_and(|signature| public.verifies(*scheme, TRIAL, &signature)) {
            return Err(mismatch(
                uri,
                certified,
                "a signature that it made for a trial is not one of the certificate's key",
            ));
        }
    }
    let decrypts = decrypts && facts.mechanisms.contains(&DECRYPTION);
    let id = KeyId::of_spki(&certified.public_key);
    Ok(TokenKey::new(id, uri.clone(), public, methods, decrypts, (handle, epoch)))
}

/// Returns whether the key, which has to be of the type `wanted`, may decrypt.
///
/// # Errors
///
/// [`TokenError`] if the key has another type or may not sign.
fn attributes(
    session: &Session,
    handle: ObjectHandle,
    uri: &KeyUri,
    certified: &CertificateKey,
    wanted: KeyType,
) -> Result<bool, TokenError> {
    let unfit = |reason: &str| TokenError::Unfit { uri: uri.to_string(), reason: reason.to_owned() };
    let asked = [
        AttributeType::KeyType,
        AttributeType::Sign,
        AttributeType::AlwaysAuthenticate,
        AttributeType::Decrypt,
    ];
    let mut decrypts = false;
    // Attributes that the token does not report are missing here. The trial signature then shows whether
    // the key signs; decryption is refused.
    for attribute in session.get_attributes(handle, &asked)? {
        match attribute {
            Attribute::KeyType(kind) if kind != wanted => {
                let reason =
                    format!("it is a key of the type {kind}, the certificate's is {}", certified.algorithm);
                return Err(mismatch(uri, certified, &reason));
            }
            Attribute::Sign(false) => {
                return Err(unfit("it may not sign (CKA_SIGN is false)"));
            }
            // The PIN is wiped after the login, so there is none to present with each signature.
            Attribute::AlwaysAuthenticate(true) => {
                return Err(unfit(
                    "it wants the PIN for each signature (CKA_ALWAYS_AUTHENTICATE is true); wanted a key without that",
                ));
            }
            Attribute::Decrypt(may) => decrypts = may,
            _ => {}
        }
    }
    Ok(decrypts)
}

/// The type of a key in a token; `None` for algorithms without a [`SigningMethod`].
const fn kind_of(algorithm: KeyAlgorithm) -> Option<KeyType> {
    match algorithm {
        KeyAlgorithm::Rsa { .. } => Some(KeyType::RSA),
        KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => Some(KeyType::EC),
        _ => None,
    }
}

fn mismatch(uri: &KeyUri, certified: &CertificateKey, reason: &str) -> TokenError {
    TokenError::Mismatch {
        uri: uri.to_string(),
        subject: certified.subject.clone(),
        reason: reason.to_owned(),
    }
}
