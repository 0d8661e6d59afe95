//! Requirements on every engine, tested through the protocol, and operations during the end of a key process.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use brisk_keyless::{KeyProcessConnector, RemoteEngine, RemoteSettings, Scheme};
use brisk_keys::{
    Engines, KeyAlgorithm, KeyError, KeyId, KeyOperation, LocalEngine, PendingOperation, PrivateKeyEngine,
};
use brisk_telemetry::Metrics;
use brisk_testkit::ca::{LeafKey, TestCa};
use bytes::Bytes;

use super::*;

/// Creates engines and counts them.
#[derive(Debug, Default)]
struct Local(AtomicUsize);

impl Engines for Local {
    fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Arc::new(LocalEngine::new(keystore))
    }

    fn queue(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }
}

/// Sockets to the threads of a key process within the test process.
#[derive(Debug, Default)]
struct Threads(Mutex<Option<KeyProcess>>);

impl Threads {
    fn start(&self, keystore: &Arc<Keystore>) {
        let environment =
            Environment { engines: Arc::<Local>::default(), gathers: true, metrics: Metrics::new() };
        let process = KeyProcess::start(NonZeroUsize::MIN, keystore, environment).expect("threads");
        *self.0.lock().expect("no panic") = Some(process);
    }
}

impl KeyProcessConnector for Threads {
    fn open(&self) -> io::Result<Socket> {
        let (own, other) = Socket::pair()?;
        let mut process = self.0.lock().expect("no panic");
        process.as_mut().ok_or(io::ErrorKind::NotConnected)?.serve(other);
        Ok(own)
    }
}

/// One key of each kind.
fn keys() -> Arc<Keystore> {
    let (ca, mut keystore) = (TestCa::new(), Keystore::new());
    for kind in [LeafKey::EcdsaP256, LeafKey::EcdsaP384, LeafKey::Rsa2048, LeafKey::Ed25519] {
        let leaf = ca.server(&["a.test"]).key(kind).issue();
        keystore.add_pem(leaf.key_pem.as_bytes()).expect("a key");
    }
    Arc::new(keystore)
}

fn engine(threads: &Arc<Threads>, change: impl FnOnce(&mut RemoteSettings)) -> RemoteEngine {
    let mut settings = RemoteSettings::local("isolate", Arc::clone(threads) as _);
    settings.deadline = Duration::from_mins(1);
    settings.hedge = settings.deadline;
    change(&mut settings);
    let engine = RemoteEngine::new(settings);
    engine.start().expect("a thread");
    engine
}

fn with_keys() -> (Arc<Keystore>, Arc<Threads>, RemoteEngine) {
    let (keystore, threads) = (keys(), Arc::<Threads>::default());
    threads.start(&keystore);
    let engine = engine(&threads, |_| {});
    (keystore, threads, engine)
}

fn tls13() -> Bytes {
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat().into()
}

fn tls12() -> Bytes {
    [&[0; 64][..], &[3, 0, 29, 32], &[7; 32]].concat().into()
}

fn verification(scheme: Scheme) -> &'static dyn VerificationAlgorithm {
    match scheme {
        Scheme::ECDSA_SECP256R1_SHA256 => &signature::ECDSA_P256_SHA256_ASN1,
        Scheme::ECDSA_SECP384R1_SHA384 => &signature::ECDSA_P384_SHA384_ASN1,
        Scheme::ED25519 => &signature::ED25519,
        Scheme::RSA_PSS_RSAE_SHA256 => &signature::RSA_PSS_2048_8192_SHA256,
        Scheme::RSA_PSS_RSAE_SHA384 => &signature::RSA_PSS_2048_8192_SHA384,
        Scheme::RSA_PSS_RSAE_SHA512 => &signature::RSA_PSS_2048_8192_SHA512,
        Scheme::RSA_PKCS1_SHA256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Scheme::RSA_PKCS1_SHA384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Scheme::RSA_PKCS1_SHA512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        _ => panic!("no key makes {scheme}"),
    }
}

fn sign(engine: &RemoteEngine, key: KeyId, scheme: Scheme, message: Bytes) -> PendingOperation {
    let deadline = Instant::now() + Duration::from_mins(1);
    engine.submit(KeyOperation::sign(key, scheme, message, deadline))
}

fn key_of(keystore: &Keystore, algorithm: KeyAlgorithm) -> KeyId {
    keystore.ids().find(|id| keystore.algorithm(*id) == Some(algorithm)).expect("a key of each kind")
}

const P256: Scheme = Scheme::ECDSA_SECP256R1_SHA256;

#[test]
fn a_worker_that_fails_or_panics_is_reported() {
    let (sender, failures) = channel();
    report(0, || Ok(()), &sender);
    report(1, || Err(io::Error::other("no descriptors are left")), &sender);
    report(2, || panic!("as a bug would"), &sender);
    drop(sender);
    assert_eq!(
        failures.iter().collect::<Vec<_>>(),
        [
            "worker 1 of the key process has ended: no descriptors are left",
            "worker 2 of the key process has ended: it panicked, as the log says",
        ]
    );
}

