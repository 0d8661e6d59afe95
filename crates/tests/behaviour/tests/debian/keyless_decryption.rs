//! Decryption of TLS 1.2 premaster secrets by a key server: only for permitted clients, and without revealing whether the
//! plaintext was valid.

use std::time::Duration;

use brisk_behaviour::site::LIMIT;
use brisk_keyless::{ErrorCode, Request, Response};
use brisk_testkit::ca::Leaf;
use brisk_testkit::process::{command, run};
use bytes::Bytes;

use crate::keyless::Fleet;
use crate::keyless_hostile::{Client, key_of};

/// What openssl encrypts for the key of a certificate, with the padding of PKCS#1 v1.5.
fn encrypted(leaf: &Leaf, message: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("ciphertext");
    let mut openssl = command("openssl");
    openssl.args(["pkeyutl", "-encrypt", "-certin", "-pkeyopt", "rsa_padding_mode:pkcs1", "-inkey"]);
    run(openssl.arg(&leaf.chain).arg("-out").arg(&output), message, LIMIT).success();
    std::fs::read(output).expect("a ciphertext")
}

fn decrypt(operation: u32, key: u32, ciphertext: &[u8]) -> Request {
    let (remaining, ciphertext) = (Duration::from_secs(10), Bytes::copy_from_slice(ciphertext));
    Request::Decrypt { operation, key, remaining, ciphertext }
}

#[test]
fn every_ciphertext_has_a_secret_of_48_bytes_and_the_right_one_if_there_is_one() {
    let fleet = Fleet::new();
    let tables = "[client.gateway]\noperations = [\"tls1.2\", \"tls1.2-rsa-decryption\"]\n";
    let server = fleet.server_on(0, "", tables);
    let mut client = Client::greeted(&fleet, &server);
    client.send(&[
        Request::Key { number: 0, key: key_of(&fleet.rsa) },
        Request::Key { number: 1, key: key_of(&fleet.ecdsa) },
    ]);
    for _ in 0..2 {
        assert!(matches!(client.answer(), Some(Response::Key { state: Ok(_), .. })));
    }
    let mut secret_of = |ciphertext: &[u8]| {
        client.send(&[decrypt(5, 0, ciphertext)]);
        match client.answer() {
            Some(Response::Result { operation: 5, result }) => result.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    let secret: Vec<u8> = [&[3, 3][..], &[0x5a; 46]].concat();
    let ciphertext = encrypted(&fleet.rsa, &secret);
    assert_eq!(secret_of(&ciphertext), secret);
    let mut tampered = ciphertext.clone();
    tampered[200] ^= 1;
    for wrong in [tampered, encrypted(&fleet.rsa, &secret[1..]), encrypted(&fleet.rsa, b"short")] {
        let made = secret_of(&wrong);
        assert_eq!(made.len(), 48);
        assert_ne!(made, secret);
        assert_eq!(made, secret_of(&wrong), "the same again");
    }
    // What anybody can see of a ciphertext is an error, and so is another kind of key.
    for (key, ciphertext, expected) in [
        (0, &ciphertext[1..], ErrorCode::Failed),
        (0, &[0xff; 256], ErrorCode::Failed),
        (1, &ciphertext, ErrorCode::Scheme),
        (9, &ciphertext, ErrorCode::UnknownKey),
    ] {
        client.send(&[decrypt(6, key, ciphertext)]);
        assert_eq!(client.code(), Some(expected));
    }
}
