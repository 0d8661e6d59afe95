use std::{
    sync::{Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use aws_lc_rs::signature::ParsedPublicKey;
use brisk_lanes::rsa_lanes::{Instructions, Lane, OPERATIONS, Verdict, Width, private_transform};
use brisk_testkit::rsa::{TestKey, key};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;

use super::{
    threads::{Desk, work},
    *,
};
use crate::{
    KeyId, KeyResult, Performer,
    testing::{self, MESSAGE, deadline, verification},
};

/// Batches of four, and from two operations on; from three on with 4096 bits.
const IFMA: Transform = Transform { choose: by_fours, perform: private_transform };

fn by_fours(width: Width) -> BatchChoice {
    let batch = if width == Width::Rsa4096 { 250 } else { 150 };
    chosen(width, Instructions::Ifma, batch)
}

/// Batches of two.
fn by_twos(width: Width) -> BatchChoice {
    chosen(width, Instructions::Fma, 150)
}

/// Batches that take as long as this percentage of an operation alone.
fn chosen(width: Width, instructions: Instructions, percentage: u64) -> BatchChoice {
    let alone = Duration::from_micros(200);
    BatchChoice::of(width, alone, Some((instructions, alone * percentage as u32 / 100)))
}

const SCHEME: SignatureScheme = SignatureScheme::RSA_PSS_RSAE_SHA256;

/// Keys of each size that has lanes, two of the smallest, one of another size, and an ECDSA key.
struct Keys {
    store: Arc<Keystore>,
    rsa_2048: [KeyId; 2],
    rsa_3072: KeyId,
    rsa_4096: KeyId,
    rsa_2056: KeyId,
    p256: KeyId,
}

/// Made once, since RSA keys take long.
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

/// A keystore of one test alone, with one RSA key.
fn own_keystore() -> (Arc<Keystore>, KeyId) {
    let mut store = Keystore::new();
    let id = store.add_der(key(2048).der.clone_key()).unwrap();
    (Arc::new(store), id)
}

fn rsa(id: KeyId) -> KeyOperation {
    testing::sign(id, SCHEME)
}

fn ecdsa() -> KeyOperation {
    testing::sign(keys().p256, SignatureScheme::ECDSA_SECP256R1_SHA256)
}

fn answer(pending: &mut PendingOperation) -> KeyResult {
    pending.try_take().expect("it was answered")
}

#[track_caller]
fn assert_signed(id: KeyId, scheme: SignatureScheme, result: KeyResult) {
    let public = ParsedPublicKey::new(verification(scheme), keys().store.public_key(id).unwrap()).unwrap();
    assert!(public.verify_sig(MESSAGE, &result.unwrap()).is_ok());
}

/// Waits for a condition that comes true by itself.
fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_mins(1), "the condition still does not hold");
        thread::sleep(Duration::from_millis(1));
    }
}

/// An engine without threads: the test does their work when it likes.
struct Stage {
    engine: BatchEngine,
    desk: Mutex<Desk>,
    performing: Performing,
}

impl Stage {
    fn new() -> Self {
        Self::with(64, Some(IFMA))
    }

    fn with(queue: usize, transform: Option<Transform>) -> Self {
        Self::of(Arc::clone(&keys().store), queue, transform)
    }

    fn of(keystore: Arc<Keystore>, queue: usize, transform: Option<Transform>) -> Self {
        let statistics = Arc::<BatchStatistics>::default();
        let (queue, jobs) = crossbeam_channel::bounded(queue);
        let (offload, threads) = (Offload::default(), NonZeroUsize::MIN);
        let pool = Pool { queue, offload, threads, simd: true, transform };
        let engine = BatchEngine::of(keystore, Some(pool), Arc::clone(&statistics));
        let performing = Performing::new(transform, Arc::clone(&statistics));
        let desk = Mutex::new(Desk::new(jobs, statistics));
        Self { engine, desk, performing }
    }

    fn submit(&self, operations: impl IntoIterator<Item = KeyOperation>) -> Vec<PendingOperation> {
        operations.into_iter().map(|operation| self.engine.submit(operation)).collect()
    }

    /// Does all that waits; returns what went together.
    fn finish(self) -> [u64; OPERATIONS] {
        self.finish_with_statistics().performed()
    }

    fn finish_with_statistics(self) -> Arc<BatchStatistics> {
        let statistics = Arc::clone(self.engine.statistics());
        drop(self.engine);
        work(&self.desk, &self.performing);
        assert_eq!(statistics.waiting(), 0);
        statistics
    }
}

