//! Definition of the options of `brisk speed`.

use std::time::Duration;

use brisk_speed::{Settings, Subject};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::cuda;

/// Arguments of `brisk speed`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_SPEED)]
pub(crate) struct Speed {
    /// Algorithms to measure, or `handshakes` [default: all]
    #[arg(value_name = "ALGORITHM", value_parser = subject(), ignore_case = true)]
    pub(crate) subjects: Vec<Subject>,
    /// Duration of each measurement, in seconds
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Number of the core to use [default: the current one]
    #[arg(long, value_name = "NUMBER")]
    core: Option<usize>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Engine to measure [default: cpu]
    #[arg(long, value_name = "ENGINE", conflicts_with = "core")]
    pub(crate) engine: Option<Engine>,
    #[command(flatten)]
    pub(super) cuda: cuda::Options,
}

/// Engines for key operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// All algorithms on one core
    Cpu,
    /// RSA on an NVIDIA GPU under increasing load, compared with the CPU
    Cuda,
}

impl Speed {
    /// Settings of the measurement.
    pub(crate) fn settings(self) -> Settings {
        Settings { subjects: self.subjects, time: self.seconds, core: self.core }
    }
}

const AFTER_SPEED: &str = "\
Examples:
  brisk speed                          all algorithms, and a forecast of handshakes per second
  brisk speed rsa2048 p256             two algorithms
  brisk speed handshakes --core 3      handshakes (and RSA-2048, which they need) on core 3
  brisk speed --engine cuda            RSA on a GPU, if brisk was built for it
docs/speed.md describes the measurements and the forecast.";

/// Maximum of `--seconds`.
const LONGEST: f64 = 3600.0;

/// Parser of algorithm names in both forms: `rsa2048` and `RSA-2048`.
fn subject() -> impl TypedValueParser<Value = Subject> {
    let names = Subject::all().map(|subject| PossibleValue::new(subject.name()).alias(subject.title()));
    PossibleValuesParser::new(names.collect::<Vec<_>>())
        .map(|name| Subject::named(&name).expect("other names are refused before"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write seconds, at most 3600, e.g. 3 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use brisk_speed::Algorithm;
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::tools::Tool;

    fn parse(line: &str) -> Result<Speed, clap::Error> {
        let parsed = Cli::try_parse_from(format!("brisk speed {line}").split_whitespace())?;
        let Command::Tool(Tool::Speed(speed)) = parsed.command else { panic!("not speed: {line}") };
        Ok(speed)
    }

    #[test]
    fn every_option_arrives() {
        let speed =
            parse("rsa2048 AES-128-GCM handshakes --seconds 0.25 --core 1 --json").expect("a right line");
        assert!(speed.json);
        let subjects = vec![
            Subject::Algorithm(Algorithm::Rsa2048),
            Subject::Algorithm(Algorithm::Aes128Gcm),
            Subject::Handshakes,
        ];
        let wanted = Settings { subjects, time: Duration::from_millis(250), core: Some(1) };
        assert_eq!(speed.settings(), wanted);
    }

    #[test]
    fn without_arguments_everything_is_measured() {
        assert_eq!(parse("").expect("a right line").settings(), Settings::default());
    }

    #[test]
    fn a_wrong_line_says_what_would_be_right() {
        for (line, hint) in [
            ("rsa2049", "'rsa2048'"),
            ("p-265", "p256, p384"),
            ("--seconds 0", "write seconds, at most 3600"),
            ("--seconds -1", "'-1'"),
            ("--seconds NaN", "e.g. 3 or 0.5"),
            ("--seconds 1h", "e.g. 3 or 0.5"),
            ("--core one", "invalid value 'one'"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(hint), "{line}: {error}");
        }
    }
}
