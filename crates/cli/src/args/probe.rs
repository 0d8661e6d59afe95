//! The command line of `brisk probe`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use brisk_probe::{Settings, Url};
use brisk_wire::registry::ProtocolVersion;
use clap::{Args, ValueEnum};

/// Arguments of `brisk probe`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_PROBE)]
pub(crate) struct Probe {
    /// What to probe, e.g. https://example.com/
    #[arg(value_name = "URL", value_parser = url)]
    url: Url,
    /// Connect to this address, whatever the name resolves to
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<IpAddr>,
    /// Name server that is asked for the HTTPS record [default: the first of the system]
    #[arg(long, value_name = "ADDRESS:PORT")]
    name_server: Option<SocketAddr>,
    /// Trusted authorities (PEM); can be repeated [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Exit with 0 although the certificate is not trusted
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Offer this version of TLS only
    #[arg(long, value_name = "VERSION")]
    tls: Option<Version>,
    /// Offer HTTP/1.1 only
    #[arg(long)]
    http1: bool,
    /// All that a connection may take, in seconds
    #[arg(long, value_name = "NUMBER", default_value = "10", value_parser = seconds)]
    timeout: Duration,
    /// Append the secrets of the connection to this file, for Wireshark (NSS key log)
    #[arg(long, value_name = "FILE")]
    pub(crate) keylog: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Versions of TLS that can be offered alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Version {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl Probe {
    /// The settings of the probe.
    pub(crate) fn settings(&self) -> Settings {
        let version = self.tls.map(|version| match version {
            Version::Tls12 => ProtocolVersion::TLS1_2,
            Version::Tls13 => ProtocolVersion::TLS1_3,
        });
        let mut settings = Settings::new(self.url.clone());
        settings.connect = self.connect;
        settings.name_server = self.name_server;
        settings.authorities.clone_from(&self.ca);
        settings.version = version;
        settings.http1 = self.http1;
        settings.timeout = self.timeout;
        settings
    }
}

const AFTER_PROBE: &str = "\
Examples:
  brisk probe https://example.com/                every step of one connection, and what could be better
  brisk probe example.com --tls 1.2 --http1       the same as an older client
  brisk probe example.com --connect 192.0.2.7     one server of several
  brisk probe example.com --json                  for programs
Exit codes: 0 an answer came, 1 this machine failed, 2 wrong arguments, 3 the name does not resolve, 4 no connection,
5 no TLS handshake, 6 no answer by the protocol, 7 out of time, 9 an answer came and the certificate is not trusted.
docs/probe.md describes the report.";

/// Maximum of `--timeout`.
const LONGEST: f64 = 600.0;

fn url(text: &str) -> Result<Url, String> {
    text.parse()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write seconds, at most 600, e.g. 10 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Result<Box<Probe>, clap::Error> {
        let parsed = Cli::try_parse_from(format!("brisk probe {line}").split_whitespace())?;
        let Command::Probe(probe) = parsed.command else { panic!("not probe: {line}") };
        Ok(probe)
    }

    #[test]
    fn every_option_arrives() {
        let line = "https://a:1/b --connect ::1 --name-server 127.0.0.1:53 --ca f --tls 1.2 --http1 --timeout 0.5 --json";
        let probe = parse(line).expect("a right line");
        assert!(probe.json && !probe.insecure);
        let settings = probe.settings();
        assert_eq!(settings.url.to_string(), "https://a:1/b");
        assert_eq!(settings.connect, Some("::1".parse().expect("an address")));
        assert_eq!((settings.http1, settings.timeout), (true, Duration::from_millis(500)));
        assert_eq!(settings.version, Some(ProtocolVersion::TLS1_2));
    }

    #[test]
    fn a_wrong_line_says_what_would_be_right() {
        for (line, hint) in [
            ("", "<URL>"),
            ("http://a/", "only https can be probed"),
            ("a --timeout 0", "write seconds, at most 600"),
            ("a --tls 1.1", "1.2, 1.3"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(hint), "{line}: {error}");
        }
    }
}
