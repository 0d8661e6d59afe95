//! Tests of the engine with simulated GPUs, which run the real kernels.

mod host_gpu;

use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use aws_lc_rs::{
    rand,
    signature::{self, ParsedPublicKey},
};
use brisk_keys::{
    BatchEngine, BatchSettings, KeyError, KeyId, KeyOperation, KeyResult, Keystore, LocalEngine, Offload,
    OperationKind, PendingOperation, Performer, PrivateKeyEngine,
    device::{self, Width},
};
use brisk_testkit::rsa::{TestKey, key};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;

use self::host_gpu::{Fate, HostGpu, Script};
use super::{
    error::CudaError, gpu_stream::GpuStream, host::Fault, keyed_stream::KeyedStream, source::SLOTS, *,
};
use crate::testing::{Reference, deadline};

const SCHEME: SignatureScheme = SignatureScheme::RSA_PSS_RSAE_SHA256;
const MESSAGE: &[u8] = b"what the server signs";

/// Two small keys, one of each other size, one of an unsupported size, and one that is not RSA.
struct Keys {
    store: Arc<Keystore>,
    rsa_2048: [KeyId; 2],
    rsa_3072: KeyId,
    rsa_4096: KeyId,
    rsa_2056: KeyId,
    p256: KeyId,
}

/// Generated once, because RSA keys take long.
fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let mut store = Keystore::new();
        let mut rsa = |key: &TestKey| store.add_der(key.der.clone_key()).unwrap();
        let rsa_2048 = [rsa(key(2048)), rsa(&TestKey::generate(2048))];
        let [rsa_3072, rsa_4096, rsa_2056] = [3072, 4096, 2056].map(|bits| rsa(key(bits)));
        let ecdsa = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let p256 = store.add_pem(ecdsa.serialize_pem().as_bytes()).unwrap();
        Keys { store: Arc::new(store), rsa_2048, rsa_3072, rsa_4096, rsa_2056, p256 }
    })
}

/// A keystore of a single test, with one small key.
fn own_keystore() -> (Arc<Keystore>, KeyId) {
    let mut store = Keystore::new();
    let id = store.add_der(key(2048).der.clone_key()).unwrap();
    (Arc::new(store), id)
}

fn processor(keystore: &Arc<Keystore>, settings: &BatchSettings) -> BatchEngine {
    BatchEngine::new(Arc::clone(keystore), settings).unwrap()
}

/// An engine with `streams` streams and launches of at most `wave` operations.
fn engine_of(keystore: &Arc<Keystore>, streams: usize, wave: usize, script: &Arc<Script>) -> CudaEngine {
    let settings = CudaSettings { wait: Duration::from_millis(50), ..CudaSettings::default() };
    let gpu = |_| Box::new(HostGpu::new(wave, script)) as Box<dyn GpuStream>;
    let streams = (0..streams).map(gpu).collect();
    let processor = processor(keystore, &BatchSettings::default());
    CudaEngine::with_streams(processor, &settings, streams, "a GPU of this process".into()).unwrap()
}

/// One stream for one small key, with launches of four operations; AWS-LC replaces the kernels.
fn small_engine() -> (CudaEngine, Arc<Script>, KeyId) {
    let ((keystore, id), script) = (own_keystore(), Script::with_stand_in(vec![Reference::of(key(2048))]));
    let engine = engine_of(&keystore, 1, 4, &script);
    script.forget();
    (engine, script, id)
}

/// A GPU for one small key, with AWS-LC in place of the kernels.
fn small_gpu(wave: usize) -> (Vec<Box<dyn GpuStream>>, Arc<Script>) {
    let script = Script::with_stand_in(vec![Reference::of(key(2048))]);
    (vec![Box::new(HostGpu::new(wave, &script))], script)
}

fn decrypt(id: KeyId) -> KeyOperation {
    let size = device::key(&keys().store, id).unwrap().rsa_numbers().unwrap().n.len();
    let mut ciphertext = vec![0; size];
    // With a zero first byte it is below the modulus.
    rand::fill(&mut ciphertext[1..]).unwrap();
    KeyOperation::decrypt(id, Bytes::from(ciphertext), deadline())
}

