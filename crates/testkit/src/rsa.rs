//! RSA keys for tests, and the openssl program for a second opinion on them.

use std::{io::Write, process::Stdio, sync::OnceLock};

use num_bigint::BigUint;
use rustls_pki_types::{PrivateKeyDer, pem::PemObject};

use crate::process::command;

/// The lengths of modulus that tests go through: the three of batches, one of whole bytes though not of whole words, and
/// one whose encoded message is a byte shorter; this one has primes of different lengths, and the exponent 3.
pub const SIZES: [usize; 5] = [2048, 2049, 2056, 3072, 4096];

/// A private key that openssl made.
pub struct TestKey {
    /// In PKCS#8.
    pub der: PrivateKeyDer<'static>,
    pem: String,
}

/// The key of one of [`SIZES`]; made at the first call, since that takes long.
pub fn key(bits: usize) -> &'static TestKey {
    static KEYS: [OnceLock<TestKey>; SIZES.len()] = [const { OnceLock::new() }; SIZES.len()];
    let index = SIZES.iter().position(|size| *size == bits).expect("one of SIZES");
    KEYS[index].get_or_init(|| TestKey::generate(bits))
}

impl TestKey {
    /// A new key. Takes openssl seconds.
    pub fn generate(bits: usize) -> Self {
        let length = bits.to_string();
        // With the usual exponent, openssl makes primes of one length, and thus no key of odd length.
        let exponent = if bits.is_multiple_of(2) { "-f4" } else { "-3" };
        let pem = openssl(&["genrsa", exponent, &length], b"");
        let pem = String::from_utf8(pem).expect("PEM is text");
        Self { der: PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a key of openssl"), pem }
    }

    /// The same key in PKCS#1.
    pub fn pkcs1(&self) -> PrivateKeyDer<'static> {
        let pem = self.openssl(&["rsa", "-traditional", "-in"], b"");
        PrivateKeyDer::from_pem_slice(&pem).expect("a key of openssl")
    }

    /// `input^d mod n` as openssl computes it.
    pub fn transform(&self, input: &[u8]) -> Vec<u8> {
        let raw = ["pkeyutl", "-decrypt", "-pkeyopt", "rsa_padding_mode:none", "-inkey"];
        self.openssl(&raw, input)
    }

    /// Encrypts for the key with the padding of PKCS#1 v1.5.
    pub fn encrypt_pkcs1(&self, plaintext: &[u8]) -> Vec<u8> {
        let pkcs1 = ["pkeyutl", "-encrypt", "-pkeyopt", "rsa_padding_mode:pkcs1", "-inkey"];
        self.openssl(&pkcs1, plaintext)
    }

    /// Runs openssl with the key's file as the last argument.
    fn openssl(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(self.pem.as_bytes()).expect("written");
        let path = file.path().to_str().expect("a path in UTF-8");
        openssl(&[arguments, &[path]].concat(), input)
    }
}

/// A number of the key, or one made of them.
pub fn number(bytes: &[u8]) -> BigUint {
    BigUint::from_bytes_be(bytes)
}

/// The number in `size` bytes.
pub fn bytes(number: &BigUint, size: usize) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    [vec![0; size - bytes.len()], bytes].concat()
}

/// Inputs at the edges: 0, 1 and n - 1, which map to themselves; multiples of p and of q, which have no inverse.
/// The key is given by its modulus and its two prime factors.
pub fn edge_inputs(key: [&[u8]; 3]) -> Vec<Vec<u8>> {
    let [n, p, q] = key.map(number);
    let inputs = [
        BigUint::ZERO,
        BigUint::from(1_u8),
        BigUint::from(2_u8),
        &n - 1_u8,
        &n - 2_u8,
        p.clone(),
        q.clone(),
        &p * 2_u8,
        &q * 3_u8,
        &n - &p,
        &n - &q,
    ];
    inputs.iter().map(|input| bytes(input, key[0].len())).collect()
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = command("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("openssl starts");
    process.stdin.take().expect("a pipe").write_all(input).expect("openssl reads");
    let output = process.wait_with_output().expect("openssl ends");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
