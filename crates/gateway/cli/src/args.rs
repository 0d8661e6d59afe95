//! Definition of the command line.
#![expect(clippy::doc_markdown, reason = "doc comments of arguments are help texts for a terminal")]

mod cert;
mod check;
mod compress;
mod import;
mod key_process;
mod keyserver;
mod supervise;

use std::net::SocketAddr;
use std::path::PathBuf;

use brisk_config::{AccessLogFormat, CommandLine};
use brisk_upstream_group::settings::ServerUrl;
use brisk_visits::MarkName;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::tools::Tool;

pub(crate) use cert::{Cert, CertCommand, Chosen, ImportCertbot, Revoke};
pub(crate) use check::Check;
pub(crate) use compress::CompressArgs;
pub(crate) use import::{Import, ImportCommand, ImportFile};
pub(crate) use key_process::KeyProcess;
pub(crate) use keyserver::{Enrol, Init, KeyServer, KeyServerCommand, ServeKeys};
pub(crate) use supervise::{Supervise, Upgrade};

/// The fastest HTTPS for the least CPU.
#[derive(Debug, Parser)]
#[command(name = "brisk", version, about, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve HTTPS: a built-in page, static files, or the responses of an upstream
    Serve(Serve),
    /// Serve like `serve`, and start the gateway again after a crash, or for an upgrade without an interruption
    Supervise(Supervise),
    /// Replace the gateway of `supervise` by the program that is installed now
    Upgrade(Upgrade),
    /// Check a configuration file, or analyse a recorded page (HAR); serves nothing
    Check(Check),
    /// Write compressed copies of the files of a folder, for routes with `precompressed`
    Compress(CompressArgs),
    /// Translate the configuration of another server
    Import(Import),
    /// Show, obtain, renew, revoke and import certificates of hosts with `acme`
    Cert(Cert),
    /// Mark a deployment in the charts of visitors' waiting times
    Mark(MarkArgs),
    /// Hold private keys and perform key operations for gateways
    Keyserver(KeyServer),
    /// Hold the keys of a gateway (internal: started by `brisk serve`)
    #[command(hide = true)]
    KeyProcess(KeyProcess),
    #[command(flatten)]
    Tool(Tool),
}

/// Arguments of `brisk mark`.
#[derive(Args, Debug)]
pub(crate) struct MarkArgs {
    /// Name of the deployment, e.g. v1.4.2
    #[arg(value_name = "NAME")]
    pub(crate) name: MarkName,
    /// Configuration file of the gateway (TOML), which names the folder of visits
    #[arg(long, short, value_name = "FILE", default_value = "brisk.toml")]
    pub(crate) config: PathBuf,
}

/// Arguments of `brisk serve`. Without a file and an upstream it serves a page on localhost with development certificates.
#[derive(Args, Debug)]
#[command(after_help = AFTER_SERVE)]
pub(crate) struct Serve {
    /// Configuration file (TOML)
    #[arg(long, short, value_name = "FILE", group = "configuration", conflicts_with = "upstream")]
    pub(crate) config: Option<PathBuf>,
    /// Configuration file (TOML), as with --config
    #[arg(value_name = "FILE", group = "configuration", conflicts_with = "upstream")]
    pub(crate) file: Option<PathBuf>,
    /// Upstream server, e.g. http://127.0.0.1:8080
    #[arg(long, short, value_name = "URL")]
    pub(crate) upstream: Option<ServerUrl>,
    /// Address for HTTPS; can be repeated [default without a file: port 8443 of localhost, IPv4 and IPv6]
    #[arg(long, short, value_name = "ADDRESS", value_parser = address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Folder of the development CA [default: $XDG_STATE_HOME/brisk or ~/.local/state/brisk]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Directory URL of the ACME authority; replaces that of the file [default: Let's Encrypt]
    #[arg(long, value_name = "URL", requires = "configuration")]
    pub(crate) acme_directory: Option<String>,
    /// Trusted CAs for the ACME authority's own server (PEM) [default: the system's]
    #[arg(long, value_name = "FILE", requires = "configuration")]
    pub(crate) acme_ca: Option<PathBuf>,
    /// Number of worker threads [default: one per core]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Format of the access log [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) access_log: Option<AccessLog>,
    /// Write TLS secrets to the file in SSLKEYLOGFILE, for debugging
    #[arg(long)]
    pub(crate) keylog: bool,
    /// Log level: error, warn, info, debug, trace, or a filter, e.g. info,brisk_tls=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = filter)]
    pub(crate) log: String,
}

impl Serve {
    /// Options that replace values of the configuration.
    pub(crate) fn command_line(&self) -> CommandLine {
        CommandLine {
            file: self.config.clone().or_else(|| self.file.clone()),
            upstream: self.upstream.clone(),
            listen: self.listen.clone(),
            state_dir: self.state_dir.clone(),
            acme_directory: self.acme_directory.clone(),
            acme_ca: self.acme_ca.clone(),
            workers: self.workers,
            access_log: self.access_log.map(|format| match format {
                AccessLog::Text => AccessLogFormat::Text,
                AccessLog::Json => AccessLogFormat::Json,
                AccessLog::Off => AccessLogFormat::Off,
            }),
            key_log: self.keylog,
        }
    }
}

/// Formats of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLog {
    Text,
    Json,
    Off,
}

const AFTER_SERVE: &str = "\
Examples:
  brisk serve                                     a page about your own connection on https://localhost:8443
  brisk serve --upstream http://127.0.0.1:8080    HTTPS in front of a server
  brisk serve brisk.toml                          all settings from a file; docs/configuration.md lists them";

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, e.g. 127.0.0.1:8443 or [::]:443".to_owned())
}

fn filter(text: &str) -> Result<String, String> {
    // Parsed here too, so that a wrong filter is an error of the arguments, with their exit code.
    let parsed = tracing_subscriber::EnvFilter::try_new(text);
    parsed.map(|_| text.to_owned()).map_err(|error| format!("{error}: write a level, e.g. info"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_takes_every_option() {
        let line = "brisk serve --upstream http://127.0.0.1:80 --listen [::1]:1 --listen 127.0.0.1:1 --state-dir s \
                    --workers 2 --keylog --access-log json --log debug";
        let Command::Serve(serve) = parse(line).expect("a right line").command else { panic!("not serve") };
        assert_eq!(serve.upstream.map(|url| url.to_string()).as_deref(), Some("http://127.0.0.1:80"));
        assert_eq!(serve.listen.len(), 2);
        assert_eq!(serve.workers, Some(2));
        assert!(serve.keylog);
        assert_eq!(serve.access_log, Some(AccessLog::Json));
        assert_eq!(serve.log, "debug");
    }

    #[test]
    fn a_wrong_line_ends_with_code_2_and_says_what_would_be_right() {
        for (line, hint) in [
            ("brisk serve --config a --upstream http://b", "cannot be used with"),
            ("brisk serve --listen 8443", "write an IP address and a port, e.g. 127.0.0.1:8443"),
            ("brisk serve --workers 0", "1..=1024"),
            ("brisk serve --access-log xml", "possible values: text, json, off"),
            ("brisk serve --upstram http://b", "--upstream"),
            ("brisk serve --log =", "write a level, e.g. info"),
            ("brisk check", "<FILE>"),
            ("brisk check a --har b", "cannot be used with"),
            ("brisk check a --json", "cannot be used with"),
            ("brisk check --har b --rtt 50", "is not a duration"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(hint), "{line}: {error}");
        }
    }
}
