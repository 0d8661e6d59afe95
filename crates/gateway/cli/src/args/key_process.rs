//! Definition of the options of `brisk key-process` (internal: started by the gateway).

use clap::Args;

/// Arguments of the processes that an isolated gateway starts.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyProcess {
    /// Run the process that holds keys instead of the one that starts it
    #[arg(long)]
    pub(crate) holds_keys: bool,
    /// Process id of the parent, with which this process ends
    #[arg(long, value_name = "NUMBER")]
    pub(crate) parent: u32,
    /// User of the process that holds keys
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Log level or filter
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = super::filter)]
    pub(crate) log: String,
}
