//! Definition of the options of `brisk capture`.

use std::path::PathBuf;

use brisk_capture::{Filter, Limits, Ring};
use clap::Args;

/// Arguments of `brisk capture`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_CAPTURE)]
pub(crate) struct Capture {
    /// Capture (pcap or pcapng, also gzip or zstd), or - for standard input
    #[arg(required_unless_present = "interface", conflicts_with = "interface")]
    pub(crate) file: Option<PathBuf>,
    /// Record from this network interface until SIGINT, instead of reading a file
    #[arg(short, long, value_name = "NAME", help_heading = "Recording")]
    pub(crate) interface: Option<String>,
    /// Packets to record: port NUMBER, host ADDRESS, tcp or udp, with not in front, joined by and
    #[arg(
        long,
        value_name = "CONDITIONS",
        requires = "interface",
        conflicts_with = "file",
        help_heading = "Recording"
    )]
    pub(crate) filter: Option<Filter>,
    /// Write the recorded packets to this file too
    #[arg(
        long,
        value_name = "FILE",
        requires = "interface",
        conflicts_with = "file",
        help_heading = "Recording"
    )]
    pub(crate) write: Option<PathBuf>,
    /// Write to a ring of files, for example 10x100MB: site.0.pcap, site.1.pcap and so on for site.pcap
    #[arg(long, value_name = "NUMBERxSIZE", requires = "write", help_heading = "Recording")]
    pub(crate) ring: Option<Ring>,
    /// Print JSON lines: one for each connection, and a summary
    #[arg(long, conflicts_with_all = ["ladder", "connections"])]
    pub(crate) json: bool,
    /// Print a JSON line for each TCP packet too
    #[arg(long, requires = "json")]
    pub(crate) packets: bool,
    /// Draw the packets of the connection with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) ladder: Option<u64>,
    /// With --ladder: write the diagram as SVG
    #[arg(long, value_name = "FILE", requires = "ladder")]
    pub(crate) svg: Option<PathBuf>,
    /// Write an HTML page with the connections, and with the packets of the listed ones
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) html: Option<PathBuf>,
    /// Number of connections to list, those with the most lost time
    #[arg(long, value_name = "NUMBER", default_value = "20", value_parser = clap::value_parser!(u16))]
    pub(crate) connections: u16,
    /// Key log (SSLKEYLOGFILE) that decrypts TLS 1.2 and 1.3
    #[arg(long, value_name = "FILE")]
    pub(crate) keylog: Option<PathBuf>,
    /// Records to place beside the packets: access log in JSON, or file of brisk bench --records; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) join: Vec<PathBuf>,
    /// Compare with another capture: causes, durations and shares, with confidence intervals
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ladder", "html", "packets", "connections", "interface", "join"])]
    pub(crate) compare: Option<PathBuf>,
    /// Maximum number of connections in memory
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().connections as u32, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Maximum memory of connections in MiB
    #[arg(long, value_name = "MIB", default_value_t = (Limits::default().memory >> 20) as u32, value_parser = clap::value_parser!(u32).range(1..))]
    max_memory: u32,
}

impl Capture {
    /// Name of the input in messages.
    pub(crate) fn name(&self) -> String {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        file.or(self.interface.clone()).unwrap_or_default()
    }

    /// Bounds of memory.
    pub(crate) fn limits(&self) -> Limits {
        Limits { connections: self.max_connections as usize, memory: (self.max_memory as usize) << 20 }
    }
}

const AFTER_CAPTURE: &str = "\
Examples:
  brisk capture site.pcapng                               causes of time, and the slowest connections
  ssh host tcpdump -i eth0 -w - port 443 | brisk capture -
  brisk capture -i eth0 --filter 'port 443' --write site.pcap --ring 10x100MB
  brisk capture site.pcapng --ladder 7                    the packets of connection 7
  brisk capture site.pcapng --html report.html            plots over time, for a browser
  brisk capture before.pcapng --compare after.pcapng      which causes have changed
  brisk capture site.pcapng --join access.log             the gateway's records beside the packets
  brisk capture site.pcapng.zst --json | jq .finding
docs/capture.md describes the results.";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::tools::Tool;

    fn parse(line: &str) -> Result<Capture, clap::Error> {
        let parsed = Cli::try_parse_from(format!("brisk capture {line}").split_whitespace())?;
        let Command::Tool(Tool::Capture(capture)) = parsed.command else { panic!("not capture: {line}") };
        Ok(*capture)
    }

    #[test]
    fn options_arrive_and_have_defaults() {
        let capture =
            parse("- --ladder 7 --keylog k --max-connections 10 --max-memory 3").expect("a right line");
        assert_eq!((capture.ladder, capture.connections), (Some(7), 20));
        assert_eq!((capture.limits().connections, capture.limits().memory), (10, 3 << 20));
        let defaults = parse("a.pcap").expect("a right line").limits();
        assert_eq!((defaults.connections, defaults.memory), (65_536, 512 << 20));
    }

    #[test]
    fn a_wrong_line_says_what_would_be_right() {
        for (line, hint) in [
            ("", "<FILE>"),
            ("a --packets", "--json"),
            ("a --json --ladder 1", "cannot be used with"),
            ("a --max-connections 0", "1.."),
            ("a -i lo", "cannot be used with"),
            ("-i lo --ring 3x1MB", "--write"),
            ("-i lo --filter port", "no condition"),
            ("a --filter tcp", "cannot be used with"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(hint), "{line}: {error}");
        }
    }
}
