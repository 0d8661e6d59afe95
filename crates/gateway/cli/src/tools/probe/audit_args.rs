//! Definition of the options of `brisk probe --audit` and `brisk probe --config`.

use std::path::PathBuf;
use std::time::Duration;

use brisk_audit::Letter;
use brisk_config::Period;
use clap::{Args, ValueEnum};

/// Options of an audit.
#[derive(Args, Debug)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// Audit the server's TLS from outside and grade it from A+ to F
    #[arg(long, conflicts_with_all = ["tls", "http1", "keylog", "insecure", "resume", "early", "timing", "compare", "frames", "browser", "page", "max_ttfb"])]
    pub(crate) audit: bool,
    /// Audit a configuration file and this machine, without network access
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "audit", "html", "tls", "http1", "keylog", "insecure", "resume", "early", "timing", "compare", "frames", "browser", "page", "max_ttfb"])]
    pub(crate) config: Option<PathBuf>,
    /// Exit with 10 if the grade is worse than this, e.g. A
    #[arg(long, value_name = "GRADE", requires = "audit")]
    pub(crate) fail_below: Option<Letter>,
    /// Format of the audit [default: text]
    #[arg(long, value_name = "FORMAT", requires = "audit", conflicts_with = "json")]
    pub(crate) format: Option<Format>,
    /// Earlier result with --json; adds the differences
    #[arg(long, value_name = "FILE", requires = "audit")]
    pub(crate) baseline: Option<PathBuf>,
    /// File with a host name or URL in each line; audits all and prints one line for each
    #[arg(long, value_name = "FILE", requires = "audit", conflicts_with_all = ["url", "baseline", "html", "watch"])]
    pub(crate) hosts: Option<PathBuf>,
    /// Duration of a watch for changes of the ticket keys, from 1s to 14d, e.g. 25h [default: no watch]
    #[arg(long, value_name = "TIME", requires = "audit", value_parser = watch)]
    pub(crate) watch: Option<Duration>,
    /// Port for the checks of plain HTTP; 0 skips them
    #[arg(long, value_name = "PORT", requires = "audit", default_value = "80")]
    pub(crate) http_port: u16,
}

/// Formats of an audit's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Sarif,
    Junit,
}

/// Maximum of `--watch`; a longer time is most likely a mistake.
const LONGEST: Duration = Duration::from_hours(24 * 14);

fn watch(text: &str) -> Result<Duration, String> {
    let Period(time) = text.parse()?;
    let is_right = time >= Duration::from_secs(1) && time <= LONGEST;
    if is_right { Ok(time) } else { Err("write a time from 1s to 14d".to_owned()) }
}
