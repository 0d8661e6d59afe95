//! The command line of `brisk speed --engine cuda`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use brisk_config::Period;
use brisk_keys_cuda::CudaSettings;
use brisk_keys_cuda::measure::{CudaPlan, Verification, Width};
use brisk_speed::{Algorithm, Subject};
use clap::Args;

/// Arguments of `brisk speed --engine cuda`.
#[derive(Args, Debug)]
#[command(next_help_heading = "With --engine cuda")]
pub(crate) struct Options {
    /// Number of the GPU, as counted by the driver
    #[arg(long, value_name = "NUMBER", default_value = "0", requires = "engine")]
    device: usize,
    /// Number of CUDA streams, each with a thread [default: 3]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    streams: Option<NonZeroUsize>,
    /// Maximum wait of an operation for others [default: 2ms]
    #[arg(long, value_name = "DURATION", requires = "engine")]
    wait: Option<Period>,
    /// Maximum number of operations per launch [default: enough to fill the GPU]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    wave: Option<NonZeroUsize>,
    /// GPU threads per half of an operation [default: best known]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    threads: Option<u32>,
    /// GPU threads per block [default: best known]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    block: Option<u32>,
    /// Exponent bits per multiplication [default: best known]
    #[arg(long, value_name = "NUMBER", requires = "engine")]
    window: Option<u32>,
    /// Also measure other values of threads, block and window (takes minutes)
    #[arg(long, requires = "engine")]
    variants: bool,
    /// Compare results with those of AWS-LC
    #[arg(long, requires = "engine")]
    verify: bool,
    /// Number of keys of each size for --verify
    #[arg(long, value_name = "NUMBER", default_value = "1000", requires = "verify")]
    keys: NonZeroUsize,
    /// Number of operations of each size for --verify
    #[arg(long, value_name = "NUMBER", default_value = "100000", requires = "verify")]
    operations: usize,
    /// File for tables in Markdown, updated during the measurement
    #[arg(long, value_name = "FILE", requires = "engine")]
    pub(crate) markdown: Option<PathBuf>,
    /// File for an HTML page with charts of operation times by load
    #[arg(long, value_name = "FILE", requires = "engine")]
    pub(crate) html: Option<PathBuf>,
}

impl Options {
    /// Plan of the measurement. The error names a subject that is not RSA: the GPU performs no other algorithm.
    pub(crate) fn plan(self, subjects: &[Subject], time: Duration) -> Result<CudaPlan, String> {
        let widths = subjects.iter().map(|subject| match subject {
            Subject::Algorithm(Algorithm::Rsa2048) => Ok(Width::Rsa2048),
            Subject::Algorithm(Algorithm::Rsa3072) => Ok(Width::Rsa3072),
            Subject::Algorithm(Algorithm::Rsa4096) => Ok(Width::Rsa4096),
            other => Err(format!("a GPU performs rsa2048, rsa3072 and rsa4096, not {}", other.name())),
        });
        let usual = CudaSettings::default();
        Ok(CudaPlan {
            widths: widths.collect::<Result<_, _>>()?,
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::tools::Tool;
    use crate::tools::speed::Speed;

    fn try_parse(line: &str) -> Result<Speed, clap::Error> {
        let parsed = Cli::try_parse_from(format!("brisk speed {line}").split_whitespace())?;
        let Command::Tool(Tool::Speed(speed)) = parsed.command else { panic!("not speed: {line}") };
        Ok(speed)
    }

    fn parse(line: &str) -> Speed {
        try_parse(line).expect("a right line")
    }

    fn planned(line: &str) -> Result<CudaPlan, String> {
        let Speed { subjects, seconds, cuda, .. } = parse(line);
        cuda.plan(&subjects, seconds)
    }

    #[test]
    fn every_option_of_a_gpu_arrives() {
        let line = "rsa3072 --engine cuda --device 1 --streams 4 --wait 5ms --wave 512 --threads 8 --block 64 --window 5 \
                    --variants --verify --keys 9 --operations 99 --markdown gpu.md --html gpu.html";
        let speed = parse(line);
        assert_eq!(speed.cuda.markdown, Some("gpu.md".into()));
        assert_eq!(speed.cuda.html, Some("gpu.html".into()));
        let plan = planned(line).unwrap();
        let settings = &plan.settings;
        assert_eq!((settings.device, settings.streams.get(), settings.wait.as_millis()), (1, 4, 5));
        assert_eq!((settings.threads, settings.block, settings.window), (Some(8), Some(64), Some(5)));
        assert_eq!(settings.wave.map(std::num::NonZero::get), Some(512));
        assert_eq!((plan.widths, plan.variants), (vec![Width::Rsa3072], true));
        let verify = plan.verify.unwrap();
        assert_eq!((verify.keys.get(), verify.operations), (9, 99));
        assert_eq!(planned("--engine cuda").unwrap().verify, None);
        let refused = planned("p256 --engine cuda").unwrap_err();
        assert_eq!(refused, "a GPU performs rsa2048, rsa3072 and rsa4096, not p256");
        assert!(["--variants", "--engine cuda --keys 9"].map(try_parse).iter().all(Result::is_err));
    }
}
