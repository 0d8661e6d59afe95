//! `brisk key-process`, which the gateway starts itself.

use clap::Args;

/// Arguments of the processes that an isolated gateway starts.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyProcess {
    /// The process that holds keys, and not the one that starts it
    #[arg(long)]
    pub(crate) holds_keys: bool,
    /// The process that starts this one, with which it ends
    #[arg(long, value_name = "NUMBER")]
    pub(crate) parent: u32,
    /// The user that holds keys
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Log level, or a filter
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = super::filter)]
    pub(crate) log: String,
}