#[tokio::test]
async fn every_key_signs_with_every_scheme_of_its_own() {
    let engine = BatchEngine::new(Arc::clone(&keys().store), &BatchSettings::default()).unwrap();
    for id in keys().store.ids() {
        let schemes = keys().store.algorithm(id).unwrap().schemes();
        // All at a time: some of them go together.
        let pending: Vec<_> =
            schemes.iter().map(|scheme| engine.submit(testing::sign(id, *scheme))).collect();
        for (pending, scheme) in pending.into_iter().zip(schemes) {
            assert_signed(id, *scheme, pending.await);
        }
    }
    assert_eq!(engine.statistics().waiting(), 0);
    assert_eq!(engine.statistics().faults(), 0);
}

#[test]
fn different_keys_of_one_size_share_a_batch() {
    let stage = Stage::new();
    let [first, second] = keys().rsa_2048;
    let ids = [first, second, second, first];
    let mut pending = stage.submit(ids.map(rsa));
    assert_eq!(stage.finish(), [0, 0, 0, 4]);
    for (pending, id) in pending.iter_mut().zip(ids) {
        assert_signed(id, SCHEME, answer(pending));
        assert_eq!(pending.work().performer, Some(Performer::IFMA));
    }
}

#[test]
fn where_two_are_a_batch_no_more_go_together() {
    if !Instructions::Fma.are_supported() {
        eprintln!("skipped: this processor has no AVX2 and FMA");
        return;
    }
    let stage = Stage::with(64, Some(Transform { choose: by_twos, ..IFMA }));
    let [id, _] = keys().rsa_2048;
    let mut pending = stage.submit((0..5).map(|_| rsa(id)));
    assert_eq!(stage.finish(), [1, 4, 0, 0]);
    for pending in &mut pending {
        assert_signed(id, SCHEME, answer(pending));
    }
    let performers: Vec<_> = pending.iter().filter_map(|pending| pending.work().performer).collect();
    assert_eq!(
        performers,
        [Performer::FMA, Performer::FMA, Performer::FMA, Performer::FMA, Performer::AWS_LC]
    );
}

#[test]
fn sizes_are_not_mixed() {
    let stage = Stage::new();
    let ids = [keys().rsa_2048[0], keys().rsa_3072].repeat(3);
    let mut pending = stage.submit(ids.iter().map(|id| rsa(*id)));
    assert_eq!(stage.finish(), [0, 0, 6, 0]);
    for (pending, id) in pending.iter_mut().zip(ids) {
        assert_signed(id, SCHEME, answer(pending));
    }
}

#[test]
fn a_batch_that_is_not_full_goes_where_it_pays() {
    let [small, _] = keys().rsa_2048;
    for (id, operations, expected) in [
        (small, 1, [1, 0, 0, 0]),
        (small, 2, [0, 2, 0, 0]),
        (small, 5, [1, 0, 0, 4]),
        (keys().rsa_4096, 2, [2, 0, 0, 0]),
        (keys().rsa_4096, 3, [0, 0, 3, 0]),
        (keys().rsa_2056, 4, [4, 0, 0, 0]),
    ] {
        let stage = Stage::new();
        let mut pending = stage.submit((0..operations).map(|_| rsa(id)));
        assert_eq!(stage.finish(), expected, "{operations}");
        for pending in &mut pending {
            assert_signed(id, SCHEME, answer(pending));
        }
    }
}

#[test]
fn without_lanes_everything_is_performed_one_by_one() {
    let stage = Stage::with(64, None);
    let [id, _] = keys().rsa_2048;
    let mut pending = stage.submit((0..4).map(|_| rsa(id)));
    assert_eq!(stage.finish(), [4, 0, 0, 0]);
    for pending in &mut pending {
        assert_signed(id, SCHEME, answer(pending));
        assert_eq!(pending.work().performer, Some(Performer::AWS_LC));
    }
}

#[tokio::test]
async fn lanes_can_be_masked() {
    let settings = BatchSettings { simd: false, ..BatchSettings::default() };
    let engine = BatchEngine::new(Arc::clone(&keys().store), &settings).unwrap();
    let [id, _] = keys().rsa_2048;
    let pending: Vec<_> = (0..8).map(|_| engine.submit(rsa(id))).collect();
    for pending in pending {
        assert_signed(id, SCHEME, pending.await);
    }
    assert_eq!(engine.statistics().performed(), [8, 0, 0, 0]);
    assert_eq!(engine.to_string(), "RSA on 1 thread: one by one with AWS-LC, since simd = false");
}

