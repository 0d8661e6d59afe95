//! Batches of P-256 signatures, gathered by a thread during one turn of its event loop and performed at its end.
//!
//! Only a thread that holds a [`Gathering`] gathers: it promises to call [`perform`] at the end of each turn in which
//! it was woken. On other threads, and on processors without lanes, an operation is performed at once.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;

use brisk_lanes::{
    LanesUse,
    ec_lanes::{self, LANES, Signing, TOGETHER},
};

use crate::{Completion, KeyOperation, OperationKind, PendingOperation, Performer, private_key::PrivateKey};

thread_local! {
    /// Called with the first operation of a turn. `None` if this thread does not gather.
    static WAKE: Cell<Option<fn()>> = const { Cell::new(None) };
    static WAITING: RefCell<Vec<Waiting>> = const { RefCell::new(Vec::new()) };
}

static SIGNATURES: TurnCounters = TurnCounters::new();
static FAULTS: AtomicU64 = AtomicU64::new(0);

// `*const ()` is not `Send`: dropped on another thread, the value would leave `WAKE` of this thread set.
/// Promise of this thread to call [`perform`]. On drop, waiting operations are performed, and the thread stops
/// gathering.
#[derive(Debug)]
pub struct Gathering(PhantomData<*const ()>);

impl Gathering {
    /// Starts gathering on this thread; returns `None` if lanes are never faster on this processor. `wake` is called
    /// for the first operation of each turn and must not block: it schedules a later call of [`perform`] on this
    /// thread.
    pub fn begin(wake: fn()) -> Option<Self> {
        LanesUse::of_this_processor().filter(|lanes| lanes.is_any())?;
        WAKE.set(Some(wake));
        Some(Self(PhantomData))
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        // First: an operation that is gathered after the last `perform` would never be performed.
        WAKE.set(None);
        perform();
    }
}

/// Counters of one kind of gathered operation, for all threads.
#[derive(Debug, Default)]
pub struct TurnCounters {
    in_lanes: AtomicU64,
    batches: AtomicU64,
    alone: AtomicU64,
    wait_micros: AtomicU64,
}

/// Counts of one kind of gathered operation since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnFigures {
    /// Operations performed in lanes.
    pub in_lanes: u64,
    /// Batches, of up to eight operations, for those in lanes.
    pub batches: u64,
    /// Operations that were gathered and performed one by one because there were too few.
    pub alone: u64,
    /// Sum of the times from gathering each operation until its batch begins.
    pub wait: Duration,
}

impl TurnCounters {
    /// Creates counters that are zero.
    pub const fn new() -> Self {
        let [in_lanes, batches, alone, wait_micros] = [const { AtomicU64::new(0) }; 4];
        Self { in_lanes, batches, alone, wait_micros }
    }

    /// Adds the operations of one turn, of which `in_lanes` were performed in lanes. `wait` is the sum of their
    /// waiting times.
    pub fn add(&self, operations: usize, in_lanes: usize, wait: Duration) {
        self.in_lanes.fetch_add(in_lanes as u64, Ordering::Relaxed);
        self.batches.fetch_add(in_lanes.div_ceil(LANES) as u64, Ordering::Relaxed);
        self.alone.fetch_add(operations.saturating_sub(in_lanes) as u64, Ordering::Relaxed);
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.wait_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The current counts.
    pub fn figures(&self) -> TurnFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TurnFigures {
            in_lanes: read(&self.in_lanes),
            batches: read(&self.batches),
            alone: read(&self.alone),
            wait: Duration::from_micros(read(&self.wait_micros)),
        }
    }
}

/// Counts of the signatures that all threads have gathered.
pub fn signatures() -> TurnFigures {
    SIGNATURES.figures()
}

/// Number of signatures from lanes that failed verification and were made again with AWS-LC.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// A signature to make at the end of the turn.
struct Waiting {
    key: Arc<PrivateKey>,
    kind: OperationKind,
    completion: Completion,
    since: Instant,
}