/// A signature over [`MESSAGE`].
fn sign(key: KeyId, scheme: SignatureScheme) -> KeyOperation {
    KeyOperation::sign(key, scheme, Bytes::from_static(MESSAGE), deadline())
}

/// The result of AWS-LC.
fn expected(operation: &KeyOperation) -> KeyResult {
    LocalEngine::new(Arc::clone(&keys().store)).submit(operation.clone()).try_take().unwrap()
}

/// Waits, and returns the result with its performer.
async fn outcome(mut pending: PendingOperation) -> (KeyResult, Option<Performer>) {
    let result = (&mut pending).await;
    (result, pending.performer())
}

/// Submits all operations, and requires a correct result of one of these performers.
async fn assert_performed(
    engine: &impl PrivateKeyEngine,
    operations: Vec<KeyOperation>,
    performers: &[Performer],
) {
    let pending: Vec<_> = operations.iter().map(|operation| engine.submit(operation.clone())).collect();
    for (operation, pending) in operations.iter().zip(pending) {
        let (result, performer) = outcome(pending).await;
        assert_eq!(result, expected(operation));
        assert!(performer.is_some_and(|performer| performers.contains(&performer)), "{performer:?}");
    }
}

const ON_GPU: &[Performer] = &[PERFORMER];
const ON_PROCESSOR: &[Performer] = &[Performer::AWS_LC, Performer::FMA, Performer::FMA_512, Performer::IFMA];

/// Waits for a condition that becomes true by itself.
fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_mins(1), "the condition still does not hold");
        thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn operations_of_all_sizes_and_keys_have_the_results_of_aws_lc() {
    let script = Arc::<Script>::default();
    let engine = engine_of(&keys().store, 2, 4, &script);
    script.forget();
    let Keys { rsa_2048: [first, second], rsa_3072, rsa_4096, .. } = *keys();
    // Small waves, several of them, and a partial one.
    let ids = [first, second, rsa_3072, first, rsa_4096, second, first];
    assert_performed(&engine, ids.into_iter().map(decrypt).collect(), ON_GPU).await;
    wait_until(|| engine.statistics().pending() == 0);
    let launches = script.launches();
    assert!(launches.iter().all(|(_, count)| *count <= 4), "{launches:?}");
    assert_eq!(launches.iter().map(|(_, count)| count).sum::<usize>(), ids.len());
    let statistics = engine.statistics();
    assert_eq!((statistics.operations(), statistics.faults(), statistics.taken_over()), (7, 0, 0));
}

#[tokio::test]
async fn signatures_verify() {
    let (engine, _, id) = small_engine();
    let verifications: [(_, &dyn signature::VerificationAlgorithm); 2] = [
        (SCHEME, &signature::RSA_PSS_2048_8192_SHA256),
        (SignatureScheme::RSA_PKCS1_SHA384, &signature::RSA_PKCS1_2048_8192_SHA384),
    ];
    for (scheme, verification) in verifications {
        let (signature, performer) = outcome(engine.submit(sign(id, scheme))).await;
        let public = keys().store.public_key(id).unwrap();
        let public = ParsedPublicKey::new(verification, public).unwrap();
        assert!(public.verify_sig(MESSAGE, &signature.unwrap()).is_ok(), "{scheme}");
        assert_eq!(performer, Some(PERFORMER));
    }
}

#[tokio::test]
async fn what_no_gpu_takes_the_processor_performs() {
    let script = Arc::<Script>::default();
    let engine = engine_of(&keys().store, 1, 4, &script);
    script.forget();
    assert_performed(&engine, vec![decrypt(keys().rsa_2056)], ON_PROCESSOR).await;
    let ecdsa = sign(keys().p256, SignatureScheme::ECDSA_SECP256R1_SHA256);
    assert!(engine.submit(ecdsa).await.is_ok());
    assert_eq!(script.launches(), []);
    let unknown = KeyId([1; 32]);
    assert_eq!(engine.submit(sign(unknown, SCHEME)).await, Err(KeyError::UnknownKey(unknown)));
    let refused = engine.submit(sign(keys().rsa_2048[0], SignatureScheme::ED25519)).await;
    assert!(matches!(refused, Err(KeyError::UnsupportedScheme { .. })));
}

