//! Substitute for `gpu.rs` in a program built without the feature `cuda`: the same items, without a GPU.

use std::fmt;
use std::sync::Arc;

use brisk_config::GpuSettings;
use brisk_keys::{BatchEngine, Keystore, PrivateKeyEngine};
use brisk_telemetry::metrics::{Collector, Encoder};

/// A GPU; uninhabited in this build.
#[derive(Debug)]
pub(crate) enum Gpu {}

impl Gpu {
    /// Returns `None`.
    pub(crate) const fn start(_: &BatchEngine, _: Option<&GpuSettings>) -> Option<Self> {
        None
    }

    /// Never called: there is no value of [`Gpu`].
    pub(crate) fn for_keys(&self, _: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
        match *self {}
    }

    /// Never called: there is no value of [`Gpu`].
    pub(crate) fn metrics(&self) -> Metrics {
        match *self {}
    }
}

/// Metrics of a GPU; uninhabited in this build.
#[derive(Debug)]
pub(crate) enum Metrics {}

impl Metrics {
    /// Never called: there is no value of [`Metrics`].
    pub(crate) fn faults(&self) -> u64 {
        match *self {}
    }
}

impl Collector for Metrics {
    fn collect(&self, _: &mut Encoder<'_, '_>) -> fmt::Result {
        match *self {}
    }
}
