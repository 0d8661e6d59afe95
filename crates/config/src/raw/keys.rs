//! `[keys]`: engines of key operations.

use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

/// `[keys]`: where and how key operations are performed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Keys {
    pub(crate) threads: Option<u16>,
    pub(crate) cores: Vec<u16>,
    pub(crate) queue: Option<u32>,
    pub(crate) offload: Option<Vec<KeyFamily>>,
    pub(crate) simd: Option<bool>,
    pub(crate) simd_wait: Option<Period>,
    pub(crate) cuda: Option<bool>,
    pub(crate) cuda_wait: Option<Period>,
    pub(crate) isolate: Option<bool>,
    pub(crate) isolate_user: Option<String>,
    pub(crate) pkcs11_module: Option<PathBuf>,
    pub(crate) pkcs11_sessions: Option<u16>,
}

/// Algorithm family of a key.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyFamily {
    Rsa,
    Ecdsa,
    Ed25519,
}
