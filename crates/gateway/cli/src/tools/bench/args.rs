//! Definition of the options of `brisk bench`.
#![expect(clippy::doc_markdown, reason = "doc comments of arguments are help texts for a terminal")]

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use brisk_bench::Options;
use brisk_bench::mix::Mix;
use brisk_bench::options::{self, CertificateType};
use brisk_bench::schedule::Steps;
use brisk_tls_client::SessionUse;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion};
use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `brisk bench`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = AFTER_BENCH)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    #[command(flatten)]
    pub(crate) load: Load,
    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Write the result as an HTML page with charts
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,
    /// Write a JSON line for each connection with its address and milestones, for brisk capture --join
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) records: Option<PathBuf>,
}

/// Subcommands of `brisk bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure several servers and modes in turn and report their ratios
    Compare(Compare),
}

/// Arguments of `brisk bench compare`.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Plan file (TOML) with servers and modes
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Measure only this target; can be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) target: Vec<String>,
    /// Measure only this mode; can be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) mode: Vec<String>,
    /// Time limit of the comparison
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Maximum number of rounds
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the result as an HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the result as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

/// Options of one load, shared by `brisk bench` and the modes of a plan.
#[derive(Args, Clone, Debug)]
pub(crate) struct Load {
    /// URL to load, e.g. https://localhost:8443/; http:// disables TLS
    #[arg(value_name = "URL", required = true)]
    url: Option<String>,
    /// Connect to this address instead of the URL's host and port
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    #[command(flatten)]
    workload: Workload,
    #[command(flatten)]
    handshake: Handshake,
    #[command(flatten)]
    schedule: Schedule,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Requests")]
struct Workload {
    /// Close each connection after its handshake
    #[arg(long, conflicts_with_all = ["per_connection", "h2", "method", "header", "body", "urls"])]
    handshake_only: bool,
    /// Requests per connection [default: as many as the server allows]
    #[arg(long, short = 'r', value_name = "NUMBER")]
    per_connection: Option<NonZeroU32>,
    /// Use HTTP/2 with this number of concurrent requests per connection [default: HTTP/1.1]
    #[arg(long, value_name = "STREAMS")]
    h2: Option<NonZeroU32>,
    /// Use HTTP/3 with this number of concurrent requests per connection
    #[arg(long, value_name = "STREAMS", conflicts_with_all = ["h2", "fast_open"])]
    h3: Option<NonZeroU32>,
    /// HTTP method [default: GET; POST with a body]
    #[arg(long, short = 'X', value_name = "METHOD", conflicts_with = "urls")]
    method: Option<String>,
    /// Header of all requests, e.g. "Accept: text/html"; can be repeated
    #[arg(long, short = 'H', value_name = "HEADER")]
    header: Vec<String>,
    /// File with the body of all requests
    #[arg(long, value_name = "FILE", conflicts_with = "urls")]
    body: Option<PathBuf>,
    /// File with requests and their weights.
    #[arg(
        long,
        value_name = "FILE",
        help = "File with one request per line: [WEIGHT] [METHOD] PATH [@BODY]"
    )]
    urls: Option<PathBuf>,
    /// Use TCP Fast Open
    #[arg(long)]
    fast_open: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Handshakes")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct Handshake {
    /// Handshake kinds in percent, e.g. full=20,ticket=50,0-rtt=30, or one of full, session-id, ticket, psk, 0-rtt
    /// [default: full]
    #[arg(long, value_name = "KINDS")]
    mix: Option<Mix>,
    /// Resume each TLS 1.3 session once or many times [default: many, if the server allows it]
    #[arg(long, value_name = "USE")]
    sessions: Option<Sessions>,
    /// TLS version to offer, 1.2 or 1.3; can be repeated [default: both]
    #[arg(long, value_name = "VERSION", value_delimiter = ',', value_parser = options::version)]
    tls: Vec<ProtocolVersion>,
    /// Cipher suite to offer, e.g. TLS_AES_128_GCM_SHA256; can be repeated [default: all]
    #[arg(long, value_name = "SUITE", value_delimiter = ',', value_parser = options::suite)]
    suite: Vec<CipherSuite>,
    /// Key exchange group to offer, the first with a key share; can be repeated [default: X25519MLKEM768, X25519,
    /// P-256, P-384]
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = options::group)]
    group: Vec<NamedGroup>,
    /// Accept only certificates with this type of key [default: both]
    #[arg(long, value_name = "TYPE")]
    cert: Option<Certificate>,
    /// Server name to send and to verify [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Do not send the server name
    #[arg(long)]
    no_sni: bool,
    /// ALPN protocols to offer, comma-separated, or none [default: the protocol in use]
    #[arg(long, value_name = "PROTOCOLS", value_parser = protocols)]
    alpn: Option<Protocols>,
    /// Client certificate followed by its intermediates (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Trusted certificate authorities (PEM); can be repeated [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Do not verify the server's certificate
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Request a stapled OCSP response
    #[arg(long)]
    ocsp: bool,
    /// Generate a key share for each handshake instead of one per thread
    #[arg(long)]
    fresh_keys: bool,
    /// Use the private key 1 for key shares: no cost for the client, no secrecy
    #[arg(long, conflicts_with = "fresh_keys")]
    unit_keys: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Schedule")]