/// Accepts `operation` if this thread gathers and `key` has a form for lanes; otherwise returns `None`.
pub(crate) fn gather(key: &Arc<PrivateKey>, operation: &KeyOperation) -> Option<PendingOperation> {
    let wake = WAKE.get()?;
    // Only P-256 keys have this form, and the caller has checked the kind: the operation is a signature.
    key.p256()?;
    let (pending, completion) = PendingOperation::with_completion(operation.deadline);
    let (key, kind) = (Arc::clone(key), operation.kind.clone());
    let waiting = Waiting { key, kind, completion, since: Instant::now() };
    // The borrow ends before `wake`, which is code of another crate and may call back into this module.
    let is_first = WAITING.with_borrow_mut(|all| {
        all.push(waiting);
        all.len() == 1
    });
    if is_first {
        wake();
    }
    Some(pending)
}

/// Runs `call` without gathering: its operations are performed at once.
pub fn alone<T>(call: impl FnOnce() -> T) -> T {
    /// Restores the waker on drop, also after a panic.
    struct Wake(Option<fn()>);
    impl Drop for Wake {
        fn drop(&mut self) {
            WAKE.set(self.0);
        }
    }
    let _wake = Wake(WAKE.replace(None));
    call()
}

/// Whether operations of this thread wait for [`perform`].
pub fn is_waiting() -> bool {
    WAITING.with_borrow(|waiting| !waiting.is_empty())
}

/// Performs the operations that this thread has gathered, in lanes if that is faster than one by one.
pub fn perform() {
    // Not borrowed: completed operations may gather others, which belong to the next turn.
    let mut waiting = WAITING.take();
    let break_even = LanesUse::of_this_processor().map_or(usize::MAX, |lanes| lanes.signatures);
    let mut begun: Vec<_> = waiting.drain(..).filter_map(Waiting::begin).collect();
    // Abandoned and expired operations are removed before the count decides for lanes.
    let in_lanes = ec_lanes::worth_lanes(begun.len(), break_even);
    if let Some(now) = begun.first().map(|_| Instant::now()) {
        let wait = begun.iter().map(|waiting| now.saturating_duration_since(waiting.since)).sum();
        SIGNATURES.add(begun.len(), in_lanes, wait);
    }
    for alone in begun.drain(in_lanes..) {
        alone.perform();
    }
    let mut begun = begun.into_iter();
    while begun.len() > 0 {
        perform_together(begun.by_ref().take(TOGETHER).collect());
    }
    // Keeps the allocation for the next turn, unless completing the operations has gathered new ones.
    WAITING.with_borrow_mut(|now| {
        if now.is_empty() {
            *now = waiting;
        }
    });
}

/// Performs at most [`TOGETHER`] operations in lanes.
fn perform_together(begun: Vec<Waiting>) {
    let operations: Vec<_> = begun.iter().filter_map(Waiting::signing).collect();
    // Gathered operations are P-256 signatures, so each has a `Signing`.
    debug_assert_eq!(operations.len(), begun.len());
    let signatures = ec_lanes::sign(&operations);
    for (waiting, signature) in begun.into_iter().zip(signatures) {
        if let Some(signature) = signature {
            waiting.completion.complete(Ok(signature.to_der().into()), Performer::IFMA);
        } else {
            let faults = FAULTS.fetch_add(1, Ordering::Relaxed) + 1;
            // Ever more rarely, so that defective hardware does not fill the log.
            if faults.is_power_of_two() {
                tracing::error!(
                    faults,
                    "an ECDSA signature made in lanes did not stand its check; it was made again"
                );
            }
            waiting.perform();
        }
    }
}

impl Waiting {
    /// Starts the operation; `None` if its caller has abandoned it or its deadline has passed.
    fn begin(mut self) -> Option<Self> {
        self.completion = self.completion.begin()?;
        Some(self)
    }

    fn signing(&self) -> Option<Signing<'_>> {
        Some(Signing { key: self.key.p256()?, digest: sha256(self.message()?) })
    }

    const fn message(&self) -> Option<&Bytes> {
        match &self.kind {
            OperationKind::Sign { message, .. } => Some(message),
            OperationKind::Decrypt { .. } => None,
        }
    }

    /// Performs the operation with AWS-LC.
    fn perform(self) {
        let result = self.key.perform(&self.kind);
        self.completion.complete(result, Performer::AWS_LC);
    }
}

