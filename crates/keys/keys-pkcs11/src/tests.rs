//! Tests of the engine with SoftHSM tokens. Each test runs in a process of its own, with its own tokens.

mod conformance;
mod messages;
mod removal;

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use brisk_keys::{KeyAlgorithm, KeyId, KeyOperation, KeyResult, PrivateKeyEngine};
use brisk_testkit::token::{TokenKind, Tokens, module};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;

use crate::{CertificateKey, KeyUri, PinSource, TokenEngine, TokenError, TokenSettings};

/// The tokens in use by the process of a test.
static IN_USE: LazyLock<crate::Tokens> = LazyLock::new(crate::Tokens::default);

const MESSAGE: &[u8] = b"what the server signs";

/// Runs `body` with its own tokens; `test` is the path of the test in this module.
#[track_caller]
fn with_tokens(test: &str, body: impl FnOnce(&Tokens)) {
    Tokens::in_own_process(&format!("tests::{test}"), |tokens| {
        body(tokens);
        IN_USE.close();
    });
}

fn algorithm(kind: TokenKind) -> KeyAlgorithm {
    match kind {
        TokenKind::Rsa2048 => KeyAlgorithm::Rsa { bits: 2048 },
        TokenKind::Rsa3072 => KeyAlgorithm::Rsa { bits: 3072 },
        TokenKind::P256 => KeyAlgorithm::EcdsaP256,
        TokenKind::P384 => KeyAlgorithm::EcdsaP384,
    }
}

/// The public key of the key `label`.
fn certified(tokens: &Tokens, label: &str, kind: TokenKind) -> CertificateKey {
    let subject = format!("CN={label}");
    CertificateKey { public_key: tokens.public_key("web", label), algorithm: algorithm(kind), subject }
}

fn attach_with(
    settings: TokenSettings,
    tokens: &Tokens,
    uri: &str,
    certified: &CertificateKey,
) -> Result<Arc<TokenEngine>, TokenError> {
    let uri: KeyUri = uri.parse().expect("a URI");
    let pin = PinSource::file(tokens.pin_file());
    IN_USE.attach(settings, &uri, &module(), Some(&pin), certified)
}

fn attach(tokens: &Tokens, uri: &str, certified: &CertificateKey) -> Result<Arc<TokenEngine>, TokenError> {
    attach_with(TokenSettings::default(), tokens, uri, certified)
}

/// A token `web` with one P-256 key, `site`, and its engine.
fn site(tokens: &Tokens) -> (Arc<TokenEngine>, KeyId) {
    tokens.add("web");
    tokens.generate("web", "site", "01", TokenKind::P256, &[]);
    let certified = certified(tokens, "site", TokenKind::P256);
    let engine = attach(tokens, "pkcs11:token=web;object=site", &certified).expect("a key");
    (engine, KeyId::of_spki(&certified.public_key))
}

fn sign_until(key: KeyId, scheme: SignatureScheme, deadline: Instant) -> KeyOperation {
    KeyOperation::sign(key, scheme, Bytes::from_static(MESSAGE), deadline)
}

fn sign(key: KeyId, scheme: SignatureScheme) -> KeyOperation {
    sign_until(key, scheme, Instant::now() + Duration::from_mins(1))
}

/// A P-256 signature over [`MESSAGE`].
fn sign_p256(key: KeyId) -> KeyOperation {
    sign(key, SignatureScheme::ECDSA_SECP256R1_SHA256)
}

fn perform(engine: &TokenEngine, operation: KeyOperation) -> KeyResult {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(engine.submit(operation))
}