struct Schedule {
    /// Number of connections [default: 16; at a fixed rate up to 256]
    #[arg(long, short = 'c', value_name = "NUMBER")]
    connections: Option<NonZeroU32>,
    /// Operations per second, independent of responses [default: closed loop]
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["ramp", "ramp_connections"])]
    rate: Option<f64>,
    /// Operations per second in steps: 50:200:50/60s starts at 50 and adds 50 every 60 s up to 200
    #[arg(long, value_name = "STEPS", conflicts_with = "ramp_connections")]
    ramp: Option<Steps>,
    /// Number of connections in steps, as with --ramp
    #[arg(long, value_name = "STEPS", conflicts_with = "connections")]
    ramp_connections: Option<Steps>,
    /// Duration of the measurement, e.g. 30s, 1.5m, 200ms [default: 10s, or the length of the steps]
    #[arg(long, short = 'd', value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Number of operations to measure
    #[arg(long, short = 'n', value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    number: Option<u64>,
    /// Warm-up time before the measurement [default: 1s; none with -n]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    warmup: Option<Duration>,
    /// Number of threads [default: 1]
    #[arg(long, short = 't', value_name = "NUMBER")]
    threads: Option<NonZeroU32>,
    /// Timeout of an operation [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Maximum number of operations that wait for a connection at a fixed rate [default: 100000]
    #[arg(long, value_name = "NUMBER")]
    backlog: Option<u32>,
    /// Process id of the server, whose CPU time and memory are measured, including threads and children
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
}

/// Number of times that a session is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sessions {
    Once,
    Many,
}

/// ALPN protocols to offer.
#[derive(Clone, Debug)]
struct Protocols(Vec<String>);

/// Key types of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Certificate {
    Rsa,
    Ecdsa,
}

impl Load {
    /// Options of the load generator.
    pub(crate) fn options(self) -> Options {
        let Self { url, connect, workload, handshake, schedule } = self;
        // Never empty here: clap requires the URL, and `compare`, which does without, builds no
        // load from these options.
        let mut options = Options::new(url.unwrap_or_default());
        options.connect = connect;
        workload.apply(&mut options);
        handshake.apply(&mut options);
        schedule.apply(&mut options);
        options
    }
}

impl Workload {
    fn apply(self, options: &mut Options) {
        options.handshake_only = self.handshake_only;
        options.per_connection = self.per_connection;
        options.streams = self.h2;
        options.http3 = self.h3;
        options.method = self.method;
        options.headers = self.header;
        options.body = self.body;
        options.urls = self.urls;
        options.fast_open = self.fast_open;
    }
}

impl Handshake {
    fn apply(self, options: &mut Options) {
        options.mix = self.mix;
        options.session_use = self.sessions.map(|sessions| match sessions {
            Sessions::Once => SessionUse::Once,
            Sessions::Many => SessionUse::Many,
        });
        options.versions = self.tls;
        options.suites = self.suite;
        options.groups = self.group;
        options.certificate = self.cert.map(|certificate| match certificate {
            Certificate::Rsa => CertificateType::Rsa,
            Certificate::Ecdsa => CertificateType::Ecdsa,
        });
        options.name = self.sni;
        options.no_sni = self.no_sni;
        options.alpn = self.alpn.map(|protocols| protocols.0);
        options.identity = self.client_cert.zip(self.client_key);
        options.authorities = self.ca;
        options.insecure = self.insecure;
        options.ocsp = self.ocsp;
        options.fresh_keys = self.fresh_keys;
        options.unit_keys = self.unit_keys;
    }
}

impl Schedule {
    fn apply(self, options: &mut Options) {
        options.connections = self.connections;
        options.rate = self.rate;
        options.ramp = self.ramp;
        options.ramp_connections = self.ramp_connections;
        options.time = self.duration;
        options.count = self.number;
        options.warmup = self.warmup;
        options.threads = self.threads;
        options.timeout = self.timeout;
        options.backlog = self.backlog;
        options.server = self.server_pid;
    }
}

const AFTER_BENCH: &str = "\
Examples:
  brisk bench https://localhost:8443/ --ca ca.pem                 kept connections, closed loop
  brisk bench https://site.test/ --handshake-only --cert ecdsa    full handshakes, one after another on 16 connections
  brisk bench https://site.test/ -r 1 --rate 500 --mix full=20,ticket=50,0-rtt=30
                                                                  500 connections per second, most of them resumed
