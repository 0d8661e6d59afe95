//! The command line of `brisk speed --engine cuda`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use brisk_keys::CudaSettings;
use brisk_speed::cuda::{CudaPlan, Verification};
use brisk_speed::{Algorithm, Subject};
use clap::Args;

use crate::config::units::Period;

/// Arguments of `brisk speed --engine cuda`.
#[derive(Args, Debug)]
#[command(next_help_heading = "With --engine cuda")]
pub(crate) struct CudaOptions {
    /// GPU, as the driver counts them
    #[arg(long, value_name = "NUMBER", default_value = "0", requires = "engine")]
    device: usize,
    /// Streams, each with a thread [default: 3]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    streams: Option<NonZeroUsize>,
    /// How long an operation waits for others at most [default: 2ms]
    #[arg(long, value_name = "DURATION", requires = "engine")]
    wait: Option<Period>,
    /// Operations in a launch at most [default: what makes the GPU full]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    wave: Option<NonZeroUsize>,
    /// Threads of the GPU for each half of an operation [default: the best known]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    threads: Option<u32>,
    /// Threads of the GPU to a block [default: the best known]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    block: Option<u32>,
    /// Bits of an exponent to one multiplication [default: the best known]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    window: Option<u32>,
    /// Measure other threads, blocks and windows too, which takes minutes
    #[arg(long, requires = "engine")]
    variants: bool,
    /// Compare results with those of AWS-LC
    #[arg(long, requires = "engine")]
    verify: bool,
    /// Keys of each size to compare results with
    #[arg(long, value_name = "NUMBER", default_value = "1000", requires = "verify")]
    keys: NonZeroUsize,
    /// Operations of each size to compare
    #[arg(long, value_name = "NUMBER", default_value = "100000", requires = "verify")]
    operations: usize,
    /// Write tables to this file too, as soon as there is something to write
    #[arg(long, value_name = "FILE", requires = "engine")]
    pub(crate) markdown: Option<PathBuf>,
    /// Write a page with the times of operations against the load to this file
    #[arg(long, value_name = "FILE", requires = "engine")]
    pub(crate) html: Option<PathBuf>,
}

impl CudaOptions {
    /// For what measures; `subjects` are RSA, or it makes no sense.
    pub(super) fn plan(self, subjects: &[Subject], time: Duration) -> Result<CudaPlan, String> {
        let algorithms = subjects.iter().map(|subject| match subject {
            Subject::Algorithm(
                algorithm @ (Algorithm::Rsa2048 | Algorithm::Rsa3072 | Algorithm::Rsa4096),
            ) => Ok(*algorithm),
            other => Err(format!("a GPU performs rsa2048, rsa3072 and rsa4096, not {}", other.name())),
        });
        let usual = CudaSettings::default();
        Ok(CudaPlan {
            algorithms: algorithms.collect::<Result<_, _>>()?,
            settings: CudaSettings {
                device: self.device,
                streams: self.streams.unwrap_or(usual.streams),
                wait: self.wait.map_or(usual.wait, |wait| wait.0),
                wave: self.wave,
                threads: self.threads,
                block: self.block,
                window: self.window,
                ..usual
            },
            time,
            variants: self.variants,
            verify: self.verify.then_some(Verification { keys: self.keys, operations: self.operations }),
        })
    }
}
