//! Settings of the outputs of an access log.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use brisk_telemetry::{LogOutputs, RequestRecord, named};
use brisk_wire::uri::without_scheme;

use crate::filter::LogFilter;
use crate::template::LogTemplate;

/// Format of lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogFormat {
    /// The combined format that log tools know, followed by `key=value` fields. The default.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// A form of the operator, see [`LogTemplate`].
    Template(Arc<LogTemplate>),
}

/// Target of an access log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogTarget {
    /// Standard output. The default.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to, made with mode `0640` if it is missing.
    File(PathBuf),
    /// A syslog server.
    Syslog(SyslogSettings),
    /// The journal of systemd.
    Journal(JournalSettings),
    /// A receiver of OTLP, the protocol of OpenTelemetry.
    Otlp(OtlpSettings),
}

/// The name of the output in logs and metrics.
impl fmt::Display for AccessLogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => path.display().fmt(f),
            Self::Syslog(syslog) => syslog.server.fmt(f),
            Self::Journal(journal) => write!(f, "journal:{}", journal.socket.display()),
            Self::Otlp(otlp) => write!(f, "{}/{}", otlp.endpoint.trim_end_matches('/'), otlp.signal.path()),
        }
    }
}

/// Messages of a syslog server (RFC 5424).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyslogSettings {
    /// The server.
    pub server: SyslogServer,
    /// Facility of the messages.
    pub facility: Facility,
    /// Severity of the messages.
    pub severity: Severity,
    /// `APP-NAME` of the messages.
    pub app_name: AppName,
    /// The element of structured data that has the fields of a line; `None` for messages without structured data.
    pub structured_data: Option<ElementId>,
    /// Maximum length of a message in bytes. Fields that do not fit are omitted, and the rest of the line is cut.
    pub max_size: usize,
}

/// Entries of the journal of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSettings {
    /// The datagram socket of journald.
    pub socket: PathBuf,
    /// Facility of the entries.
    pub facility: Facility,
    /// Severity of the entries, which journald calls priority.
    pub severity: Severity,
    /// `SYSLOG_IDENTIFIER` of the entries.
    pub app_name: AppName,
}

/// Export of one signal to a receiver of OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpSettings {
    /// URL of the receiver, without the path of the signal.
    pub endpoint: String,
    /// Log records or spans.
    pub signal: OtlpSignal,
    /// The attribute `service.name`.
    pub service_name: String,
    /// Share of the traces that begin here that are recorded; `None`: all. Traces of clients are recorded as their flag demands.
    pub sample: Option<Sample>,
    /// PEM file with trust anchors. Default: those of the system.
    pub ca: Option<PathBuf>,
    /// Further headers of requests.
    pub headers: ExportHeaders,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// Names and values of headers. `Debug` shows the names only, since values may be credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ExportHeaders(pub Vec<(String, String)>);

impl fmt::Debug for ExportHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Kind of exported data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpSignal {
    /// Lines as log records.
    Logs,
    /// Spans of connections and requests.
    Traces,
}

/// Transport and address of a syslog server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogServer {
    /// Host and port, over UDP (RFC 5426).
    Udp(String),
    /// Host and port, over TCP with octet counting (RFC 6587 section 3.4.1).
    Tcp(String),
    /// A Unix datagram socket, such as `/dev/log`.
    Unix(PathBuf),
}

