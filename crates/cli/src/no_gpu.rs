//! What stands in the place of `gpu.rs` in a program that was built without it: the same items, which say so.
#![expect(
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    reason = "the items take what those of `gpu.rs` need"
)]

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use brisk_keys::{BatchEngine, Keystore, Offload, PrivateKeyEngine};
use brisk_telemetry::metrics::{Collector, Encoder};
use clap::Args;

use crate::args::Speed;

/// What is said where a GPU is asked for.
macro_rules! without {
    () => {
        "this brisk was built without it: build it with `cargo build --release -p brisk-cli --features cuda`"
    };
}

/// No GPU can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {}

/// There are no arguments of `brisk speed` for a GPU.
#[derive(Args, Debug)]
pub(crate) struct Options {}

/// The settings that `keys.cuda` results in, or what is wrong with it.
pub(crate) fn settings(wanted: bool, _: Option<Duration>, _: Offload) -> Result<Settings, &'static str> {
    if wanted { Err(concat!(without!(), ", or write `false`")) } else { Ok(Settings {}) }
}

/// `brisk speed --engine cuda`.
pub(crate) fn speed(arguments: Speed) -> ExitCode {
    let Options {} = arguments.cuda;
    eprintln!("--engine cuda: {}", without!());
    ExitCode::from(2)
}

/// There is none.
#[derive(Debug)]
pub(crate) enum Gpu {}

impl Gpu {
    /// Nothing to start.
    pub(crate) const fn start(_: &BatchEngine, Settings {}: &Settings) -> Option<Self> {
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