#[test]
fn a_full_queue_refuses_instead_of_blocking() {
    let stage = Stage::with(2, Some(IFMA));
    let [id, _] = keys().rsa_2048;
    let mut waiting = stage.submit([rsa(id), rsa(id)]);
    let mut refused = stage.engine.submit(rsa(id));
    assert_eq!(answer(&mut refused), Err(KeyError::Overloaded));
    assert_eq!(refused.work().performer, None);
    assert_eq!(stage.engine.statistics().waiting(), 2);
    stage.finish();
    for pending in &mut waiting {
        assert!(answer(pending).is_ok(), "an engine that goes away finishes its queue");
    }
}

#[test]
fn no_work_is_begun_after_its_deadline() {
    let stage = Stage::new();
    let [id, _] = keys().rsa_2048;
    let late = |operation| KeyOperation { deadline: Instant::now(), ..operation };
    let mut pending = stage.submit([late(rsa(id)), rsa(id), late(rsa(id))]);
    assert_eq!(stage.finish(), [1, 0, 0, 0]);
    assert_eq!(answer(&mut pending[0]), Err(KeyError::DeadlinePassed));
    assert_signed(id, SCHEME, answer(&mut pending[1]));
    assert_eq!(answer(&mut pending[2]), Err(KeyError::DeadlinePassed));
}

#[test]
fn abandoned_operations_do_not_count_for_a_batch() {
    let stage = Stage::new();
    let [id, _] = keys().rsa_2048;
    let mut pending = stage.submit((0..8).map(|_| rsa(id)));
    let mut number = 0;
    pending.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    assert_eq!(stage.finish(), [0, 0, 0, 4]);
    for pending in &mut pending {
        assert_signed(id, SCHEME, answer(pending));
    }
}

#[test]
fn ten_thousand_abandoned_operations_leave_nothing_behind() {
    let (keystore, id) = own_keystore();
    let stage = Stage::of(Arc::clone(&keystore), 10_000, Some(IFMA));
    let pending = stage.submit((0..10_000).map(|_| rsa(id)));
    assert_eq!(stage.engine.statistics().waiting(), 10_000);
    assert_eq!(Arc::strong_count(keystore.get(id).unwrap()), 10_001);
    drop(pending);
    assert_eq!(stage.finish(), [0; OPERATIONS], "nothing was performed");
    assert_eq!(Arc::strong_count(keystore.get(id).unwrap()), 1);
    assert_eq!(Arc::strong_count(&keystore), 1);
}

#[tokio::test]
async fn operations_that_are_dropped_while_threads_work_leave_nothing_behind() {
    let (keystore, id) = own_keystore();
    let threads = Threads::Exactly(NonZeroUsize::new(2).unwrap());
    let settings = BatchSettings { threads, ..BatchSettings::default() };
    let engine = BatchEngine::new(Arc::clone(&keystore), &settings).unwrap();
    for _ in 0..10 {
        let pending: Vec<_> = (0..1000).map(|_| engine.submit(rsa(id))).collect();
        drop(pending);
        wait_until(|| engine.statistics().waiting() == 0);
    }
    wait_until(|| Arc::strong_count(keystore.get(id).unwrap()) == 1);
    assert!(engine.submit(rsa(id)).await.is_ok());
}

#[tokio::test]
async fn only_what_is_offloaded_leaves_the_thread() {
    let [id, _] = keys().rsa_2048;
    let engine = BatchEngine::new(Arc::clone(&keys().store), &BatchSettings::default()).unwrap();
    assert!(engine.submit(ecdsa()).try_take().is_some());
    assert_eq!(engine.statistics().performed(), [0; OPERATIONS]);

    let offload = Offload { rsa: false, ecdsa: true, ed25519: false };
    let settings = BatchSettings { offload, ..BatchSettings::default() };
    let engine = BatchEngine::new(Arc::clone(&keys().store), &settings).unwrap();
    assert_signed(id, SCHEME, answer(&mut engine.submit(rsa(id))));
    let signed = engine.submit(ecdsa()).await;
    assert_signed(keys().p256, SignatureScheme::ECDSA_SECP256R1_SHA256, signed);
    assert_eq!(engine.statistics().performed(), [1, 0, 0, 0]);
}

#[test]
fn without_offload_there_are_no_threads() {
    let offload = Offload { rsa: false, ecdsa: false, ed25519: false };
    let settings = BatchSettings { offload, ..BatchSettings::default() };
    let engine = BatchEngine::new(Arc::clone(&keys().store), &settings).unwrap();
    assert!(engine.pool.is_none());
    let [id, _] = keys().rsa_2048;
    let mut pending = engine.submit(rsa(id));
    assert_signed(id, SCHEME, answer(&mut pending));
    assert_eq!(pending.work().performer, Some(Performer::AWS_LC));
    assert!(engine.to_string().contains("by the workers themselves"), "{engine}");
}

