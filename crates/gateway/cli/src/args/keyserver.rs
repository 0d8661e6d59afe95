//! Definition of the options of `brisk keyserver`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filter;

/// Arguments of `brisk keyserver`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER)]
pub(crate) struct KeyServer {
    #[command(subcommand)]
    pub(crate) command: Option<KeyServerCommand>,
    #[command(flatten)]
    pub(crate) serve: ServeKeys,
}

/// Subcommands of `brisk keyserver`; without one it runs the server.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyServerCommand {
    /// Create a folder with a CA, certificates for the server and a first gateway, and a configuration
    Init(Init),
    /// Issue a certificate for another gateway
    Enrol(Enrol),
    /// Check the configuration file of a key server; starts nothing
    Check(CheckKeys),
}

/// Arguments of `brisk keyserver check`.
#[derive(Args, Debug)]
pub(crate) struct CheckKeys {
    /// Configuration file (TOML)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Arguments of the server.
#[derive(Args, Debug)]
pub(crate) struct ServeKeys {
    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Log level: error, warn, info, debug, trace, or a filter
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = filter)]
    pub(crate) log: String,
}

/// Arguments of `brisk keyserver init`.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Folder, created if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Server's host name or IP address, as gateways use it; can be repeated [default: localhost, 127.0.0.1 and ::1]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,
    /// Name of the first gateway
    #[arg(long, value_name = "NAME", default_value = "gateway-1", value_parser = client_name)]
    pub(crate) gateway: String,
    /// Folder with ca.pem and ca.key of another key server, whose gateways use this one too; creates no CA and no
    /// certificate of a gateway
    #[arg(long, value_name = "DIR")]
    pub(crate) ca: Option<PathBuf>,
}

/// Arguments of `brisk keyserver enrol`.
#[derive(Args, Debug)]
pub(crate) struct Enrol {
    /// Name of the gateway
    #[arg(value_name = "NAME", value_parser = client_name)]
    pub(crate) name: String,
    /// Folder created by `init`
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
}

const AFTER: &str = "\
Examples:
  brisk keyserver init /etc/brisk-keys --name keys.internal    a CA, certificates and a configuration
  brisk keyserver init keys2 --ca /etc/brisk-keys --name keys2.internal
                                                               a second key server for the same gateways
  brisk keyserver enrol gateway-2 --folder /etc/brisk-keys     a certificate for another gateway
  brisk keyserver --config /etc/brisk-keys/keyserver.toml      serve";

/// Parses a name of a gateway. It is also a file name and a TOML key, so it is limited to characters that are safe in both.
fn client_name(text: &str) -> Result<String, String> {
    // RFC 5280 appendix A.1: a common name has at most 64 characters. A leading dot would permit `..`,
    // a path out of the folder.
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 64 || text.starts_with('.') || !text.chars().all(is_part) {
        return Err(
            "write letters, digits, hyphens, underscores and dots, 64 at most, as gateway-2".to_owned()
        );
    }
    Ok(text.to_owned())
}
