//! Interface for engines that perform RSA on a separate device, such as a GPU.
//!
//! Numbers of a private key leave the crate through this module only; all other code uses a
//! [`PrivateKeyEngine`](crate::PrivateKeyEngine). `crates/tests/structure/tests/structure/layering.rs` lists the crates that may use it.
//!
//! Such an engine wraps a [`BatchEngine`](crate::BatchEngine): it creates jobs with
//! [`encoded_job`](crate::BatchEngine::encoded_job), completes them, and returns jobs that it cannot perform with
//! [`take_over`](crate::BatchEngine::take_over).

use std::sync::Arc;

pub use brisk_lanes::{
    rsa::{BlindingPair, RsaNumbers, blinding_pair},
    rsa_lanes::Width,
};

use crate::{KeyId, Keystore};
pub use crate::{batch::Job, private_key::PrivateKey};

/// The key of `keystore` with this id.
pub fn key(keystore: &Keystore, id: KeyId) -> Option<&Arc<PrivateKey>> {
    keystore.get(id).ok()
}

/// All keys of `keystore`, in no particular order.
pub fn keys(keystore: &Keystore) -> impl Iterator<Item = &Arc<PrivateKey>> {
    keystore.keys()
}