#[test]
fn a_panic_is_answered_and_does_not_end_the_thread() {
    let stage = Stage::with(64, Some(Transform { perform: |_| panic!("injected"), ..IFMA }));
    let [id, _] = keys().rsa_2048;
    let mut pending = stage.submit((0..5).map(|_| rsa(id)));
    stage.finish();
    for pending in &mut pending[..4] {
        assert_eq!(answer(pending), Err(KeyError::Failed("the engine panicked")));
    }
    assert_signed(id, SCHEME, answer(&mut pending[4]));
}

/// The second lane's result does not stand the check.
fn with_a_fault(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
    let mut verdicts = private_transform(lanes);
    lanes[1].output.fill(0);
    verdicts[1] = Verdict::Fault;
    verdicts
}

#[test]
fn a_result_that_does_not_stand_the_check_is_computed_again() {
    let stage = Stage::with(64, Some(Transform { perform: with_a_fault, ..IFMA }));
    let [id, _] = keys().rsa_2048;
    let mut pending = stage.submit((0..4).map(|_| rsa(id)));
    let statistics = stage.finish_with_statistics();
    assert_eq!((statistics.performed(), statistics.faults()), ([0, 0, 0, 4], 1));
    for pending in &mut pending {
        assert_signed(id, SCHEME, answer(pending));
    }
    let performers: Vec<_> = pending.iter().filter_map(|pending| pending.work().performer).collect();
    assert_eq!(performers, [Performer::IFMA, Performer::AWS_LC, Performer::IFMA, Performer::IFMA]);
}

#[test]
fn a_ciphertext_out_of_range_is_no_fault_and_harms_no_other() {
    let stage = Stage::new();
    let [id, _] = keys().rsa_2048;
    let plaintext = b"premaster secret";
    let right = Bytes::from(key(2048).encrypt_pkcs1(plaintext));
    let wrong = Bytes::from(vec![0xff; 256]);
    let decrypt = |ciphertext| KeyOperation::decrypt(id, ciphertext, deadline());
    let mut pending = stage.submit([decrypt(wrong), decrypt(right), rsa(id)]);
    let statistics = stage.finish_with_statistics();
    assert_eq!((statistics.performed(), statistics.faults()), ([0, 0, 3, 0], 0));
    assert_eq!(answer(&mut pending[0]), Err(KeyError::OutOfRange));
    assert!(answer(&mut pending[1]).unwrap().ends_with(b"\0premaster secret"));
    assert_signed(id, SCHEME, answer(&mut pending[2]));
}

#[test]
fn what_the_key_cannot_do_is_refused_before_it_waits() {
    let stage = Stage::new();
    let unknown = KeyId([1; 32]);
    assert_eq!(answer(&mut stage.engine.submit(rsa(unknown))), Err(KeyError::UnknownKey(unknown)));
    let (scheme, algorithm) = (SignatureScheme::ED25519, KeyAlgorithm::Rsa { bits: 2048 });
    let refused = answer(&mut stage.engine.submit(testing::sign(keys().rsa_2048[0], scheme)));
    assert_eq!(refused, Err(KeyError::UnsupportedScheme { scheme, algorithm }));
    assert_eq!(stage.engine.statistics().waiting(), 0);
}

#[test]
fn an_engine_whose_threads_have_ended_says_so() {
    let Stage { engine, desk, .. } = Stage::new();
    drop(desk);
    let [id, _] = keys().rsa_2048;
    assert!(matches!(answer(&mut engine.submit(rsa(id))), Err(KeyError::Failed(_))));
}

#[tokio::test]
async fn an_engine_for_other_keys_shares_threads_and_statistics() {
    let [id, _] = keys().rsa_2048;
    let first = BatchEngine::new(Arc::default(), &BatchSettings::default()).unwrap();
    assert_eq!(first.submit(rsa(id)).await, Err(KeyError::UnknownKey(id)));
    let second = first.with_keystore(Arc::clone(&keys().store));
    drop(first);
    assert_signed(id, SCHEME, second.submit(rsa(id)).await);
    assert_eq!(second.statistics().performed(), [1, 0, 0, 0]);
}

