//! Definition of the options of `brisk check`.

use std::path::PathBuf;
use std::time::Duration;

use brisk_config::Period;
use clap::Args;

/// Arguments of `brisk check`.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Configuration file (TOML)
    #[arg(value_name = "FILE", required_unless_present = "har", conflicts_with = "har")]
    pub(crate) file: Option<PathBuf>,
    /// Also ask key servers and tokens for the keys of all certificates, and load all names of certificate folders
    #[arg(long, requires = "file")]
    pub(crate) online: bool,
    /// Recording of a page by a browser (HAR): list its origins and the savings of `consolidate` for each
    #[arg(long, value_name = "FILE")]
    pub(crate) har: Option<PathBuf>,
    /// Round trip time of visitors, e.g. 100ms [default: times of the recording]
    #[arg(long, value_name = "TIME", conflicts_with = "file", value_parser = rtt)]
    pub(crate) rtt: Option<Duration>,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "file")]
    pub(crate) json: bool,
}

/// Maximum of `--rtt`; a longer time is most likely a mistake.
const LONGEST: Duration = Duration::from_secs(10);

fn rtt(text: &str) -> Result<Duration, String> {
    let Period(time) = text.parse()?;
    let is_right = time > Duration::ZERO && time <= LONGEST;
    if is_right { Ok(time) } else { Err("write a round trip time from 1ms to 10s".to_owned()) }
}
