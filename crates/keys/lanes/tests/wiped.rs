//! No secret of a key exchange is in memory that was given back to the allocator.
#![expect(unsafe_code, reason = "an allocator that looks at what it is given back")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::{Mutex, PoisonError},
};

use aws_lc_rs::{
    agreement::{PrivateKey, X25519},
    kem::{DecapsulationKey, ML_KEM_768},
};
use brisk_lanes::{Encapsulation, Exchange, KeyPair, LanesUse};

/// Keeps what is in each block that a recording thread frees.
struct Recorder;

#[global_allocator]
static ALLOCATOR: Recorder = Recorder;

/// Never grows while it is filled.
static FREED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

thread_local! {
    static RECORDS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: `System` is asked for all of it. To reallocate is to allocate, copy and free, as it is by default.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised to this function. Zeroes, for what is read later has to be initialized.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if RECORDS.get() {
            // SAFETY: as promised to this function, these bytes are the block's, and nothing else uses it.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
            let room = freed.capacity() - freed.len();
            freed.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        // SAFETY: as promised to this function, and `System` made the block.
        unsafe { System.dealloc(block, layout) };
    }
}

/// What was in the blocks that `call` freed.
fn freed_by(call: impl FnOnce()) -> Vec<u8> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    *FREED.lock().expect("a record") = Vec::with_capacity(1 << 20);
    RECORDS.set(true);
    call();
    RECORDS.set(false);
    let freed = std::mem::take(&mut *FREED.lock().expect("a record"));
    assert!(freed.len() < freed.capacity(), "there was room for all of it");
    freed
}

fn contains(freed: &[u8], secret: &[u8; 32]) -> bool {
    freed.windows(32).any(|bytes| bytes == secret)
}

fn public_of(scalar: &[u8]) -> Option<[u8; 32]> {
    let public = PrivateKey::from_private_key(&X25519, scalar).ok()?.compute_public_key().ok()?;
    public.as_ref().try_into().ok()
}

/// Whether 32 bytes in a row are the private key of one of these public ones.
fn has_scalar_of(freed: &[u8], public: &[[u8; 32]]) -> bool {
    let is_one = |bytes: &[u8]| public_of(bytes).is_some_and(|key| public.contains(&key));
    freed.windows(32).any(|bytes| bytes != [0; 32] && is_one(bytes))
}

/// As operations go to the end of a turn and back: through places that they are taken from again.
fn pass<T>(operations: Vec<T>, perform: impl FnOnce(&mut [T])) -> Vec<T> {
    let waiting: Vec<_> = operations.into_iter().map(|operation| Cell::new(Some(operation))).collect();
    let mut all: Vec<_> = waiting.iter().filter_map(Cell::take).collect();
    perform(&mut all);
    waiting.iter().zip(all).for_each(|(place, operation)| place.set(Some(operation)));
    waiting.into_iter().filter_map(Cell::into_inner).collect()
}

#[test]
fn the_recorder_sees_what_is_not_wiped() {
    let pair = KeyPair::generate().expect("randomness");
    let public = *pair.public();
    assert!(contains(&freed_by(|| drop(vec![public])), &public));
    let scalar = [9; 32];
    let public = public_of(&scalar).expect("a key");
    assert!(has_scalar_of(&freed_by(|| drop(vec![[0; 7].to_vec(), scalar.to_vec()])), &[public]));
}

#[test]
fn an_exchange_leaves_neither_its_scalar_nor_its_secret() {
    let peer = *KeyPair::generate().expect("randomness").public();
    let has_lanes = LanesUse::of_this_processor().is_some();
    let (mut public, mut shared) = (Vec::with_capacity(10), Vec::with_capacity(10));
    let freed = freed_by(|| {
        let mut pairs: Vec<_> = (0..2).filter_map(|_| KeyPair::generate()).collect();
        if has_lanes {
            pairs.extend(KeyPair::generate_eight().into_iter().flatten());
        }
        // One pair is never used.
        let pairs: Vec<_> = std::iter::from_fn(|| pairs.pop()).collect();
        public.extend(pairs.iter().map(|pair| *pair.public()));
        let mut exchanges: Vec<_> = pairs.into_iter().skip(1).map(|pair| pair.exchange(&peer)).collect();
        exchanges.iter_mut().for_each(Exchange::perform);
        if has_lanes {
            exchanges = pass(exchanges, Exchange::perform_together);
        }
        shared.extend(exchanges.iter().filter_map(|exchange| exchange.shared().copied()));
    });
    assert_eq!((public.len(), shared.len()), if has_lanes { (10, 9) } else { (2, 1) });
    assert!(!shared.iter().any(|secret| contains(&freed, secret)), "a shared secret");
    assert!(!has_scalar_of(&freed, &public), "a scalar");
}

#[test]
fn an_encapsulation_does_not_leave_its_secret() {
    let key = DecapsulationKey::generate(&ML_KEM_768).and_then(|key| key.encapsulation_key()).expect("a key");
    let key = key.key_bytes().expect("its bytes");
    let has_lanes = Encapsulation::break_even().is_some();
    let mut shared = Vec::with_capacity(9);
    let freed = freed_by(|| {
        let all: Vec<_> = (0..9).filter_map(|_| Encapsulation::new(key.as_ref())).collect();
        let all = pass(all, |all| {
            all.iter_mut().for_each(Encapsulation::perform);
            if has_lanes {
                Encapsulation::perform_together(&mut all[1..]);
            }
        });
        shared.extend(all.iter().filter_map(|one| one.shared().copied()));
    });
    assert_eq!(shared.len(), 9);
    assert!(!shared.iter().any(|secret| contains(&freed, secret)));
}
