//! Encapsulations in lanes beside aws-lc and published vectors: on this processor's registers where it has them, and on
//! the portable ones.

pub(super) mod arithmetic;
mod vectors;

use aws_lc_rs::kem::{DecapsulationKey, ML_KEM_768};

use super::*;
use portable::Portable;

/// Encapsulates on some registers.
struct Path {
    name: &'static str,
    encapsulate: fn(&mut [Encapsulation], &[[u8; 32]]),
}

fn paths() -> Vec<Path> {
    let portable = Path { name: "portable", encapsulate: batch::encapsulate::<Portable> };
    let own = Path { name: "this processor's", encapsulate };
    if are_supported() { vec![portable, own] } else { vec![portable] }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("randomness");
    bytes
}

/// A key pair of aws-lc, and its public half as bytes.
struct Pair {
    private: DecapsulationKey,
    public: Vec<u8>,
}

impl Pair {
    fn generate() -> Self {
        let private = DecapsulationKey::generate(&ML_KEM_768).expect("a key");
        let public =
            private.encapsulation_key().and_then(|key| key.key_bytes().map(|bytes| bytes.as_ref().to_vec()));
        Self { private, public: public.expect("its public half") }
    }

    fn encapsulation(&self) -> Encapsulation {
        Encapsulation::new(&self.public).expect("a key")
    }

    /// Whether aws-lc finds the same secret in the ciphertext.
    fn agrees(&self, encapsulation: &Encapsulation) -> bool {
        let shared = self.private.decapsulate(encapsulation.ciphertext()[..].into()).expect("a ciphertext");
        encapsulation.shared().is_some_and(|own| own == shared.as_ref())
    }
}

/// Batches of all fills, until there are as many encapsulations.
fn decapsulate_many(path: &Path, count: usize) {
    let pairs: Vec<_> = (0..64).map(|_| Pair::generate()).collect();
    let (mut done, mut fill) = (0, 1);
    while done < count {
        let pair = |number: usize| &pairs[(done + 5 * number) % pairs.len()];
        let mut encapsulations: Vec<_> = (0..fill).map(|number| pair(number).encapsulation()).collect();
        let messages: Vec<_> = (0..fill).map(|_| random()).collect();
        (path.encapsulate)(&mut encapsulations, &messages);
        for (number, encapsulation) in encapsulations.iter().enumerate() {
            assert!(
                pair(number).agrees(encapsulation),
                "{}: {number} of {fill}, {:x?}",
                path.name,
                messages[number]
            );
        }
        done += fill;
        fill = fill % LANES + 1;
    }
}

#[test]
fn aws_lc_decapsulates_the_same_secrets() {
    for path in paths() {
        decapsulate_many(&path, 144);
    }
}

#[test]
#[ignore = "takes a minute in a release build: `make check-lanes`"]
fn aws_lc_decapsulates_the_same_secrets_of_a_hundred_thousand_encapsulations() {
    for path in paths() {
        decapsulate_many(&path, if path.name == "portable" { 2_000 } else { 100_000 });
    }
}

#[test]
fn each_way_to_perform_gives_the_secret_that_aws_lc_decapsulates() {
    let pair = Pair::generate();
    for count in [1, 2, 7, 8, 9, 17] {
        let mut encapsulations: Vec<_> = (0..count).map(|_| pair.encapsulation()).collect();
        assert!(encapsulations.iter().all(|encapsulation| encapsulation.shared().is_none()));
        let in_lanes = Encapsulation::perform_all(&mut encapsulations);
        assert!(in_lanes <= count && (in_lanes == 0 || are_supported()), "{in_lanes} of {count}");
        assert!(encapsulations.iter().all(|encapsulation| pair.agrees(encapsulation)), "{count} as is best");
        Encapsulation::perform_together(&mut encapsulations);
        assert!(encapsulations.iter().all(|encapsulation| pair.agrees(encapsulation)), "{count} together");
        encapsulations[0].perform();
        assert!(pair.agrees(&encapsulations[0]), "alone");
    }
}

#[test]
fn no_two_secrets_are_the_same() {
    let pair = Pair::generate();
    let mut encapsulations: Vec<_> = (0..40).map(|_| pair.encapsulation()).collect();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..2 {
        Encapsulation::perform_together(&mut encapsulations);
        for encapsulation in &encapsulations {
            assert!(seen.insert(*encapsulation.shared().expect("it was performed")), "the same randomness");
        }
    }
}

#[test]
fn a_key_that_is_none_is_refused() {
    let key = Pair::generate().public;
    for length in [0, 1, 32, 1088, KEY - 1] {
        assert!(Encapsulation::new(&key[..length]).is_none(), "{length} bytes");
    }
    assert!(Encapsulation::new(&[&key[..], &[0]].concat()).is_none(), "a byte too many");
    for number in 0..768 {
        for (coefficient, is_less) in [(0u16, true), (3328, true), (3329, false), (4095, false)] {
            let mut key = key.clone();
            let bytes = &mut key[number / 2 * 3..][..3];
            if number % 2 == 0 {
                bytes[0] = coefficient as u8;
                bytes[1] = bytes[1] & 0xf0 | (coefficient >> 8) as u8;
            } else {
                bytes[1] = bytes[1] & 0x0f | (coefficient << 4) as u8;
                bytes[2] = (coefficient >> 4) as u8;
            }
            assert_eq!(Encapsulation::new(&key).is_some(), is_less, "coefficient {number} is {coefficient}");
        }
    }
}
