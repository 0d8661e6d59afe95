//! Definition of the options of `brisk cert`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filter;

/// Arguments of `brisk cert`.
#[derive(Args, Debug)]
pub(crate) struct Cert {
    #[command(subcommand)]
    pub(crate) command: CertCommand,
}

/// Subcommands of `brisk cert`.
#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// List certificates in a table
    List(Chosen),
    /// Show all details of certificates
    Inspect(Chosen),
    /// Print the DNS records for dns-persist-01
    Records(Chosen),
    /// Order certificates now, even if valid ones exist
    Obtain(Chosen),
    /// Order missing certificates and renew those that are due
    Renew(Chosen),
    /// Revoke certificates; the gateway then obtains new ones
    Revoke(Revoke),
    /// Import certbot's certificates for hosts in the configuration
    ImportCertbot(ImportCertbot),
}

/// Configuration and hosts that a subcommand works on.
#[derive(Args, Debug)]
pub(crate) struct Chosen {
    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Hosts, by one of their names [default: all with `acme`; `list` and `inspect` include names on demand]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Log level: error, warn, info, debug, trace, or a filter
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = filter)]
    pub(crate) log: String,
}

/// Arguments of `brisk cert revoke`.
#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Hosts, by one of their names
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// State a compromised private key as the reason
    #[arg(long)]
    pub(crate) key_compromised: bool,
    /// Log level: error, warn, info, debug, trace, or a filter
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = filter)]
    pub(crate) log: String,
}

/// Arguments of `brisk cert import-certbot`.
#[derive(Args, Debug)]
pub(crate) struct ImportCertbot {
    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// certbot's configuration folder
    #[arg(long, value_name = "DIR", default_value = "/etc/letsencrypt")]
    pub(crate) from: PathBuf,
}
