//! What an engine needs that performs RSA on hardware of its own beside the processor, such as a GPU.
//!
//! This module is the only way by which numbers of a private key leave the crate. Everyone else asks an engine;
//! `crates/cli/tests/layering.rs` lists the crates that may name it.
//!
//! Such an engine wraps a [`BatchEngine`](crate::BatchEngine): it makes operations with
//! [`encoded_job`](crate::BatchEngine::encoded_job), answers them, and gives back those that it cannot perform with
//! [`take_over`](crate::BatchEngine::take_over).

use std::sync::Arc;

pub use brisk_lanes::{
    rsa::{BlindingPair, RsaNumbers, blinding_pair},
    rsa_lanes::Width,
};

use crate::{KeyId, Keystore};
pub use crate::{batch::Job, private_key::PrivateKey};

/// A key of `keystore` by its name.
pub fn key(keystore: &Keystore, id: KeyId) -> Option<&Arc<PrivateKey>> {
    keystore.get(id).ok()
}

/// All keys of `keystore`, in no order.
pub fn keys(keystore: &Keystore) -> impl Iterator<Item = &Arc<PrivateKey>> {
    keystore.keys()
}