docs/bench.md explains each option, how latency is counted, and the exit codes.";

fn protocols(text: &str) -> Result<Protocols, options::NameError> {
    options::alpn(text).map(Protocols)
}

fn duration(text: &str) -> Result<Duration, String> {
    brisk_compare::duration(text).ok_or_else(|| "write a duration, e.g. 30s, 1.5m or 200ms".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::tools::Tool;

    fn options(line: &str) -> Options {
        let line = format!("brisk bench {line}");
        let parsed = Cli::try_parse_from(line.split(' ')).expect(&line);
        let Command::Tool(Tool::Bench(bench)) = parsed.command else { panic!("not bench: {line}") };
        bench.load.options()
    }

    #[test]
    fn every_option_arrives() {
        let options = options(
            "https://a.test/ --connect 127.0.0.1:1 -r 3 --h2 4 -X put -H A:b --body f --mix full=50,ticket=50 \
             --sessions once --tls 1.3,1.2 --suite TLS_AES_128_GCM_SHA256 --group x25519,P-256 --cert rsa --sni b.test \
             --no-sni --alpn h2,http/1.1 --client-cert c --client-key k --ca x --ca y --ocsp --fresh-keys --fast-open -c 5 \
             --rate 1.5 -d 2s -n 6 --warmup 0 -t 7 --timeout 3s --backlog 8 --server-pid 9",
        );
        let wanted = Options {
            connect: Some("127.0.0.1:1".to_owned()),
            per_connection: NonZeroU32::new(3),
            streams: NonZeroU32::new(4),
            method: Some("put".to_owned()),
            headers: vec!["A:b".to_owned()],
            body: Some("f".into()),
            mix: Some("full=50,ticket=50".parse().expect("a mix")),
            session_use: Some(SessionUse::Once),
            versions: vec![ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2],
            suites: vec![CipherSuite::TLS_AES_128_GCM_SHA256],
            groups: vec![NamedGroup::X25519, NamedGroup::SECP256R1],
            certificate: Some(CertificateType::Rsa),
            name: Some("b.test".to_owned()),
            no_sni: true,
            alpn: Some(vec!["h2".to_owned(), "http/1.1".to_owned()]),
            identity: Some(("c".into(), "k".into())),
            authorities: vec!["x".into(), "y".into()],
            ocsp: true,
            fresh_keys: true,
            fast_open: true,
            connections: NonZeroU32::new(5),
            rate: Some(1.5),
            time: Some(Duration::from_secs(2)),
            count: Some(6),
            warmup: Some(Duration::ZERO),
            threads: NonZeroU32::new(7),
            timeout: Some(Duration::from_secs(3)),
            backlog: Some(8),
            server: Some(9),
            ..Options::new("https://a.test/")
        };
        assert_eq!(format!("{options:?}"), format!("{wanted:?}"));
    }

    #[test]
    fn http_3_has_streams_and_no_other_transport() {
        assert_eq!(options("https://a.test/ --h3 4 --handshake-only").http3, NonZeroU32::new(4));
        for other in ["--h2 1", "--fast-open"] {
            let line = format!("brisk bench https://a.test/ --h3 1 {other}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{other}");
        }
    }

    #[test]
    fn a_wrong_line_says_what_would_be_right() {
        for (line, hint) in [
            ("", "<URL>"),
            ("https://a --mix full=50", "50 percent instead of 100"),
            ("https://a --mix fool", "full, session-id, ticket, psk or 0-rtt"),
            ("https://a --ramp 1:2", "50:200:50/60s"),
            ("https://a --tls 1.1", "1.2 or 1.3"),
            ("https://a --suite AES", "TLS_AES_128_GCM_SHA256"),
            ("https://a -d soon", "write a duration, e.g. 30s"),
            ("https://a -c 0", "invalid value '0'"),
            ("https://a --rate 1 --ramp 1:2:1/1s", "cannot be used with"),
            ("https://a --handshake-only -r 1", "cannot be used with"),
            ("https://a --client-cert c", "--client-key"),
            ("https://a --insecure --ca x", "cannot be used with"),
            ("https://a --fresh-keys --unit-keys", "cannot be used with"),
            ("compare", "<PLAN>"),
        ] {
            let line = format!("brisk bench {line}");
            let error = Cli::try_parse_from(line.split_whitespace()).expect_err(&line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(hint), "{line}: {error}");
        }
    }

    #[test]
    fn compare_needs_no_url() {
        let parsed = Cli::try_parse_from(["brisk", "bench", "compare", "plan.toml", "--rounds", "3"]);
        let Command::Tool(Tool::Bench(bench)) = parsed.expect("a right line").command else {
            panic!("not bench")
        };
        let Some(BenchCommand::Compare(compare)) = bench.command else { panic!("not compare") };
        assert_eq!((compare.plan, compare.rounds), ("plan.toml".into(), Some(3)));
    }
}
