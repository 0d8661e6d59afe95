//! Definition of the options of `brisk probe`.
#![expect(clippy::doc_markdown, reason = "doc comments of arguments are help texts for a terminal")]

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use brisk_probe::{Mode, ProbeError, Settings, Side, Url};
use brisk_wire::registry::ProtocolVersion;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};

use super::audit_args::AuditArgs;

/// Arguments of `brisk probe`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_PROBE)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Probe {
    /// URL or host name to probe, e.g. example.com
    #[arg(value_name = "URL", value_parser = UrlText, required_unless_present_any = ["config", "hosts"])]
    pub(crate) url: Option<Url>,
    /// IP address to connect to, instead of resolving the host name
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) connect: Option<IpAddr>,
    /// Name server for the HTTPS record; audit: for CAA records [default: the system's first; audit: the system's]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) name_server: Option<SocketAddr>,
    /// Trusted certificate authorities (PEM); can be repeated [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Vec<PathBuf>,
    /// Exit with 0 even if the certificate is not trusted
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Offer only this TLS version
    #[arg(long, value_name = "VERSION")]
    tls: Option<Version>,
    /// Offer only HTTP/1.1
    #[arg(long)]
    http1: bool,
    /// Resume a session from an earlier connection
    #[arg(long, conflicts_with = "timing")]
    resume: bool,
    /// Resume a session and send the request as 0-RTT data
    #[arg(long = "0rtt", conflicts_with_all = ["timing", "resume"])]
    early: bool,
    /// Measure the times of curl -w for first, resumed, 0-RTT and kept connections
    #[arg(long, conflicts_with_all = ["compare", "frames", "browser", "http3", "keylog"])]
    pub(crate) timing: bool,
    /// Compare with this server; without URL, compare the given options with the defaults
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["frames", "browser", "http3", "keylog", "max_ttfb"])]
    pub(crate) compare: Option<String>,
    /// Number of rounds of --timing and --compare
    #[arg(long, short = 'n', value_name = "NUMBER", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Exit with 8 if the first byte takes longer, in milliseconds; --timing: median of first connections
    #[arg(long, value_name = "NUMBER", value_parser = millis)]
    pub(crate) max_ttfb: Option<f64>,
    /// Show all HTTP/2 frames, sent and received
    #[arg(long)]
    pub(crate) frames: bool,
    /// Also send Chrome's ClientHello and show the server's reaction
    #[arg(long)]
    pub(crate) browser: bool,
    /// Also test HTTP/3: announcements, versions of QUIC, handshakes, 0-RTT
    #[arg(long)]
    pub(crate) http3: bool,
    /// Also load the page in Chromium: waterfall, paints, findings about its delivery
    #[arg(long, conflicts_with_all = ["timing", "compare"])]
    pub(crate) page: bool,
    /// File for the page load as HAR
    #[arg(long, value_name = "FILE", requires = "page")]
    pub(crate) har: Option<PathBuf>,
    /// Timeout in seconds [default: 10; audit: 120]
    #[arg(long, value_name = "NUMBER", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// File to append the TLS secrets to, for Wireshark (NSS key log)
    #[arg(long, value_name = "FILE")]
    pub(crate) keylog: Option<PathBuf>,
    /// File for the result as an HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) audit: AuditArgs,
}

/// TLS version that is offered alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Version {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl Probe {
    /// Settings of the probe. Fails without a URL, which clap does not require for an audit of a configuration.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let version = self.tls.map(|version| match version {
            Version::Tls12 => ProtocolVersion::TLS1_2,
            Version::Tls13 => ProtocolVersion::TLS1_3,
        });
        let mut settings = Settings::new(self.url.clone().context("name a URL, e.g. https://example.com/")?);
        settings.connect = self.connect;
        settings.name_server = self.name_server;
        settings.authorities.clone_from(&self.ca);
        settings.version = version;
        settings.http1 = self.http1;
        settings.insecure = self.insecure;
        settings.timeout = self.timeout.unwrap_or(settings.timeout);
        Ok(settings)
    }
}

impl Probe {
    /// How the measured connection begins: full handshake, resumption or early data.
    pub(crate) fn mode(&self) -> Mode {
        match (self.resume, self.early) {
            (_, true) => Mode::Early,
            (true, _) => Mode::Resume,
            _ => Mode::Full,
        }
    }

    /// Sides of `--compare`: two URLs with the same settings, or one URL with the default and with the given settings. Fails
    /// if neither a second URL nor a setting is given.
    pub(crate) fn sides(&self) -> anyhow::Result<[Side; 2]> {
        let (settings, mode) = (self.settings()?, self.mode());
        let side = |name: String, settings: Settings, mode| Side { name, settings, mode };
        let other = self.compare.as_deref().unwrap_or_default();
        if !other.is_empty() {
            let url: Url = other.parse().map_err(ProbeError::Settings)?;
            let second = Settings { url, ..settings.clone() };
            let names = [settings.url.to_string(), second.url.to_string()];
            let [first_name, second_name] = names;
            return Ok([side(first_name, settings, mode), side(second_name, second, mode)]);
        }
        let words = self.words();
        if words.is_empty() {
            bail!(ProbeError::Settings(
                "--compare takes a second URL, or settings: --resume, --0rtt, --tls VERSION or --http1"
                    .to_owned()
            ));
        }
        // All else is equal on both sides, so that the difference is that of the given options.
        let plain = Settings { version: None, http1: false, ..settings.clone() };
        Ok([side("default".to_owned(), plain, Mode::Full), side(words.join(" "), settings, mode)])
    }

