//! `brisk serve`: settings, log, and a gateway that runs until it is told to stop.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;

use anyhow::Context;
use brisk_certs::DevelopmentCa;
use brisk_gateway::{Addresses, Gateway, GatewaySettings};
use tracing_subscriber::EnvFilter;

use crate::args::Serve;
use crate::config::{self, ConfigError};

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: &Serve) -> anyhow::Result<()> {
    let resolved = config::settings(args)?;
    start_log(&args.log)?;
    warn(&resolved.warnings);
    let gateway = Gateway::bind(resolved.settings)?;
    announce(gateway.addresses(), resolved.development.as_ref())
        .context("cannot write to standard output")?;
    gateway.run(|| reread(args))?;
    Ok(())
}

/// The settings anew, for a reload.
fn reread(args: &Serve) -> Result<GatewaySettings, ConfigError> {
    let resolved = config::settings(args)?;
    warn(&resolved.warnings);
    Ok(resolved.settings)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// The log goes to standard error; standard output is for the access log.
fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    log.with_ansi(io::stderr().is_terminal()).with_target(false).init();
    Ok(())
}

/// Says where it serves, in a form that scripts can read.
fn announce(addresses: &Addresses, development: Option<&DevelopmentCa>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "brisk {} serves", env!("CARGO_PKG_VERSION"))?;
    let mut line =
        |kind: &str, scheme: &str, address: &SocketAddr| writeln!(out, "  {kind:<7}{scheme}://{address}");
    addresses.https.iter().try_for_each(|address| line("https", "https", address))?;
    addresses.http.iter().try_for_each(|address| line("http", "http", address))?;
    addresses.admin.iter().try_for_each(|address| line("admin", "http", address))?;
    if let Some(ca) = development {
        writeln!(out, "{}", trust(ca))?;
    }
    out.flush()
}

/// How to have no warning from clients on this machine.
fn trust(ca: &DevelopmentCa) -> String {
    let file = ca.certificate().display();
    format!(
        "  trust  sudo cp {file} /usr/local/share/ca-certificates/brisk.crt && sudo update-ca-certificates; \
         in a browser: import {file} as an authority"
    )
}
