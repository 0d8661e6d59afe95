//! Vectors of the draft, secrets of OpenSSL, paddings that are wrong in one place, and what times say.

use std::time::{Duration, Instant};

use brisk_lanes::timing::{Comparison, compare};
use brisk_testkit::rsa::{TestKey, key};
use bytes::Bytes;
use rustls_pki_types::{PrivateKeyDer, pem::PemObject};

use super::rejection::is_padding;
use super::*;
use crate::rsa::RsaPrivateKey;
use crate::{BatchEngine, BatchSettings, KeyId, LocalEngine};

/// The key of the draft's vectors (appendix B.1, 2048 bits).
const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\n\
    MIIEowIBAAKCAQEAyMyDlxQJjaVsqiNkD5PciZfBY3KWj8Gwxt9RE8HJTosh5IrS\n\
    KX5lQZARtObY9ec7G3iyV0ADIdHva2AtTsjOjRQclJBetK0wZjmkkgZTS25/JgdC\n\
    Ppff/RM8iNchOZ3vvH6WzNy9fzquH+iScSv7SSmBfVEWZkQKH6y3ogj16hZZEK3Y\n\
    o/LUlyAjYMy2MgJPDQcWnBkY8xb3lLFDrvVOyHUipMApePlomYC/+/ZJwwfoGBm/\n\
    +IQJY41IvZS+FStZ/2SfoL1inQ/6GBPDq/S1a9PC6lRl3/oUWJKSqdiiStJr5+4F\n\
    EHQbY4LUPIPVv6QKRmE9BivkRVF9vK8MtOGnaQIDAQABAoIBABRVAQ4PLVh2Y6Zm\n\
    pv8czbvw7dgQBkbQKgI5IpCJksStOeVWWSlybvZQjDpxFY7wtv91HTnQdYC7LS8G\n\
    MhBELQYD/1DbvXs1/iybsZpHoa+FpMJJAeAsqLWLeRmyDt8yqs+/Ua20vEthubfp\n\
    aMqk1XD3DvGNgGMiiJPkfUOe/KeTJZvPLNEIo9hojN8HjnrHmZafIznSwfUiuWlo\n\
    RimpM7quwmgWJeq4T05W9ER+nYj7mhmc9xAj4OJXsURBszyE07xnyoAx0mEmGBA6\n\
    egpAhEJi912IkM1hblH5A1SI/W4Jnej/bWWk/xGCVIB8n1jS+7qLoVHcjGi+NJyX\n\
    eiBOBMECgYEA+PWta6gokxvqRZuKP23AQdI0gkCcJXHpY/MfdIYColY3GziD7UWe\n\
    z5cFJkWe3RbgVSL1pF2UdRsuwtrycsf4gWpSwA0YCAFxY02omdeXMiL1G5N2MFSG\n\
    lqn32MJKWUl8HvzUVc+5fuhtK200lyszL9owPwSZm062tcwLsz53Yd0CgYEAznou\n\
    O0mpC5YzChLcaCvfvfuujdbcA7YUeu+9V1dD8PbaTYYjUGG3Gv2crS00Al5WrIaw\n\
    93Q+s14ay8ojeJVCRGW3Bu0iF15XGMjHC2cD6o9rUQ+UW+SOWja7PDyRcytYnfwF\n\
    1y2AkDGURSvaITSGR+xylD8RqEbmL66+jrU2sP0CgYB2/hXxiuI5zfHfa0RcpLxr\n\
    uWjXiMIZM6T13NKAAz1nEgYswIpt8gTB+9C+RjB0Q+bdSmRWN1Qp1OA4yiVvrxyb\n\
    3pHGsXt2+BmV+RxIy768e/DjSUwINZ5OjNalh9e5bWIh/X4PtcVXXwgu5XdpeYBx\n\
    sru0oyI4FRtHMUu2VHkDEQKBgQCZiEiwVUmaEAnLx9KUs2sf/fICDm5zZAU+lN4a\n\
    AA3JNAWH9+JydvaM32CNdTtjN3sDtvQITSwCfEs4lgpiM7qe2XOLdvEOp1vkVgeL\n\
    9wH2fMaz8/3BhuZDNsdrNy6AkQ7ICwrcwj0C+5rhBIaigkgHW06n5W3fzziC5FFW\n\
    FHGikQKBgGQ790ZCn32DZnoGUwITR++/wF5jUfghqd67YODszeUAWtnp7DHlWPfp\n\
    LCkyjnRWnXzvfHTKvCs1XtQBoaCRS048uwZITlgZYFEWntFMqi76bqBE4FTSYUTM\n\
    FinFUBBVigThM/RLfCRNrCW/kTxXuJDuSfVIJZzWNAT+9oWdz5da\n\
    -----END RSA PRIVATE KEY-----\n";

