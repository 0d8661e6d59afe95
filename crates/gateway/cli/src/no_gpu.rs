//! Substitute for `gpu.rs` in a program built without the feature `cuda`: the same items, without a GPU.
#![expect(clippy::needless_pass_by_value, reason = "the items take what those of `gpu.rs` need")]

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use brisk_config::GpuSettings;
use brisk_keys::{BatchEngine, Keystore, PrivateKeyEngine};
use brisk_telemetry::metrics::{Collector, Encoder};
use clap::Args;

use crate::args::Speed;

/// GPU options of `brisk speed`: none.
#[derive(Args, Debug)]
pub(crate) struct Options {}

/// Prints an error with the command that builds brisk with a GPU. Exit code: 2.
pub(crate) fn speed(arguments: Speed) -> ExitCode {
    let Options {} = arguments.cuda;
    eprintln!(
        "--engine cuda: this brisk was built without it: build it with `cargo build --release -p brisk-cli --features cuda`"
    );
    ExitCode::from(2)
}

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
