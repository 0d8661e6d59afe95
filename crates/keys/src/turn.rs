//! Signatures with P-256 that one thread gathers in one turn of its event loop, and makes together at the end of it.
//!
//! Only a thread that holds a [`Gathering`] gathers: it promises to call [`perform`] in each turn in which something
//! was gathered. On other threads, and where the processor has no lanes, an operation is performed at once.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;

use crate::{
    Completion, KeyOperation, LanesUse, OperationKind, PendingOperation, Performer,
    ec_lanes::{self, PreparedKey, Signature, Signing, TOGETHER},
    private_key::PrivateKey,
};

thread_local! {
    static GATHERS: Cell<bool> = const { Cell::new(false) };
    static WAITING: RefCell<Vec<Waiting>> = const { RefCell::new(Vec::new()) };
}

static TOGETHER_COUNT: AtomicU64 = AtomicU64::new(0);
static BATCHES: AtomicU64 = AtomicU64::new(0);
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// A promise of this thread to perform what it gathers. When it is dropped, what waits is performed, and nothing is gathered
/// any more.
#[derive(Debug)]
pub struct Gathering(PhantomData<*const ()>);

impl Gathering {
    /// `None` where lanes are never worth it; nothing is gathered then.
    pub fn begin() -> Option<Self> {
        LanesUse::of_this_processor().filter(|lanes| lanes.is_any())?;
        GATHERS.set(true);
        Some(Self(PhantomData))
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        GATHERS.set(false);
        perform();
    }
}

/// What lanes have done for signatures since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnFigures {
    /// Signatures made in lanes.
    pub signatures: u64,
    /// The batches of up to eight that they were made in.
    pub batches: u64,
    /// Results that did not stand their check: signatures made a second time, by aws-lc.
    pub faults: u64,
}

/// What the threads of this process have made together so far.
pub fn figures() -> TurnFigures {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    TurnFigures { signatures: read(&TOGETHER_COUNT), batches: read(&BATCHES), faults: read(&FAULTS) }
}

/// A signature to be made at the end of the turn.
struct Waiting {
    key: Arc<PrivateKey>,
    kind: OperationKind,
    completion: Completion,
}

/// Takes an operation if it is one to be gathered, on a thread that gathers.
pub(crate) fn gather(key: &Arc<PrivateKey>, operation: &KeyOperation) -> Option<PendingOperation> {
    if !GATHERS.get() || key.p256().is_none() {
        return None;
    }
    let (pending, completion) = PendingOperation::with_completion(operation.deadline);
    let waiting = Waiting { key: Arc::clone(key), kind: operation.kind.clone(), completion };
    WAITING.with_borrow_mut(|all| all.push(waiting));
    Some(pending)
}

/// Calls something whose operations are not to be gathered: they are performed at once.
pub fn alone<T>(call: impl FnOnce() -> T) -> T {
    let gathers = GATHERS.replace(false);
    let result = call();
    GATHERS.set(gathers);
    result
}

/// Whether this thread has gathered operations that wait for [`perform`].
pub fn is_waiting() -> bool {
    WAITING.with_borrow(|waiting| !waiting.is_empty())
}

/// Performs what this thread has gathered: in lanes where that takes less time than one by one.
pub fn perform() {
    let mut waiting = WAITING.take();
    let break_even = LanesUse::of_this_processor().map_or(usize::MAX, |lanes| lanes.signatures);
    let mut begun: Vec<_> = waiting.drain(..).filter_map(Waiting::begin).collect();
    let in_lanes = ec_lanes::worth_lanes(begun.len(), break_even);
    for alone in begun.drain(in_lanes..) {
        alone.perform();
    }
    let mut begun = begun.into_iter();
    while begun.len() > 0 {
        perform_together(begun.by_ref().take(TOGETHER).collect());
    }
    // The room is kept for the next turn, unless another thread's worth of operations came in the meantime.
    WAITING.with_borrow_mut(|now| {
        if now.is_empty() {
            *now = waiting;
        }
    });
}