#[tokio::test]
async fn threads_are_kept_on_cores() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap();
    let settings = BatchSettings { cores: vec![core], ..BatchSettings::default() };
    let engine = BatchEngine::new(Arc::clone(&keys().store), &settings).unwrap();
    let [id, _] = keys().rsa_2048;
    assert_signed(id, SCHEME, engine.submit(rsa(id)).await);

    let settings = BatchSettings { cores: vec![core, 1023], ..settings };
    let error = BatchEngine::new(Arc::clone(&keys().store), &settings).unwrap_err();
    assert_eq!(error.to_string(), "this process may not use core 1023");
}

#[test]
fn threads_get_the_cores_that_are_left() {
    let count = |number| NonZeroUsize::new(number).unwrap();
    let beside = |cores, workers| Threads::Beside { cores: count(cores), workers: count(workers) };
    let number = |cores, workers, by_fours| beside(cores, workers).number(|| by_fours).get();
    assert_eq!([number(8, 6, true), number(8, 1, false), number(2, 1, true)], [2, 7, 1]);
    assert_eq!([number(8, 8, false), number(2, 4, false), number(1, 1, false)], [8, 2, 1]);
    // One thread for four cores, where it does as much as three do one by one.
    assert_eq!([number(1, 1, true), number(4, 4, true), number(9, 9, true)], [1, 1, 3]);
    let unasked = || panic!("nothing is measured where the number does not depend on it");
    assert_eq!(
        [Threads::Exactly(count(7)), beside(8, 6)].map(|threads| threads.number(unasked).get()),
        [7, 2]
    );
}

#[test]
fn threads_that_share_cores_are_few_where_a_key_is_used_in_batches_of_four() {
    let threads = |keystore: &Arc<Keystore>, transform| {
        let beside =
            Threads::Beside { cores: NonZeroUsize::new(4).unwrap(), workers: NonZeroUsize::new(4).unwrap() };
        let settings = BatchSettings { threads: beside, ..BatchSettings::default() };
        let engine = BatchEngine::with_transform(Arc::clone(keystore), &settings, transform).unwrap();
        engine.pool.unwrap().threads.get()
    };
    let by_twos = Transform { choose: by_twos, ..IFMA };
    assert_eq!([threads(&keys().store, Some(IFMA)), threads(&keys().store, Some(by_twos))], [1, 4]);
    assert_eq!([threads(&keys().store, None), threads(&Arc::default(), Some(IFMA))], [4, 4]);
}

#[test]
fn the_engine_says_how_it_performs_rsa() {
    let threads = Threads::Exactly(NonZeroUsize::new(2).unwrap());
    let shown = |simd, transform: Option<Transform>, ids: &[KeyId]| {
        let mut store = Keystore::new();
        for id in ids {
            let bits = if *id == keys().rsa_4096 { 4096 } else { 2048 };
            store.add_der(key(bits).der.clone_key()).unwrap();
        }
        let settings = BatchSettings { threads, simd, ..BatchSettings::default() };
        BatchEngine::with_transform(Arc::new(store), &settings, transform).unwrap().to_string()
    };
    let ([small, _], large) = (keys().rsa_2048, keys().rsa_4096);
    assert_eq!(
        shown(true, Some(IFMA), &[small]),
        "RSA on 2 threads: 2048 bits in batches of four with AVX-512 IFMA, 2.7 times as fast as one by one"
    );
    assert_eq!(
        shown(true, Some(Transform { choose: by_twos, ..IFMA }), &[large, small]),
        "RSA on 2 threads: 2048 bits in batches of two with AVX2 and FMA, 1.3 times as fast as one by one; \
         4096 bits in batches of two with AVX2 and FMA, 1.3 times as fast as one by one"
    );
    let none = "RSA on 2 threads: one by one with AWS-LC, since no key has 2048, 3072 or 4096 bits";
    assert_eq!(shown(true, Some(IFMA), &[]), none);
    let masked = "RSA on 2 threads: one by one with AWS-LC, since simd = false";
    assert_eq!(shown(false, Some(IFMA), &[small]), masked);
    let unsupported = "RSA on 2 threads: one by one with AWS-LC, since this processor has no AVX2 and FMA";
    assert_eq!(shown(true, None, &[small]), unsupported);
}

#[test]
fn batches_that_are_slower_here_are_not_made() {
    fn slow(width: Width) -> BatchChoice {
        chosen(width, Instructions::Ifma, 8000)
    }
    let stage = Stage::with(64, Some(Transform { choose: slow, ..IFMA }));
    let [id, _] = keys().rsa_2048;
    let mut pending = stage.submit((0..4).map(|_| rsa(id)));
    assert_eq!(stage.finish(), [4, 0, 0, 0]);
    for pending in &mut pending {
        assert_signed(id, SCHEME, answer(pending));
    }
}
