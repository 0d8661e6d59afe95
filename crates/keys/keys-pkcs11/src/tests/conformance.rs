//! Requirements on every engine, tested with keys generated in the token.

use aws_lc_rs::{
    rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey},
    signature::{self, ParsedPublicKey, VerificationAlgorithm},
};
use brisk_keys::KeyError;
use cryptoki::mechanism::MechanismType;

use super::*;
use crate::{attach::examine, connection::TokenProperties, task::SessionQuery};

const KINDS: [(TokenKind, &str, &str); 4] = [
    (TokenKind::Rsa2048, "rsa2048", "01"),
    (TokenKind::Rsa3072, "rsa3072", "02"),
    (TokenKind::P256, "p256", "03"),
    (TokenKind::P384, "p384", "04"),
];

fn verification(scheme: SignatureScheme) -> &'static dyn VerificationAlgorithm {
    match scheme {
        SignatureScheme::ECDSA_SECP256R1_SHA256 => &signature::ECDSA_P256_SHA256_ASN1,
        SignatureScheme::ECDSA_SECP384R1_SHA384 => &signature::ECDSA_P384_SHA384_ASN1,
        SignatureScheme::RSA_PSS_RSAE_SHA256 => &signature::RSA_PSS_2048_8192_SHA256,
        SignatureScheme::RSA_PSS_RSAE_SHA384 => &signature::RSA_PSS_2048_8192_SHA384,
        SignatureScheme::RSA_PSS_RSAE_SHA512 => &signature::RSA_PSS_2048_8192_SHA512,
        SignatureScheme::RSA_PKCS1_SHA256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        _ => panic!("no key makes {scheme}"),
    }
}

/// All four keys in one token.
fn all(tokens: &Tokens) -> (Arc<TokenEngine>, Vec<CertificateKey>) {
    tokens.add("web");
    let mut engines = Vec::new();
    let mut keys = Vec::new();
    for (kind, label, id) in KINDS {
        tokens.generate("web", label, id, kind, &[]);
        let certified = certified(tokens, label, kind);
        engines.push(attach(tokens, &format!("pkcs11:token=web;object={label}"), &certified).expect(label));
        keys.push(certified);
    }
    assert!(engines.iter().all(|engine| Arc::ptr_eq(engine, &engines[0])), "one token, one engine");
    (engines.swap_remove(0), keys)
}

fn decrypt(key: KeyId, ciphertext: &[u8]) -> KeyOperation {
    KeyOperation::decrypt(key, Bytes::copy_from_slice(ciphertext), Instant::now() + Duration::from_mins(1))
}

#[test]
fn every_key_signs_with_every_scheme_and_does_nothing_else() {
    with_tokens("conformance::every_key_signs_with_every_scheme_and_does_nothing_else", |tokens| {
        let (engine, keys) = all(tokens);
        let ids: Vec<_> = keys.iter().map(|key| KeyId::of_spki(&key.public_key)).collect();
        for (key, id) in keys.iter().zip(&ids) {
            for &scheme in key.algorithm.schemes() {
                let signature = perform(&engine, sign(*id, scheme)).expect("a signature");
                let public = ParsedPublicKey::new(verification(scheme), &key.public_key).unwrap();
                assert!(public.verify_sig(MESSAGE, &signature).is_ok(), "{scheme}");
                assert!(public.verify_sig(b"another message", &signature).is_err(), "{scheme}");
            }
        }
        an_rsa_key_decrypts_and_leaves_the_padding(&engine, &keys[0]);
        what_is_no_ciphertext_of_the_key_is_refused(&engine, ids[0]);
        what_a_key_cannot_do_is_refused(&engine, ids[0], ids[2]);
        no_work_is_begun_after_its_deadline(&engine, &keys);
        a_token_that_only_takes_messages_signs_them(&engine, &keys[0]);
    });
}

fn an_rsa_key_decrypts_and_leaves_the_padding(engine: &TokenEngine, key: &CertificateKey) {
    let public = PublicEncryptingKey::from_der(&key.public_key).unwrap();
    let public = Pkcs1PublicEncryptingKey::new(public).unwrap();
    let mut ciphertext = [0; 256];
    public.encrypt(b"premaster secret", &mut ciphertext).unwrap();
    let padded = perform(engine, decrypt(KeyId::of_spki(&key.public_key), &ciphertext)).unwrap();
    assert_eq!((padded.len(), &padded[..2]), (256, &[0, 2][..]));
    assert!(padded.ends_with(b"\0premaster secret"));
}

