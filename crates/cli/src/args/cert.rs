//! `brisk cert`, as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filter;

/// Arguments of `brisk cert`.
#[derive(Args, Debug)]
pub(crate) struct Cert {
    #[command(subcommand)]
    pub(crate) command: CertCommand,
}

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Show all certificates in a table
    List(Chosen),
    /// Show everything that is known of certificates
    Inspect(Chosen),
    /// Show the records that have to stand in the DNS for dns-persist-01
    Records(Chosen),
    /// Order certificates now, whatever there is
    Obtain(Chosen),
    /// Order what is missing, and renew what the authority wants to be renewed
    Renew(Chosen),
    /// Have the authority revoke certificates; the gateway then obtains others
    Revoke(Revoke),
    /// Take over certificates of certbot for the hosts of the file
    ImportCertbot(ImportCertbot),
}

/// The configuration, and hosts of it.
#[derive(Args, Debug)]
pub(crate) struct Chosen {
    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Hosts, by one of their names [default: all that have `acme`; `list` and `inspect`: names on demand too]
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
    /// The host, by one of its names
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// The private key is known to others
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
    /// Folder of certbot
    #[arg(long, value_name = "DIR", default_value = "/etc/letsencrypt")]
    pub(crate) from: PathBuf,
}
