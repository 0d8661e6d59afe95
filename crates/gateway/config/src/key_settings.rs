//! Settings of the engines that perform key operations.

use std::num::NonZeroUsize;
use std::time::Duration;

use brisk_keys::BatchSettings;
use brisk_keys_pkcs11::TokenSettings;

/// `[keys]`: engines of key operations. Fixed at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySettings {
    /// The processor.
    pub processor: BatchSettings,
    /// Maximum time for which X25519 exchanges and encapsulations with ML-KEM wait for a full batch.
    pub simd_wait: Duration,
    /// The GPU beside it, if any.
    pub gpu: Option<GpuSettings>,
    /// Tokens whose keys are attached while the configuration is read.
    pub tokens: TokenSettings,
    /// The process that has the keys in files, where that is not this one.
    pub isolation: Option<IsolationSettings>,
}

/// Settings of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuSettings {
    /// Longest wait of an operation for others to share a launch with. `None` is the default of the engine.
    pub wait: Option<Duration>,
}

/// Settings of a process that performs key operations for a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolationSettings {
    /// The processor.
    pub processor: BatchSettings,
    /// The GPU beside it, if any.
    pub gpu: Option<GpuSettings>,
    /// Threads that serve the connections of the gateway, and as many connections.
    pub workers: NonZeroUsize,
}
