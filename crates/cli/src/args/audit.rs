//! The command line of `brisk probe --audit` and `brisk probe --config`.

use std::path::PathBuf;
use std::time::Duration;

use brisk_audit::Letter;
use brisk_config::Period;
use clap::{Args, ValueEnum};

/// Arguments of an audit.
#[derive(Args, Debug)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// Try everything about the server's TLS that can be judged from outside, and grade it from A+ to F
    #[arg(long, conflicts_with_all = ["tls", "http1", "keylog", "insecure", "resume", "early", "timing", "compare", "frames", "browser", "max_ttfb"])]
    pub(crate) audit: bool,
    /// Audit what a gateway with this configuration would do, and this machine, without network
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "audit", "html", "tls", "http1", "keylog", "insecure", "resume", "early", "timing", "compare", "frames", "browser", "max_ttfb"])]
    pub(crate) config: Option<PathBuf>,
    /// Exit with 10 if the grade is worse, e.g. A
    #[arg(long, value_name = "GRADE", requires = "audit")]
    pub(crate) fail_below: Option<Letter>,
    /// Format of the audit [default: text]
    #[arg(long, value_name = "FORMAT", requires = "audit", conflicts_with = "json")]
    pub(crate) format: Option<Format>,
    /// Watch for this long whether the keys of tickets change, e.g. 25h
    #[arg(long, value_name = "TIME", requires = "audit", value_parser = watch)]
    pub(crate) watch: Option<Duration>,
    /// Port of plain HTTP; 0 asks none
    #[arg(long, value_name = "PORT", requires = "audit", default_value = "80")]
    pub(crate) http_port: u16,
}

/// Formats of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Sarif,
    Junit,
}

/// The longest watch that is no slip.
const LONGEST: Duration = Duration::from_hours(24 * 14);

fn watch(text: &str) -> Result<Duration, String> {
    let Period(time) = text.parse()?;
    let is_right = time >= Duration::from_secs(1) && time <= LONGEST;
    if is_right { Ok(time) } else { Err("write a time from 1s to 14d".to_owned()) }
}
