//! RSA keys of tests as aws-lc has them.

pub(crate) use brisk_testkit::rsa::{SIZES, TestKey, bytes, key, number};

use super::{RawRsa, RsaNumbers};

/// The key for the bare operation.
pub(crate) trait Raw {
    fn raw(&self) -> RawRsa;
}

impl Raw for TestKey {
    fn raw(&self) -> RawRsa {
        RawRsa::from_private_der(&self.der).unwrap()
    }
}

/// [`edge_inputs`](brisk_testkit::rsa::edge_inputs) of a key with these numbers.
pub(crate) fn edge_inputs(key: &RsaNumbers) -> Vec<Vec<u8>> {
    brisk_testkit::rsa::edge_inputs([&key.n, &key.p, &key.q].map(|number| number.as_slice()))
}
