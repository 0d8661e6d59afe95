//! `[keys]`: engines of key operations.

use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

/// `[keys]`: where and how key operations are performed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Keys {
    pub threads: Option<u16>,
    pub cores: Vec<u16>,
    pub queue: Option<u32>,
    pub offload: Option<Vec<KeyFamily>>,
    pub simd: Option<bool>,
    pub simd_wait: Option<Period>,
    pub cuda: Option<bool>,
    pub cuda_wait: Option<Period>,
    pub isolate: Option<bool>,
    pub isolate_user: Option<String>,
    pub pkcs11_module: Option<PathBuf>,
    pub pkcs11_sessions: Option<u16>,
}

/// Algorithm family of a key.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyFamily {
    Rsa,
    Ecdsa,
    Ed25519,
}