/// Ciphertexts without a message, and the messages that stand for theirs. Those are of lengths of their own: what they have in common
/// with ours is the end.
const REJECTED: [(&str, &str, &str); 5] = [
    (
        "the longest message",
        "48cceab10f39a4db32f60074feea473cbcdb7accf92e150417f76b44756b190e843e79ec12aa85083a21f5437e7bad0a6048\
         2e601198f9d86923239c8786ee728285afd0937f7dde12717f28389843d7375912b07b991f4fdb0190fced8ba665314367e8\
         c5f9d2981d0f5128feeb46cb50fc237e64438a86df198dd0209364ae3a842d77532b66b7ef263b83b1541ed671b120dfd660\
         462e2107a4ee7b964e734a7bd68d90dda61770658a3c242948532da32648687e0318286473f675b412d6468f013f14d760a3\
         58dfcad3cda2afeec5e268a37d250c37f722f468a70dfd92d7294c3c1ee1e7f8843b7d16f9f37ef35748c3ae93aa155cdcdf\
         eb4e78567303",
        "22d850137b9eebe092b24f602dc5bb7918c16bd89ddbf20467b119d205f9c2e4bd7d2592cf1e532106e0f33557565923c73a\
         02d4f09c0c22bea89148183e60317f7028b3aa1f261f91c979393101d7e15f4067e63979b32751658ef769610fe97cf9cef3\
         278b3117d384051c3b1d82c251c2305418c8f6840530e631aad63e70e20e025bcd8efb54c92ec6d3b106a2f8e64eeff7d384\
         95b0fc50c97138af4b1c0a67a1c4e27b077b8439332edfa8608dfeae653cd6a628ac550395f7e74390e42c11682234870925\
         eeaa1fa71b76cf1f2ee3bda69f6717033ff8b7c95c9799e7a3bea5e7e4a1c359772fb6b1c6e6c516661dfe30c3",
    ),
    (
        "a random one",
        "5f02f4b1f46935c742ebe62b6f05aa0a3286aab91a49b34780adde6410ab46f7386e05748331864ac98e1da63686e4babe3a\
         19ed40a7f5ceefb89179596aab07ab1015e03b8f825084dab028b6731288f2e511a4b314b6ea3997d2e8fe2825cef8897cbb\
         dfb6c939d441d6e04948414bb69e682927ef8576c9a7090d4aad0e74c520d6d5ce63a154720f00b76de8cc550b1aa14f016d\
         63a7b6d6eaa1f7dbe9e50200d3159b3d099c900116bf4eba3b94204f18b1317b07529751abf64a26b0a0bf1c8ce757333b3d\
         673211b67cc0653f2fe2620d57c8b6ee574a0323a167eab1106d9bc7fd90d415be5f1e9891a0e6c709f4fc0404e8226f8477\
         b4e939b36eb2",
        "af9ac70191c92413cb9f2d",
    ),
    (
        "01 in the place of 00",
        "9b2ec9c0c917c98f1ad3d0119aec6be51ae3106e9af1914d48600ab6a2c0c0c8ae02a2dc3039906ff3aac904af32ec798fd6\
         5f3ad1afa2e69400e7c1de81f5728f3b3291f38263bc7a90a0563e43ce7a0d4ee9c0d8a716621ca5d3d081188769ce1b131a\
         f7d35b13dea99153579c86db31fe07d5a2c14d621b77854e48a8df41b5798563af489a291e417b6a334c63222627376118c0\
         2c53b6e86310f728734ffc86ef9d7c8bf56c0c841b24b82b59f51aee4526ba1c4268506d301e4ebc498c6aebb6fd5258c876\
         bf900bac8ca4d309dd522f6a6343599a8bc3760f422c10c72d0ad527ce4af1874124ace3d99bb74db8d69d2528db22c3a376\
         44640f95c05f",
        "a1f8c9255c35cfba403ccc",
    ),
    (
        "01 in the place of 02",
        "782c2b59a21a511243820acedd567c136f6d3090c115232a82a5efb0b178285f55b5ec2d2bac96bf00d6592ea7cdc3341610\
         c8fb07e527e5e2d20cfaf2c7f23e375431f45e998929a02f25fd95354c33838090bca838502259e92d86d568bc2cdb132fab\
         2a399593ca60a015dc2bb1afcd64fef8a3834e17e5358d822980dc446e845b3ab4702b1ee41fe5db716d92348d5091c15d35\
         a110555a35deb4650a5a1d2c98025d42d4544f8b32aa6a5e02dc02deaed9a7313b73b49b0d4772a3768b0ea0db5846ace656\
         9cae677bf67fb0acf3c255dc01ec8400c963b6e49b1067728b4e563d7e1e1515664347b92ee64db7efb5452357a02fff7fcb\
         7437abc2e579",
        "e6d700309ca0ed62452254",
    ),
    (
        "a ciphertext that begins with zero",
        "0096136621faf36d5290b16bd26295de27f895d1faa51c800dafce73d001d60796cd4e2ac3fa2162131d859cd9da5a0c8a42\
         281d9a63e5f353971b72e36b5722e4ac444d77f892a5443deb3dca49fa732fe855727196e23c26eeac55eeced8267a209ebc\
         0f92f4656d64a6c13f7f7ce544ebeb0f668fe3a6c0f189e4bcd5ea12b73cf63e0c8350ee130dd62f01e5c97a1e13f52fde96\
         a9a1bc9936ce734fdd61f27b18216f1d6de87f49cf4f2ea821fb8efd1f92cdad529baf7e31aff9bff4074f2cad2b4243dd15\
         a711adcf7de900851fbd6bcb53dac399d7c880531d06f25f7002e1aaf1722765865d2c2b902c7736acd27bc6cbd3e38b560e\
         2eecf7d4b576",
        "ba27b1842e7c21c0e7ef6a",
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn premaster(key: &RsaPrivateKey, ciphertext: &[u8]) -> Vec<u8> {
    let padded = key.decrypt(ciphertext).expect("a number below the modulus");
    key.rejection().premaster(ciphertext, &padded).to_vec()
}

#[test]
fn the_vectors_of_the_draft_for_ciphertexts_without_a_message() {
    let der = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("PEM");
    let key = RsaPrivateKey::from_der(&der).expect("a key");
    for (name, ciphertext, message) in REJECTED {
        let (made, message) = (premaster(&key, &bytes(ciphertext)), bytes(message));
        assert_eq!(made.len(), PREMASTER);
        let common = message.len().min(PREMASTER);
        assert_eq!(made[PREMASTER - common..], message[message.len() - common..], "{name}");
    }
}

fn private_key(key: &TestKey) -> RsaPrivateKey {
    RsaPrivateKey::from_der(&key.der).expect("a key")
}

#[test]
fn a_secret_of_48_bytes_comes_back_and_other_messages_have_others_that_stay_the_same() {
    for bits in [2048, 2056, 3072, 4096] {
        let key = key(bits);
        let private = private_key(key);
        let secret: Vec<u8> = (0..PREMASTER as u8).collect();
        assert_eq!(premaster(&private, &key.encrypt_pkcs1(&secret)), secret, "{bits}");
        for message in [&secret[..47], &[&secret[..], &[1]].concat(), b"", &[0; 49]] {
            let ciphertext = key.encrypt_pkcs1(message);
            let made = premaster(&private, &ciphertext);
            assert_eq!(made, premaster(&private, &ciphertext), "{bits}");
            assert!(!made.ends_with(b"\x2d\x2e\x2f\x01") && !made.ends_with(&secret[40..47]), "{bits}");
            let again = key.encrypt_pkcs1(message);
            assert_ne!(made, premaster(&private, &again), "another ciphertext of the same message");
        }
    }
}

#[test]
fn a_padding_that_is_wrong_in_one_place_is_wrong() {
    let mut right = vec![7; 256 - PREMASTER];
    (right[0], right[1], right[207]) = (0, 2, 0);
    assert!(bool::from(is_padding(&right)));
    for place in 0..right.len() {
        let mut wrong = right.clone();
        wrong[place] = u8::from(wrong[place] == 0);
        assert!(!bool::from(is_padding(&wrong)), "{place}");
    }
    for other in [0, 1, 3, 0x82] {
        right[1] = other;
        assert!(!bool::from(is_padding(&right)), "{other}");
    }
    assert!(!bool::from(is_padding(&[])) && !bool::from(is_padding(&[0, 2])));
}

fn decrypt(engine: &dyn PrivateKeyEngine, key: KeyId, ciphertext: Vec<u8>) -> PendingOperation {
    let deadline = Instant::now() + Duration::from_mins(1);
    engine.submit(KeyOperation::decrypt(key, Bytes::from(ciphertext), deadline))
}

#[tokio::test]
async fn the_engine_answers_every_ciphertext_alike_alone_and_in_batches() {
    let test = key(2048);
    let mut keystore = Keystore::new();
    let id = keystore.add_der(test.der.clone_key()).expect("a key");
    let keystore = Arc::new(keystore);
    let batches = BatchEngine::new(Arc::clone(&keystore), &BatchSettings::default()).expect("threads");
    let inner: [Arc<dyn PrivateKeyEngine>; 2] =
        [Arc::new(LocalEngine::new(Arc::clone(&keystore))), Arc::new(batches)];
    let private = private_key(test);
    for inner in inner {
        let engine = PremasterEngine::new(Arc::clone(&keystore), inner);
        let ciphertexts: Vec<_> = [&[9; 48][..], &[9; 47], &[9; 20], &[8; 48]]
            .iter()
            .map(|message| test.encrypt_pkcs1(message))
            .collect();
        let pending: Vec<_> =
            ciphertexts.iter().map(|ciphertext| decrypt(&engine, id, ciphertext.clone())).collect();
        for (ciphertext, pending) in ciphertexts.iter().zip(pending) {
            assert_eq!(pending.await.expect("a secret").to_vec(), premaster(&private, ciphertext));
        }
        assert_eq!(decrypt(&engine, id, vec![0xff; 256]).await, Err(KeyError::OutOfRange));
        assert_eq!(decrypt(&engine, id, vec![1; 255]).await, Err(KeyError::OutOfRange));
    }
}

/// A ciphertext, and what it decrypts to. Both are in one array: the secrets of both classes lie alike.
type Decrypted = [[u8; 256]; 2];

/// Ciphertexts whose padding is right, and others whose padding is wrong, in turns.
fn classes(test: &TestKey, key: &RsaPrivateKey, wrong: impl Fn(&TestKey) -> Vec<u8>) -> Vec<Decrypted> {
    let one = |number: usize| {
        let message = [number as u8; PREMASTER];
        let ciphertext = if number.is_multiple_of(2) { test.encrypt_pkcs1(&message) } else { wrong(test) };
        let padded = key.decrypt(&ciphertext).expect("a number below the modulus");
        [ciphertext.try_into().expect("2048 bits"), padded.to_vec().try_into().expect("2048 bits")]
    };
    (0..64).map(one).collect()
}

/// As many on every machine: what is measured needs no vectors.
fn comparison(name: &str) -> Comparison<'_> {
    Comparison { name, measurements: 60_000, shares: &[0.5, 0.75], leak: 4.5 }
}

#[test]
#[ignore = "takes minutes, and a quiet machine: `make check-timing`"]
fn timing_reveals_no_padding() {
    let test = key(2048);
    let private = private_key(test);
    let random = |_: &TestKey| {
        let mut bytes = vec![0; 256];
        aws_lc_rs::rand::fill(&mut bytes).expect("randomness");
        bytes[0] &= 0x7f;
        bytes
    };
    let shorter = |test: &TestKey| test.encrypt_pkcs1(&[5; PREMASTER - 1]);
    let all = [
        ("a random ciphertext", classes(test, &private, random)),
        ("a message of 47 bytes", classes(test, &private, shorter)),
    ];
    for (name, mut decrypted) in all {
        compare(&comparison(&format!("the padding, {name}")), &mut decrypted, |[ciphertext, padded]| {
            std::hint::black_box(private.rejection().premaster(ciphertext, padded));
        });
        compare(&comparison(&format!("a whole decryption, {name}")), &mut decrypted, |[ciphertext, _]| {
            std::hint::black_box(premaster(&private, ciphertext));
        });
    }
}
