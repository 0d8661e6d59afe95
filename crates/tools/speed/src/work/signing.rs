//! Signatures by a server, and their verification by a client.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1,
    ECDSA_P384_SHA384_ASN1_SIGNING, ED25519, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair,
    ParsedPublicKey, RSA_PSS_2048_8192_SHA256, RsaKeyPair, VerificationAlgorithm,
};
use brisk_keys::{KeyId, KeyOperation, KeyResult, Keystore, LanesUse, LocalEngine, PrivateKeyEngine, turn};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use rustls_pki_types::PrivatePkcs8KeyDer;

use super::{LANES, Work};
use crate::SpeedError;
use crate::result::{Action, Missing, Operation};
use crate::subject::Algorithm;

/// A message of the length that a TLS 1.3 server signs with a SHA-256 suite: 64 spaces, the context, a zero and a
/// digest (RFC 8446 section 4.4.3).
static MESSAGE: [u8; 130] = [0x20; 130];

/// Size of the smallest batch, reported as [`Missing`] if there is none.
const FEWEST: usize = 2;

/// A deadline that no operation of a run misses.
const FAR: Duration = Duration::from_hours(24 * 365);

/// Single signatures, batches, and verifying.
pub(super) fn rsa(algorithm: Algorithm) -> Result<Vec<Work>, SpeedError> {
    let (size, bits) = match algorithm {
        Algorithm::Rsa3072 => (KeySize::Rsa3072, 3072),
        Algorithm::Rsa4096 => (KeySize::Rsa4096, 4096),
        _ => (KeySize::Rsa2048, 2048),
    };
    let der: Pkcs8V1Der<'_> = RsaKeyPair::generate(size)?.as_der()?;
    // The padding that servers use: TLS 1.3 permits no other.
    let single = Signer::new(der.as_ref(), SignatureScheme::RSA_PSS_RSAE_SHA256)?;
    let (batched, public, signature) = (single.clone(), single.public.clone(), single.sign()?);
    let alone = Work::new(algorithm, Action::Sign, move || single.sign().map(drop));
    // Measured at the first call and kept, so that the batch of the row is the one of `choices`.
    let choice = LocalEngine::batch_choice(bits).expect("keys of these sizes can share a batch");
    let together = match choice.operations() {
        1 => {
            // Without a gain, the processor lacks the instructions; with one, batches were measured and are
            // slower.
            let missing = if choice.gain().is_some() { Missing::SlowLanes } else { Missing::Lanes };
            Work { operation: Operation { batch: FEWEST, ..alone.operation }, act: Err(missing) }
        }
        batch => {
            let act = move || batched.sign_together(batch);
            Work { operation: Operation { batch, ..alone.operation }, act: Ok(Box::new(act)) }
        }
    };
    let public = ParsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, &public)?;
    let verify = move || Ok(public.verify_sig(&MESSAGE, black_box(&signature))?);
    Ok(vec![alone, together, Work::new(algorithm, Action::Verify, verify)])
}

/// Signing and verifying.
pub(super) fn others(algorithm: Algorithm) -> Result<Vec<Work>, SpeedError> {
    let (der, scheme, verification): (_, _, &'static dyn VerificationAlgorithm) = match algorithm {
        Algorithm::P384 => {
            let der = ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING)?;
            (der, SignatureScheme::ECDSA_SECP384R1_SHA384, &ECDSA_P384_SHA384_ASN1)
        }
        Algorithm::Ed25519 => {
            let der = Ed25519KeyPair::generate()?.to_pkcs8v1()?.as_ref().to_vec();
            (der, SignatureScheme::ED25519, &ED25519)
        }
        _ => {
            let der = ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING)?;
            (der, SignatureScheme::ECDSA_SECP256R1_SHA256, &ECDSA_P256_SHA256_ASN1)
        }
    };
    let signer = Signer::new(&der, scheme)?;
    let public = ParsedPublicKey::new(verification, &signer.public)?;
    let signature = signer.sign()?;
    let verify = move || Ok(public.verify_sig(&MESSAGE, black_box(&signature))?);
    let gathering = signer.clone();
    let mut works = vec![
        Work::new(algorithm, Action::Sign, move || signer.sign().map(drop)),
        Work::new(algorithm, Action::Verify, verify),
    ];
    if algorithm == Algorithm::P256 {
        let are_there = LanesUse::of_this_processor().is_some_and(LanesUse::is_any);
        // Next to the single signature.
        works.insert(
            1,
            Work::in_lanes(algorithm, Action::Sign, are_there, move || gathering.sign_in_turn(LANES)),
        );
    }
    Ok(works)
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> Result<Vec<u8>, SpeedError> {
    Ok(EcdsaKeyPair::generate(algorithm)?.to_pkcs8v1()?.as_ref().to_vec())
}

/// A key, and the engine that performs its operations on the calling thread.
#[derive(Clone)]
struct Signer {
    engine: Arc<LocalEngine>,
    key: KeyId,
    /// The public key, DER.
    public: Vec<u8>,
    scheme: SignatureScheme,
    deadline: Instant,
}

impl Signer {
    fn new(pkcs8: &[u8], scheme: SignatureScheme) -> Result<Self, SpeedError> {
        let mut keystore = Keystore::new();
        let key = keystore.add_der(PrivatePkcs8KeyDer::from(pkcs8.to_vec()).into())?;
        let public = keystore.public_key(key).expect("it was added").to_vec();
        let engine = Arc::new(LocalEngine::new(Arc::new(keystore)));
        Ok(Self { engine, key, public, scheme, deadline: Instant::now() + FAR })
    }

    fn operation(&self) -> KeyOperation {
        KeyOperation::sign(self.key, self.scheme, Bytes::from_static(&MESSAGE), self.deadline)
    }

    fn sign(&self) -> Result<Vec<u8>, SpeedError> {
        let result = self.engine.submit(self.operation()).try_take();
        Ok(result.expect("a local engine performs within `submit`")?.to_vec())
    }

    /// As in the worker of a gateway, which gathers signatures until the end of its turn.
    fn sign_in_turn(&self, count: usize) -> Result<(), SpeedError> {
        let gathering = turn::Gathering::begin(|| {});
        let pending: Vec<_> = (0..count).map(|_| self.engine.submit(self.operation())).collect();
        // The end of the turn performs the gathered signatures.
        drop(gathering);
        for mut pending in pending {
            pending.try_take().expect("it was performed at the end of the turn")?;
        }
        Ok(())
    }

    fn sign_together(&self, count: usize) -> Result<(), SpeedError> {
        let operations = (0..count).map(|_| self.operation()).collect();
        let results = self.engine.perform_batch(operations);
        results.into_iter().try_for_each(|result: KeyResult| result.map(drop))?;
        Ok(())
    }
}
