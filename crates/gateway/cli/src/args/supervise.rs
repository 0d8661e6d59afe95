//! Arguments of `brisk supervise` and `brisk upgrade`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Arguments of `brisk supervise`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_SUPERVISE)]
pub(crate) struct Supervise {
    /// File for the process id of the supervisor, for `brisk upgrade --pid-file`
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Seconds until a started gateway has to be ready; then it is killed
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) ready_timeout: Duration,
    /// Arguments of `brisk serve`, after the options above
    #[arg(value_name = "ARGUMENTS OF SERVE", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) serve: Vec<OsString>,
}

/// Arguments of `brisk upgrade`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_UPGRADE)]
#[group(required = true, multiple = false)]
pub(crate) struct Upgrade {
    /// Process id of `brisk supervise`
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    pub(crate) pid: Option<u32>,
    /// File with the process id, as written by `brisk supervise --pid-file`
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
}

const AFTER_SUPERVISE: &str = "\
Examples:
  brisk supervise brisk.toml
  brisk supervise --pid-file /run/brisk/brisk.pid --config brisk.toml --log warn

Signals: SIGUSR2 upgrades to the program that has been installed at the same path, SIGHUP reloads, SIGUSR1 reopens logs, SIGTERM
drains and ends.";

const AFTER_UPGRADE: &str = "\
Install the new program at the path of the old one first. The old gateway serves until the new one is ready, and serves on if the
new one fails. Exit code: 0 after an upgrade, 1 if the old gateway serves on.";

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err("write a number of seconds from 1 to 3600".to_owned()),
    }
}