fn what_is_no_ciphertext_of_the_key_is_refused(engine: &TokenEngine, rsa: KeyId) {
    for ciphertext in [&[0xff; 256][..], &[1; 255], &[0; 257], &[]] {
        assert_eq!(perform(engine, decrypt(rsa, ciphertext)), Err(KeyError::OutOfRange));
    }
}

fn what_a_key_cannot_do_is_refused(engine: &TokenEngine, rsa: KeyId, p256: KeyId) {
    let refused = perform(engine, decrypt(p256, &[1; 256]));
    assert_eq!(refused, Err(KeyError::CannotDecrypt(KeyAlgorithm::EcdsaP256)));
    let unknown = KeyId([1; 32]);
    assert_eq!(perform(engine, sign_p256(unknown)), Err(KeyError::UnknownKey(unknown)));
    let (algorithm, scheme) = (KeyAlgorithm::Rsa { bits: 2048 }, SignatureScheme::ED25519);
    let refused = perform(engine, sign(rsa, scheme));
    assert_eq!(refused, Err(KeyError::UnsupportedScheme { scheme, algorithm }));
}

fn no_work_is_begun_after_its_deadline(engine: &TokenEngine, keys: &[CertificateKey]) {
    for key in keys {
        let id = KeyId::of_spki(&key.public_key);
        let late = sign_until(id, key.algorithm.schemes()[0], Instant::now());
        assert_eq!(perform(engine, late), Err(KeyError::DeadlinePassed));
    }
}

/// Some tokens have no mechanism for digests.
fn a_token_that_only_takes_messages_signs_them(engine: &TokenEngine, key: &CertificateKey) {
    let messages_only = [
        MechanismType::SHA256_RSA_PKCS,
        MechanismType::SHA384_RSA_PKCS,
        MechanismType::SHA512_RSA_PKCS,
        MechanismType::SHA256_RSA_PKCS_PSS,
        MechanismType::SHA384_RSA_PKCS_PSS,
        MechanismType::SHA512_RSA_PKCS_PSS,
    ];
    let examined = |mechanisms: &[MechanismType]| {
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        let (shared, key) = (Arc::clone(&engine.shared), key.clone());
        let facts = TokenProperties { label: "web".into(), mechanisms: mechanisms.to_vec() };
        engine.shared.dispatcher.ask(SessionQuery::new(move |session, _| {
            let entered = shared.module.enter().unwrap();
            let uri = "pkcs11:token=web;object=rsa2048".parse().unwrap();
            let open = session.within(&entered).unwrap();
            sender.send(examine(open, session.epoch, &facts, &uri, &key)).unwrap();
        }));
        answer.recv().unwrap()
    };
    let known = examined(&messages_only).expect("schemes were tried with these mechanisms");
    engine.shared.add(known);
    for &scheme in key.algorithm.schemes() {
        let signature = perform(engine, sign(KeyId::of_spki(&key.public_key), scheme));
        assert!(signature.is_ok(), "{scheme}: {signature:?}");
    }
    let lacking = examined(&messages_only[..3]).unwrap_err().to_string();
    assert_eq!(
        lacking,
        "the key `pkcs11:token=web;object=rsa2048` cannot be used for TLS: the token lacks the mechanism \
         CKM_RSA_PKCS_PSS or CKM_SHA256_RSA_PKCS_PSS, which rsa_pss_rsae_sha256 needs"
    );
}

#[test]
fn the_queue_is_bounded_and_everything_in_it_is_answered() {
    with_tokens("conformance::the_queue_is_bounded_and_everything_in_it_is_answered", |tokens| {
        tokens.add("web");
        tokens.generate("web", "site", "01", TokenKind::Rsa3072, &[]);
        let certified = certified(tokens, "site", TokenKind::Rsa3072);
        let number = |number| std::num::NonZeroUsize::new(number).unwrap();
        let settings = TokenSettings { sessions: number(1), queue: number(3) };
        let engine = attach_with(settings, tokens, "pkcs11:object=site", &certified).unwrap();
        let id = KeyId::of_spki(&certified.public_key);
        let pending: Vec<_> =
            (0..50).map(|_| engine.submit(sign(id, SignatureScheme::RSA_PSS_RSAE_SHA256))).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let results: Vec<_> = pending.into_iter().map(|pending| runtime.block_on(pending)).collect();
        let (done, refused): (Vec<_>, Vec<_>) = results.iter().partition(|result| result.is_ok());
        assert!(done.len() >= 3 && !refused.is_empty(), "{results:?}");
        assert!(refused.iter().all(|result| **result == Err(KeyError::Overloaded)), "{refused:?}");
    });
}