#[tokio::test]
async fn a_wave_goes_at_once_and_what_is_left_when_it_has_waited() {
    let (engine, script, id) = small_engine();
    assert_performed(&engine, (0..5).map(|_| decrypt(id)).collect(), ON_GPU).await;
    assert_eq!(script.launches(), [(Width::Rsa2048, 4), (Width::Rsa2048, 1)]);
    wait_until(|| engine.statistics().pending() == 0);
    assert_eq!(engine.statistics().launches(), 2);
}

#[tokio::test]
async fn blinding_pairs_go_round_their_ring() {
    let (engine, script, id) = small_engine();
    // Two launches were measurements, and each launch renews the oldest pair.
    for slot in (2..SLOTS).chain(0..4) {
        assert_performed(&engine, vec![decrypt(id); 4], ON_GPU).await;
        let (used, advances) = script.last.lock().unwrap().clone();
        assert_eq!(advances, [0, slot]);
        assert!(used.len() == 8 && !used.contains(&slot), "{used:?}");
    }
    assert_eq!(engine.statistics().faults(), 0);
}

#[tokio::test]
async fn what_the_gpu_computed_wrongly_the_processor_computes_again() {
    let ((keystore, id), script) = (own_keystore(), Arc::<Script>::default());
    let engine = engine_of(&keystore, 1, 4, &script);
    for half in [0, 1] {
        script.then(Fate::Fault(Fault { operation: 2, half }));
        let operations: Vec<_> = (0..4).map(|_| decrypt(id)).collect();
        let pending: Vec<_> = operations.iter().map(|operation| engine.submit(operation.clone())).collect();
        for (index, (operation, pending)) in operations.iter().zip(pending).enumerate() {
            let (result, performer) = outcome(pending).await;
            assert_eq!(result, expected(operation));
            assert_eq!(performer == Some(PERFORMER), index != 2);
        }
    }
    let statistics = engine.statistics();
    wait_until(|| statistics.pending() == 0);
    assert_eq!((statistics.operations(), statistics.faults(), statistics.taken_over()), (6, 2, 2));
    assert!(!statistics.is_lost());
}

#[tokio::test]
async fn a_gpu_that_computes_most_things_wrongly_is_given_up() {
    let (keystore, id) = own_keystore();
    let script = Script::with_stand_in(vec![Reference::of(key(2048))]);
    let engine = engine_of(&keystore, 1, 8, &script);
    script.then(Fate::Faults);
    assert_performed(&engine, (0..8).map(|_| decrypt(id)).collect(), ON_PROCESSOR).await;
    wait_until(|| engine.statistics().is_lost());
    assert_eq!(engine.statistics().taken_over(), 8);
}

#[tokio::test]
async fn when_the_gpu_is_lost_the_processor_does_its_work() {
    for fate in [Fate::Loss, Fate::Panic] {
        let (engine, script, id) = small_engine();
        script.close();
        script.then(fate);
        let operations: Vec<_> = (0..12).map(|_| decrypt(id)).collect();
        let pending: Vec<_> = operations.iter().map(|operation| engine.submit(operation.clone())).collect();
        script.open();
        // The operations of the launch, and those that waited for the next one.
        for (operation, pending) in operations.iter().zip(pending) {
            let (result, performer) = outcome(pending).await;
            assert_eq!(result, expected(operation));
            assert_ne!(performer, Some(PERFORMER));
        }
        let statistics = engine.statistics();
        assert!(statistics.is_lost());
        assert_eq!((statistics.operations(), statistics.taken_over()), (0, 12));
        wait_until(|| statistics.pending() == 0);
        assert_performed(&engine, vec![decrypt(id)], ON_PROCESSOR).await;
        assert_eq!(script.launches().len(), 1, "nothing is sent there any more");
    }
}

#[tokio::test]
async fn a_ciphertext_out_of_range_is_no_fault_and_harms_no_other() {
    let (engine, _, id) = small_engine();
    let wrong = KeyOperation::decrypt(id, Bytes::from(vec![0xff; 256]), deadline());
    let refused = engine.submit(wrong);
    assert_performed(&engine, vec![decrypt(id)], ON_GPU).await;
    assert_eq!(refused.await, Err(KeyError::OutOfRange));
    assert_eq!(engine.statistics().faults(), 0);
}