    /// Names of the options that differ from the defaults, as typed.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(version) = self.tls {
            words.push(format!("--tls {}", if version == Version::Tls12 { "1.2" } else { "1.3" }));
        }
        let flags = [(self.http1, "--http1"), (self.resume, "--resume"), (self.early, "--0rtt")];
        words.extend(flags.into_iter().filter(|(is_given, _)| *is_given).map(|(_, word)| word.to_owned()));
        words
    }
}

const AFTER_PROBE: &str = "\
Examples:
  brisk probe https://example.com/                every step of one connection, and possible improvements
  brisk probe example.com --tls 1.2 --http1       the same with an older client
  brisk probe example.com --connect 192.0.2.7     one server of several
  brisk probe example.com --compare --0rtt        savings of 0-RTT, step by step
  brisk probe example.com --compare example.net   two servers in turns
  brisk probe example.com --timing -n 20          the times of curl -w for four kinds of connections
  brisk probe example.com --http3                 the same, and a test of HTTP/3
  brisk probe example.com --page --har page.har   the same, and a load of the page in Chromium
  brisk probe example.com --json                  result for programs
  brisk probe example.com --audit --fail-below A  audit of the TLS configuration; docs/audit.md
Exit codes: 0 response received, 1 local failure, 2 wrong arguments, 3 name not resolved, 4 no TCP connection,
5 no TLS handshake, 6 no valid HTTP response, 7 timeout, 8 response later than --max-ttfb,
9 response received but certificate not trusted, 10 grade worse than --fail-below.
docs/probe.md describes the report.";

/// Maximum of `--timeout`, in seconds.
const LONGEST: f64 = 600.0;

/// Parser of a URL whose error does not repeat the argument, as clap's own errors do: a URL may contain a password.
#[derive(Clone, Copy, Debug)]
struct UrlText;

impl TypedValueParser for UrlText {
    type Value = Url;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        text: &OsStr,
    ) -> Result<Url, clap::Error> {
        let parsed = text.to_string_lossy().parse();
        parsed.map_err(|reason: String| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("wrong URL {reason}\n")).with_cmd(command)
        })
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        "write an address, e.g. 192.0.2.7 or 2001:db8::7; the port is that of the URL".to_owned()
    })
}

fn millis(text: &str) -> Result<f64, String> {
    let time = text.parse::<f64>().ok().filter(|time| *time > 0.0 && time.is_finite());
    time.ok_or_else(|| "write milliseconds, e.g. 200".to_owned())
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
    use crate::tools::Tool;

    fn parse(line: &str) -> Result<Box<Probe>, clap::Error> {
        let parsed = Cli::try_parse_from(format!("brisk probe {line}").split_whitespace())?;
        let Command::Tool(Tool::Probe(probe)) = parsed.command else { panic!("not probe: {line}") };
        Ok(probe)
    }

    #[test]
    fn every_option_arrives() {
        let line = "https://a:1/b --connect ::1 --name-server 127.0.0.1:53 --ca f --tls 1.2 --http1 --timeout 0.5 --json";
        let probe = parse(line).expect("a right line");
        assert!(probe.json && !probe.insecure);
        let settings = probe.settings().expect("a URL");
        assert_eq!(settings.url.to_string(), "https://a:1/b");
        assert_eq!(settings.connect, Some("::1".parse().expect("an address")));
        assert_eq!((settings.http1, settings.timeout), (true, Duration::from_millis(500)));
        assert_eq!(settings.version, Some(ProtocolVersion::TLS1_2));
    }

    #[test]
    fn the_sides_of_a_comparison_follow_from_the_line() {
        let sides = |line: &str| parse(line).expect(line).sides();
        let [first, second] = sides("https://a --compare --0rtt --http1").expect("sides");
        assert_eq!((first.mode, first.settings.http1, first.name.as_str()), (Mode::Full, false, "default"));
        assert_eq!(
            (second.mode, second.settings.http1, second.name.as_str()),
            (Mode::Early, true, "--http1 --0rtt")
        );
        let [first, second] = sides("https://a --tls 1.2 --compare https://b").expect("sides");
        assert_eq!((first.name.as_str(), second.name.as_str()), ("https://a/", "https://b/"));
        assert_eq!(first.settings.version, second.settings.version);
        assert!(sides("https://a --compare").is_err() && sides("https://a --compare http://b").is_err());
    }

    #[test]
    fn a_wrong_line_says_what_would_be_right() {
        for (line, hint) in [
            ("", "<URL>"),
            ("http://a/", "only https can be probed"),
            ("https://user:word@a/", "a user name has no place here"),
            ("a --connect 127.0.0.1:9443", "the port is that of the URL"),
            ("a --timeout 0", "write seconds, at most 600"),
            ("a --tls 1.1", "1.2, 1.3"),
            ("a --max-ttfb x", "write milliseconds"),
            ("a --timing --frames", "cannot be used with"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(hint), "{line}: {error}");
            assert!(!error.to_string().contains("word"), "{line}: {error}");
        }
    }
}