fn sha256(message: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, message).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::ParsedPublicKey;
    use brisk_wire::registry::SignatureScheme;
    use rustls_pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use crate::{
        KeyAlgorithm, KeyError, LocalEngine, PrivateKeyEngine,
        testing::{MESSAGE, key, keystore, sign, verification},
    };

    const SCHEME: SignatureScheme = SignatureScheme::ECDSA_SECP256R1_SHA256;

    fn operation() -> KeyOperation {
        sign(key(KeyAlgorithm::EcdsaP256), SCHEME)
    }

    fn is_valid(signature: &[u8]) -> bool {
        let spki = keystore().public_key(key(KeyAlgorithm::EcdsaP256)).expect("the key").to_vec();
        let public = ParsedPublicKey::new(verification(SCHEME), spki).expect("a key");
        public.verify_sig(MESSAGE, signature).is_ok()
    }

    #[test]
    fn without_the_promise_an_operation_is_performed_at_once() {
        let mut pending = LocalEngine::new(keystore()).submit(operation());
        assert!(is_valid(&pending.try_take().expect("it is done").expect("a signature")));
    }

    #[test]
    fn what_is_gathered_is_performed_at_the_end_of_the_turn() {
        let Some(gathering) = Gathering::begin(|| {}) else { return };
        let break_even = LanesUse::of_this_processor().expect("it was measured").signatures;
        let engine = LocalEngine::new(keystore());
        for fill in (1..=20).chain([64, 70]) {
            let mut pending: Vec<_> = (0..fill).map(|_| engine.submit(operation())).collect();
            assert!(pending.iter_mut().all(|pending| pending.try_take().is_none()), "nothing is done yet");
            assert!(is_waiting());
            perform();
            for pending in &mut pending {
                assert!(is_valid(&pending.try_take().expect("it is done").expect("a signature")), "{fill}");
            }
            let in_lanes = pending.iter().filter(|pending| pending.performer() == Some(Performer::IFMA));
            assert_eq!(in_lanes.count(), ec_lanes::worth_lanes(fill, break_even), "{fill}");
            assert!(!is_waiting());
        }
        let mut last = engine.submit(operation());
        drop(gathering);
        assert!(last.try_take().is_some(), "nothing is left waiting");
        assert!(engine.submit(operation()).try_take().is_some());
    }

    #[test]
    fn aws_lc_answers_for_lanes_that_computed_wrong() {
        let Some(_gathering) = Gathering::begin(|| {}) else { return };
        let der = rcgen::KeyPair::generate().expect("a key").serialize_der();
        let mut key = PrivateKey::from_der(&PrivatePkcs8KeyDer::from(der).into()).expect("a usable key");
        let public = ParsedPublicKey::new(verification(SCHEME), key.spki()).expect("a key");
        key.p256_mut().expect("a key of P-256").flip_a_bit();
        let (key, before) = (Arc::new(key), faults());
        let mut pending: Vec<_> =
            (0..16).map(|_| gather(&key, &operation()).expect("this thread gathers")).collect();
        perform();
        for pending in &mut pending {
            let signature = pending.try_take().expect("it is done").expect("a signature");
            assert!(public.verify_sig(MESSAGE, &signature).is_ok());
            assert_eq!(pending.performer(), Some(Performer::AWS_LC));
        }
        let in_lanes =
            ec_lanes::worth_lanes(16, LanesUse::of_this_processor().expect("it was measured").signatures);
        assert_eq!(faults() - before, in_lanes as u64);
    }

    #[test]
    fn who_wants_no_company_waits_for_nothing() {
        let Some(_gathering) = Gathering::begin(|| {}) else { return };
        let engine = LocalEngine::new(keystore());
        assert!(alone(|| engine.submit(operation())).try_take().is_some());
        assert!(engine.submit(operation()).try_take().is_none());
    }

    #[test]
    fn a_thread_gathers_on_after_a_call_alone_that_panicked() {
        WAKE.set(Some(|| {}));
        std::panic::catch_unwind(|| alone(|| panic!("as a bug would"))).expect_err("it panics");
        assert!(WAKE.replace(None).is_some());
    }

    #[test]
    fn what_no_caller_waits_for_is_not_performed() {
        let Some(_gathering) = Gathering::begin(|| {}) else { return };
        let engine = LocalEngine::new(keystore());
        drop(engine.submit(operation()));
        let mut late = engine.submit(KeyOperation { deadline: Instant::now(), ..operation() });
        let mut wanted = engine.submit(operation());
        perform();
        assert_eq!(late.try_take(), Some(Err(KeyError::DeadlinePassed)));
        assert!(wanted.try_take().expect("it is done").is_ok());
    }
}