#[tokio::test]
async fn no_work_is_begun_that_was_abandoned_or_comes_too_late() {
    let (engine, script, id) = small_engine();
    script.close();
    let first = engine.submit(decrypt(id));
    wait_until(|| script.is_waiting());
    let late = engine.submit(KeyOperation { deadline: Instant::now(), ..decrypt(id) });
    drop(engine.submit(decrypt(id)));
    script.open();
    assert!(first.await.is_ok());
    assert_eq!(late.await, Err(KeyError::DeadlinePassed));
    wait_until(|| engine.statistics().pending() == 0);
    assert_eq!(engine.statistics().operations(), 1);
}

#[tokio::test]
async fn what_finds_the_queue_full_the_processor_performs() {
    let ((keystore, id), (streams, script)) = (own_keystore(), small_gpu(1));
    let settings = CudaSettings { queue: NonZeroUsize::MIN, wait: Duration::ZERO, ..CudaSettings::default() };
    let processor = processor(&keystore, &BatchSettings::default());
    let engine = CudaEngine::with_streams(processor, &settings, streams, String::new()).unwrap();
    script.close();
    let first = engine.submit(decrypt(id));
    wait_until(|| script.is_waiting());
    let second = engine.submit(decrypt(id));
    assert_performed(&engine, vec![decrypt(id)], ON_PROCESSOR).await;
    script.open();
    assert!(first.await.is_ok() && second.await.is_ok());
    assert_eq!(engine.statistics().taken_over(), 1);
}

#[tokio::test]
async fn a_reload_brings_keys_and_wipes_those_that_went() {
    let ((keystore, id), other) = (own_keystore(), TestKey::generate(2048));
    let script = Script::with_stand_in(vec![Reference::of(key(2048)), Reference::of(&other)]);
    let engine = engine_of(&keystore, 1, 4, &script);
    drop(keystore);
    assert_eq!(Script::count(&script.uploads), 1);
    let mut store = Keystore::new();
    store.add_der(key(2048).der.clone_key()).unwrap();
    let new = store.add_der(other.der.clone_key()).unwrap();
    let second = engine.with_keystore(Arc::new(store));
    let operation = KeyOperation { key: new, ..decrypt(id) };
    let OperationKind::Decrypt { ciphertext } = &operation.kind else { panic!("not a decryption") };
    let output = Reference::of(&other).transform(ciphertext).unwrap();
    assert_eq!(second.submit(operation).await, Ok(output.into()));
    assert_eq!(Script::count(&script.uploads), 2, "what was there was not uploaded again");
    // From its next operation on, the common key belongs to the new keystore.
    assert_performed(&second, vec![decrypt(id)], ON_GPU).await;
    drop(engine);
    let third = second.with_keystore(own_keystore().0);
    assert_performed(&third, vec![decrypt(id)], ON_GPU).await;
    drop(second);
    wait_until(|| Script::count(&script.wiped) == 1);
    assert_performed(&third, vec![decrypt(id)], ON_GPU).await;
}

/// The sweep before the upload removed a key of the same launch, because its former owner was gone, and the launch panicked.
#[test]
fn a_new_key_keeps_the_place_of_one_that_a_reload_created_again() {
    let ((keystore, id), other) = (own_keystore(), TestKey::generate(2048));
    let script = Script::with_stand_in(vec![Reference::of(key(2048)), Reference::of(&other)]);
    let mut stream = KeyedStream::new(Box::new(HostGpu::new(4, &script)));
    stream.admit(Width::Rsa2048, [device::key(&keystore, id).unwrap()].into_iter()).unwrap();
    drop(keystore);
    let mut store = Keystore::new();
    let ids = [key(2048), &other].map(|key| store.add_der(key.der.clone_key()).unwrap());
    let keys = ids.map(|id| device::key(&store, id).unwrap());
    stream.admit(Width::Rsa2048, keys.into_iter()).unwrap();
    assert_eq!((Script::count(&script.uploads), Script::count(&script.wiped)), (2, 0));
}

