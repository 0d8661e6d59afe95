//! What stands in the place of `gpu.rs` in a program that was built without it: the same items, which say so.
#![expect(clippy::needless_pass_by_value, reason = "the items take what those of `gpu.rs` need")]

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use brisk_config::GpuSettings;
use brisk_keys::{BatchEngine, Keystore, PrivateKeyEngine};
use brisk_telemetry::metrics::{Collector, Encoder};
use clap::Args;

use crate::args::Speed;

/// There are no arguments of `brisk speed` for a GPU.
#[derive(Args, Debug)]
pub(crate) struct Options {}

/// `brisk speed --engine cuda`.
pub(crate) fn speed(arguments: Speed) -> ExitCode {
    let Options {} = arguments.cuda;
    eprintln!(
        "--engine cuda: this brisk was built without it: build it with `cargo build --release -p brisk-cli --features cuda`"
    );
    ExitCode::from(2)
}

/// There is none.
#[derive(Debug)]
pub(crate) enum Gpu {}

impl Gpu {
    /// Nothing to start.
    pub(crate) const fn start(_: &BatchEngine, _: Option<&GpuSettings>) -> Option<Self> {
        None
    }

    /// Never called.
    pub(crate) fn for_keys(&self, _: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
        match *self {}
    }

    /// Never called.
    pub(crate) fn metrics(&self) -> Metrics {
        match *self {}
    }
}

/// There are none.
#[derive(Debug)]
pub(crate) enum Metrics {}

impl Metrics {
    /// Never called.
    pub(crate) fn faults(&self) -> u64 {
        match *self {}
    }
}

impl Collector for Metrics {
    fn collect(&self, _: &mut Encoder<'_, '_>) -> fmt::Result {
        match *self {}
    }
}