impl FromStr for SyslogServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no syslog server: write one as \"udp://192.0.2.1:514\", \"tcp://log.example.com:601\" or \
                 \"unix:/dev/log\""
            )
        };
        if let Some(path) = without_scheme(text, "unix:") {
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(wrong()) };
        }
        let (scheme, address) = text.split_once("://").ok_or_else(wrong)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let is_address =
            // Colons of an IPv6 address outside of brackets are indistinguishable from that of the port.
            host.starts_with('[') == host.ends_with(']') && (host.starts_with('[') || !host.contains(':'));
        let is_host = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
        if !is_address || !is_host || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(wrong());
        }
        match scheme.to_ascii_lowercase().as_str() {
            "udp" => Ok(Self::Udp(address.to_owned())),
            "tcp" => Ok(Self::Tcp(address.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for SyslogServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

named! {
    /// Severity of a message (RFC 5424 section 6.2.1), by its number.
    Severity {
        /// 0.
        Emergency = "emerg",
        /// 1.
        Alert = "alert",
        /// 2.
        Critical = "crit",
        /// 3.
        Error = "err",
        /// 4.
        Warning = "warning",
        /// 5.
        Notice = "notice",
        /// 6.
        Informational = "info",
        /// 7.
        Debug = "debug",
    }
}

/// Facility of a message (RFC 5424 section 6.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facility(u8);

/// Names of the facilities by their number, as in syslog.conf(5) and nginx.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp",
    "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

impl Facility {
    /// The number of the facility.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl FromStr for Facility {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = (0..).zip(FACILITIES).find(|(_, name)| *name == text).map(|(number, _)| Self(number));
        number.ok_or_else(|| format!("{text:?} is no facility; known: {}", FACILITIES.join(", ")))
    }
}

impl FromStr for Severity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known: Vec<_> = Self::ALL.iter().map(|severity| severity.name()).collect();
        let severity = Self::ALL.iter().copied().find(|severity| severity.name() == text);
        severity.ok_or_else(|| format!("{text:?} is no severity; known: {}", known.join(", ")))
    }
}

/// Name of the program in messages: 1 to 48 printable ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppName(Box<str>);

impl Default for AppName {
    fn default() -> Self {
        Self("brisk".into())
    }
}

impl AppName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AppName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // RFC 5424 section 6.2.5: `APP-NAME` has at most 48 printable characters.
        if !(1..=48).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{text:?} is no name of a program: write 1 to 48 printable ASCII characters without spaces"
            ));
        }
        Ok(Self(text.into()))
    }
}

/// ID of an element of structured data: a name, `@`, and the number of an enterprise (RFC 5424 section 6.3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementId(Box<str>);

impl ElementId {
    /// The ID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ElementId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"=]\"@".contains(&byte))
        };
        let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        match text.split_once('@') {
            Some((name, number)) if text.len() <= 32 && is_name(name) && is_number(number) => {
                Ok(Self(text.into()))
            }
            _ => Err(format!(
                "{text:?} is no ID of structured data: write a name and the number of your enterprise at IANA, at most 32 \
                 characters, as \"access@32473\""
            )),
        }
    }
}

/// Settings of one output of an access log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessLogSettings {
    /// Format of lines.
    pub format: AccessLogFormat,
    /// Target of the lines.
    pub target: AccessLogTarget,
    /// Share of the requests that have a line; of those that fail or get a status of `500` and above, all. Default: `None`, all
    /// requests.
    pub sample: Option<Sample>,
    /// Lines of first requests and of failed handshakes contain the start and the milestones of their connection. Default:
    /// `false`.
    pub has_milestones: bool,
    /// Name in the lists of hosts and routes. Default: `None`.
    pub name: Option<Box<str>>,
    /// Only requests whose host or route lists the output have lines. Default: `false`.
    pub only_listed: bool,
    /// Only requests that pass this test have lines. Default: `None`, all requests.
    pub filter: Option<LogFilter>,
}

impl AccessLogSettings {
    /// Maximum number of outputs, beside which [`LogOutputs`] has room for two exporters.
    pub const MOST: usize = LogOutputs::MOST - 2;
}

/// A share of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample(u64);

impl Sample {
    /// A share; `None` unless `share` is above 0 and at most 1.
    pub fn new(share: f64) -> Option<Self> {
        // The conversion saturates.
        (share > 0.0 && share <= 1.0).then_some(Self((share * u64::MAX as f64) as u64))
    }

    /// Whether the share includes this random number.
    pub(crate) fn includes_random(self, number: u64) -> bool {
        number <= self.0
    }

    /// Whether the request has a line. Its ID is random.
    pub(crate) fn includes(self, request: &RequestRecord<'_>) -> bool {
        self.includes_random(request.id.0) || request.error.is_some() || request.status >= 500
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_of_syslog_servers_may_be_in_capitals() {
        for (text, same) in [
            ("UDP://192.0.2.1:514", "udp://192.0.2.1:514"),
            ("Tcp://log.example.com:601", "tcp://log.example.com:601"),
            ("UNIX:/dev/log", "unix:/dev/log"),
        ] {
            assert_eq!(text.parse::<SyslogServer>().expect(text).to_string(), same);
        }
    }
}