#[test]
fn an_engine_that_goes_away_finishes_its_queue_and_leaves_no_key_on_the_gpu() {
    let (keystore, id) = own_keystore();
    let script = Script::with_stand_in(vec![Reference::of(key(2048))]);
    let engine = engine_of(&keystore, 2, 4, &script);
    let mut pending: Vec<_> = (0..6).map(|_| engine.submit(decrypt(id))).collect();
    drop(engine);
    assert_eq!(Script::count(&script.gone), 2);
    for pending in &mut pending {
        assert!(pending.try_take().expect("it was answered").is_ok());
    }
}

#[test]
fn times_are_measured_with_the_keys_there_are() {
    let (engine, _, _) = small_engine();
    let times = engine.statistics().times(2048).unwrap();
    assert!(times.processor > Duration::ZERO && times.one > Duration::ZERO);
    assert_eq!(times.wave_operations, 4);
    assert_eq!(engine.statistics().times(4096), None);
}

#[test]
fn a_gpu_that_fails_its_rehearsal_is_not_used() {
    let ((keystore, _), (streams, script)) = (own_keystore(), small_gpu(4));
    script.then(Fate::Faults);
    let processor = processor(&keystore, &BatchSettings::default());
    let refused = CudaEngine::with_streams(processor, &CudaSettings::default(), streams, String::new());
    assert_eq!(refused.unwrap_err(), CudaError::Untrustworthy { wrong: 1, of: 1 });
    assert_eq!(Script::count(&script.gone), 1);
}

#[tokio::test]
async fn few_operations_go_to_the_processor_and_many_to_the_gpu() {
    let ((keystore, id), (streams, script)) = (own_keystore(), small_gpu(64));
    let queue = NonZeroUsize::new(8).unwrap();
    let settings = CudaSettings { wait: Duration::ZERO, ..CudaSettings::default() };
    script.slow_down();
    let processor = processor(&keystore, &BatchSettings { queue, ..BatchSettings::default() });
    let engine = CudaEngine::with_streams(processor, &settings, streams, "a GPU".into()).unwrap();
    script.forget();
    let tiered = Tiered::new(engine, settings.wait);
    // The simulated GPU is so slow that half of the queue is the limit.
    assert_eq!((tiered.threshold(2048), tiered.threshold(3072)), (Some(4), None));
    assert_eq!(tiered.to_string(), "RSA on a GPU under load: from 4 operations of 2048 bits");

    assert_performed(&tiered, vec![decrypt(id)], ON_PROCESSOR).await;
    assert_eq!(script.launches(), []);
    // Submitted faster than the processor performs them.
    assert_performed(&tiered, (0..40).map(|_| decrypt(id)).collect(), &[ON_GPU, ON_PROCESSOR].concat()).await;
    assert!(tiered.statistics().operations() > 0);
    wait_until(|| tiered.statistics().pending() == 0);
    assert_performed(&tiered, vec![decrypt(id)], ON_PROCESSOR).await;
}

#[tokio::test]
async fn without_threads_of_the_processor_nothing_goes_to_the_gpu() {
    let ((keystore, id), (streams, _)) = (own_keystore(), small_gpu(4));
    let offload = Offload { rsa: false, ecdsa: false, ed25519: false };
    let processor = processor(&keystore, &BatchSettings { offload, ..BatchSettings::default() });
    let engine =
        CudaEngine::with_streams(processor, &CudaSettings::default(), streams, "a GPU".into()).unwrap();
    let tiered = Tiered::new(engine, Duration::ZERO);
    assert_eq!(tiered.threshold(2048), None);
    assert_performed(&tiered, vec![decrypt(id); 3], ON_PROCESSOR).await;
}

#[test]
fn a_machine_without_a_gpu_says_what_it_lacks_in_a_line() {
    let keystore = Arc::<Keystore>::default();
    let engine = CudaEngine::new(processor(&keystore, &BatchSettings::default()), &CudaSettings::default());
    match engine {
        Err(error) => {
            assert!(matches!(
                error,
                CudaError::NoDriver | CudaError::NoCompiler | CudaError::NoDevice { .. }
            ));
            assert!(!error.to_string().contains('\n'), "{error}");
            assert!(error.to_string().starts_with("no N"), "{error}");
        }
        Ok(engine) => eprintln!("not tested, since there is a GPU: {engine}"),
    }
}
