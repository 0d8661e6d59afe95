//! `$apr1$`: the hash of Apache's `htpasswd`, a thousand rounds of MD5.
//!
//! No library on the current version of the hash functions has it. MD5 is broken for signatures; for passwords, the
//! scheme is weak because it is fast, and it is read because files of nginx and Apache contain it.

use md5::{Digest as _, Md5};

/// Length of the encoded digest.
pub(super) const LENGTH: usize = 22;

/// Digits of the encoding, of six bits each.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The encoded digest of `password` with `salt`.
pub(super) fn hash(password: &[u8], salt: &[u8]) -> [u8; LENGTH] {
    let inner = md5(&[password, salt, password]);
    let mut first = Md5::new();
    first.update(password);
    first.update(b"$apr1$");
    first.update(salt);
    for chunk in password.chunks(16) {
        first.update(&inner[..chunk.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        // The algorithm takes a zero byte or the first byte of the password by the bits of its length.
        first.update(if length & 1 == 1 { &[0][..] } else { &password[..1] });
        length >>= 1;
    }
    let mut digest: [u8; 16] = first.finalize().into();
    // The divisors and the order of the parts belong to the format: each change gives other hashes.
    for round in 0..1000 {
        let mut next = Md5::new();
        let (start, end) = if round % 2 == 1 { (password, &digest[..]) } else { (&digest[..], password) };
        next.update(start);
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(end);
        digest = next.finalize().into();
    }
    encode(&digest)
}

fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

/// Encodes groups of three bytes of the digest, which are out of order, with the lowest bits first.
fn encode(digest: &[u8; 16]) -> [u8; LENGTH] {
    let byte = |index: usize| u32::from(digest[index]);
    let group = |a, b, c| (byte(a) << 16) | (byte(b) << 8) | byte(c);
    let groups =
        [group(0, 6, 12), group(1, 7, 13), group(2, 8, 14), group(3, 9, 15), group(4, 10, 5), byte(11)];
    let mut text = [0; LENGTH];
    for (digits, group) in text.chunks_mut(4).zip(groups) {
        for (index, digit) in digits.iter_mut().enumerate() {
            *digit = DIGITS[(group >> (6 * index)) as usize & 63];
        }
    }
    text
}
