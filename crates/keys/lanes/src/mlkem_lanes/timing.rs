//! Does the time of a batch depend on messages? Run by `make check-timing`; see `timing.rs` of the crate.

use aws_lc_rs::kem::{DecapsulationKey, ML_KEM_768};

use super::*;
use crate::ec_lanes::timing::compare;

type Messages = [[u8; 32]; LANES];

/// Copies of one message for each place, and random messages, in turns.
fn classes(fixed: [u8; 32]) -> Vec<Messages> {
    let batch = |number: usize| {
        let mut messages = [fixed; LANES];
        if !number.is_multiple_of(2) {
            rand::fill(messages.as_flattened_mut()).expect("randomness");
        }
        messages
    };
    (0..256).map(batch).collect()
}

/// Keys are public and stay the same: how their matrices are sampled takes more time for some than for others.
#[test]
#[ignore = "takes minutes, and a quiet machine: `make check-timing`"]
fn timing_reveals_no_message_of_an_encapsulation() {
    let private = DecapsulationKey::generate(&ML_KEM_768).expect("a key");
    let public =
        private.encapsulation_key().and_then(|key| key.key_bytes().map(|bytes| bytes.as_ref().to_vec()));
    let new = || Encapsulation::new(public.as_ref().expect("its public half")).expect("a key");
    let mut encapsulations = [(); LANES].map(|()| new());
    let mut random = [0; 32];
    rand::fill(&mut random).expect("randomness");
    for (name, fixed) in [("zero", [0; 32]), ("full", [0xff; 32]), ("random", random)] {
        compare(&format!("ML-KEM-768, {name} messages"), &mut classes(fixed), |messages| {
            encapsulate(&mut encapsulations, messages);
            std::hint::black_box(&mut encapsulations);
        });
    }
}