/// At most [`TOGETHER`].
fn perform_together(begun: Vec<Waiting>) {
    let operations: Vec<_> = begun.iter().filter_map(Waiting::signing).collect();
    // What is gathered has a key of P-256, and is to sign: there is an operation for each.
    debug_assert_eq!(operations.len(), begun.len());
    let signatures = ec_lanes::sign(&operations);
    TOGETHER_COUNT.fetch_add(operations.len() as u64, Ordering::Relaxed);
    BATCHES.fetch_add(operations.len().div_ceil(8) as u64, Ordering::Relaxed);
    for (waiting, signature) in begun.into_iter().zip(signatures) {
        if let Some(signature) = signature {
            waiting.completion.complete(Ok(signature.to_der().into()), Performer::IFMA);
        } else {
            let faults = FAULTS.fetch_add(1, Ordering::Relaxed) + 1;
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
    /// `None` if its caller has abandoned it, or its deadline has passed.
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

    /// With aws-lc.
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

/// What a key of P-256 has for lanes; `None` where there are none.
pub(crate) fn prepare(pair: &aws_lc_rs::signature::EcdsaKeyPair) -> Option<Box<PreparedKey>> {
    if !ec_lanes::are_supported() {
        return None;
    }
    PreparedKey::of_pair(pair).map(Box::new)
}

impl Signature {
    /// As TLS has it: RFC 3279 section 2.2.3.
    fn to_der(self) -> Vec<u8> {
        let mut der = vec![0x30, 0];
        for number in [&self.r, &self.s] {
            let zeros = number.iter().take_while(|byte| **byte == 0).count().min(31);
            let significant = &number[zeros..];
            // An integer is signed: a highest bit that is set wants a zero before it.
            let zero = significant[0] >> 7;
            der.extend([0x02, significant.len() as u8 + zero]);
            der.extend(std::iter::repeat_n(0, usize::from(zero)));
            der.extend(significant);
        }
        der[1] = (der.len() - 2) as u8;
        der
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use aws_lc_rs::signature::ParsedPublicKey;
    use brisk_wire::registry::SignatureScheme;

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
        let Some(gathering) = Gathering::begin() else { return };
        let engine = LocalEngine::new(keystore());
        for fill in (1..=20).chain([64, 70]) {
            let mut pending: Vec<_> = (0..fill).map(|_| engine.submit(operation())).collect();
            assert!(pending.iter_mut().all(|pending| pending.try_take().is_none()), "nothing is done yet");
            assert!(is_waiting());
            perform();
            for pending in &mut pending {
                assert!(is_valid(&pending.try_take().expect("it is done").expect("a signature")), "{fill}");
            }
            assert!(!is_waiting());
        }
        assert_eq!(figures().faults, 0);
        let mut last = engine.submit(operation());
        drop(gathering);
        assert!(last.try_take().is_some(), "nothing is left waiting");
        assert!(engine.submit(operation()).try_take().is_some());
    }

    #[test]
    fn who_wants_no_company_waits_for_nothing() {
        let Some(_gathering) = Gathering::begin() else { return };
        let engine = LocalEngine::new(keystore());
        assert!(alone(|| engine.submit(operation())).try_take().is_some());
        assert!(engine.submit(operation()).try_take().is_none());
    }

    #[test]
    fn what_no_caller_waits_for_is_not_performed() {
        let Some(_gathering) = Gathering::begin() else { return };
        let engine = LocalEngine::new(keystore());
        drop(engine.submit(operation()));
        let mut late = engine.submit(KeyOperation { deadline: Instant::now(), ..operation() });
        let mut wanted = engine.submit(operation());
        perform();
        assert_eq!(late.try_take(), Some(Err(KeyError::DeadlinePassed)));
        assert!(wanted.try_take().expect("it is done").is_ok());
    }

    #[test]
    fn der_is_the_shortest_form() {
        let number = |first: usize, byte: u8| {
            let mut number = [0; 32];
            number[first..].fill(byte);
            number
        };
        let der = Signature { r: number(0, 0x80), s: number(30, 0x7f) }.to_der();
        assert_eq!(der[..6], [0x30, 33 + 2 + 4, 0x02, 33, 0, 0x80]);
        assert_eq!(der[37..], [0x02, 2, 0x7f, 0x7f]);
    }
}