#[tokio::test]
async fn every_key_signs_with_every_scheme() {
    let (keystore, _threads, engine) = with_keys();
    for id in keystore.ids() {
        for &scheme in keystore.algorithm(id).expect("a key").schemes() {
            let message = if scheme.to_string().starts_with("rsa_pkcs1") { tls12() } else { tls13() };
            let signature = sign(&engine, id, scheme, message.clone()).await.expect("a signature");
            let public = ParsedPublicKey::new(verification(scheme), keystore.public_key(id).expect("a key"))
                .expect("a key");
            assert!(public.verify_sig(&message, &signature).is_ok(), "{scheme}");
            assert!(public.verify_sig(b"another message", &signature).is_err(), "{scheme}");
        }
    }
}

#[tokio::test]
async fn what_a_key_cannot_do_is_refused_and_so_is_what_no_tls_signs() {
    let (keystore, _threads, engine) = with_keys();
    let p256 = key_of(&keystore, KeyAlgorithm::EcdsaP256);
    let refusals = [
        sign(&engine, p256, Scheme::ED25519, tls13()),
        sign(&engine, KeyId([1; 32]), P256, tls13()),
        sign(&engine, p256, P256, Bytes::from_static(b"a digest")),
        sign(&engine, p256, P256, vec![b' '; 5000].into()),
        engine.submit(KeyOperation::decrypt(p256, tls13(), Instant::now() + Duration::from_mins(1))),
    ];
    for refused in refusals {
        let error = refused.await.expect_err("a refusal");
        assert!(matches!(error, KeyError::Failed(_)), "{error:?}");
    }
    // New operations succeed.
    sign(&engine, p256, P256, tls13()).await.expect("a signature");
}

#[tokio::test]
async fn no_work_is_begun_after_its_deadline() {
    let (keystore, _threads, engine) = with_keys();
    for id in keystore.ids() {
        let scheme = keystore.algorithm(id).expect("a key").schemes()[0];
        let late = engine.submit(KeyOperation::sign(id, scheme, tls13(), Instant::now()));
        assert_eq!(late.await, Err(KeyError::DeadlinePassed));
    }
}

#[tokio::test]
async fn the_queue_is_bounded_and_everything_in_it_is_answered() {
    let (keystore, threads) = (keys(), Arc::<Threads>::default());
    threads.start(&keystore);
    let engine = engine(&threads, |settings| settings.queue = NonZeroUsize::new(5).expect("a number"));
    let key = key_of(&keystore, KeyAlgorithm::Rsa { bits: 2048 });
    let pending: Vec<_> = (0..50).map(|_| sign(&engine, key, Scheme::RSA_PSS_RSAE_SHA256, tls13())).collect();
    let (mut done, mut refused) = (0, 0);
    for pending in pending {
        match pending.await {
            Ok(_) => done += 1,
            Err(KeyError::Overloaded) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(done >= 5 && refused > 0 && done + refused == 50, "{done} {refused}");
}

#[tokio::test]
async fn an_operation_waits_for_a_process_that_comes_and_no_longer_than_its_deadline() {
    let (keystore, threads) = (keys(), Arc::<Threads>::default());
    let engine = engine(&threads, |_| {});
    let key = key_of(&keystore, KeyAlgorithm::EcdsaP256);
    let soon = Instant::now() + Duration::from_millis(100);
    assert_eq!(
        engine.submit(KeyOperation::sign(key, P256, tls13(), soon)).await,
        Err(KeyError::DeadlinePassed)
    );
    assert!(engine.trouble().expect("no process").contains("the key process performs no operations"));
    let waits = sign(&engine, key, P256, tls13());
    threads.start(&keystore);
    waits.await.expect("a signature");
    assert_eq!(engine.trouble(), None);
}

#[tokio::test]
async fn keys_in_force_are_others_at_once() {
    let (keystore, threads, engine) = with_keys();
    let key = key_of(&keystore, KeyAlgorithm::EcdsaP256);
    sign(&engine, key, P256, tls13()).await.expect("a signature");
    let hold = |keystore: &Arc<Keystore>| {
        threads.0.lock().expect("no panic").as_ref().expect("a process").hold(keystore);
    };
    hold(&Arc::default());
    sign(&engine, key, P256, tls13()).await.expect_err("the key is gone");
    hold(&keystore);
    sign(&engine, key, P256, tls13()).await.expect("a signature");
}

#[test]
fn the_same_keys_keep_their_engine() {
    let (keystore, engines) = (keys(), Arc::<Local>::default());
    let environment =
        Environment { engines: Arc::clone(&engines) as _, gathers: false, metrics: Metrics::new() };
    let process = KeyProcess::start(NonZeroUsize::MIN, &keystore, environment).expect("threads");
    let made = || engines.0.load(Ordering::Relaxed);
    assert_eq!(made(), 1);
    let mut same = Keystore::new();
    same.add_all(&keystore);
    process.hold(&Arc::new(same));
    assert_eq!(made(), 1);
    process.hold(&Arc::default());
    assert_eq!(made(), 2);
}
