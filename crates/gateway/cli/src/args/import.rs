//! Definition of the options of `brisk import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `brisk import`.
#[derive(Args, Debug)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) command: ImportCommand,
}

/// Servers whose configuration is translated.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Translate a configuration of nginx and report about each of its directives
    #[command(after_help = NGINX)]
    Nginx(NginxFile),
    /// Translate a configuration of HAProxy and report about each of its lines
    #[command(after_help = HAPROXY)]
    Haproxy(ImportFile),
    /// Translate a Caddyfile and report about each of its directives
    #[command(after_help = CADDY)]
    Caddy(ImportFile),
}

/// Arguments of `brisk import nginx`.
#[derive(Args, Debug)]
pub(crate) struct NginxFile {
    #[command(flatten)]
    pub(crate) common: ImportFile,
    /// Run nginx and brisk on spare ports with recorders in place of upstreams, and show the differences of their responses
    #[arg(long)]
    pub(crate) check: bool,
}

/// Arguments of each command of `brisk import`.
#[derive(Args, Debug)]
pub(crate) struct ImportFile {
    /// Main file of the server; included files are read too
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Configuration file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// File for the report about all directives [default: standard error, with the differences only]
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,
}

const NGINX: &str = "\
Examples:
  brisk import nginx /etc/nginx/nginx.conf                        shows the translation and the differences
  brisk import nginx /etc/nginx/nginx.conf -o brisk.toml          writes it
  brisk import nginx site.conf -o brisk.toml --report report.md   writes all classes of directives too
  brisk import nginx /etc/nginx/nginx.conf --check                compares the responses of nginx and brisk

Servers of nginx that only their addresses separate need a process each: brisk.toml, brisk-2.toml and so on.
docs/import.md describes the translation.";

const HAPROXY: &str = "\
Examples:
  brisk import haproxy /etc/haproxy/haproxy.cfg                 shows the translation and the differences
  brisk import haproxy /etc/haproxy/haproxy.cfg -o brisk.toml   writes it

Frontends that only their addresses separate need a process each: brisk.toml, brisk-2.toml and so on.
docs/import.md describes the translation.";

const CADDY: &str = "\
Examples:
  brisk import caddy /etc/caddy/Caddyfile                 shows the translation and the differences
  brisk import caddy /etc/caddy/Caddyfile -o brisk.toml   writes it

Sites that only their addresses separate need a process each: brisk.toml, brisk-2.toml and so on.
docs/import.md describes the translation.";
