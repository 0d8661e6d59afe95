//! Envelopes of lines: a syslog message (RFC 5424) or a journal entry around a line, with the fields of the line.
//!
//! An envelope contains printable ASCII from clients only, or the UTF-8 of a line in JSON, without control characters. So no
//! client can end a message, an element of structured data or a field of the journal.

use std::process;
use std::time::SystemTime;

use crate::clock;
use crate::event::Event;
use crate::fields;
use crate::otlp::{self, Spans};
use crate::pairs::{Pairs, Style};
use crate::settings::{AccessLogTarget, Facility, JournalSettings, OtlpSignal, Severity, SyslogSettings};

/// The form in which an output receives lines.
#[derive(Debug)]
pub(crate) enum Envelope {
    /// The line itself.
    Bare,
    /// A syslog message, followed by a line feed.
    Syslog(Syslog),
    /// An entry of the journal, followed by an empty line.
    Journal(Journal),
    /// A `LogRecord` of OTLP.
    Record,
    /// Spans of OTLP.
    Spans(Spans),
}

impl Envelope {
    /// Whether the output is an exporter of OTLP.
    pub(crate) fn is_export(&self) -> bool {
        matches!(self, Self::Record | Self::Spans(_))
    }

    pub(crate) fn of(target: &AccessLogTarget) -> Self {
        match target {
            AccessLogTarget::Stdout | AccessLogTarget::Stderr | AccessLogTarget::File(_) => Self::Bare,
            AccessLogTarget::Syslog(settings) => Self::Syslog(Syslog::new(settings)),
            AccessLogTarget::Journal(settings) => Self::Journal(Journal::new(settings)),
            AccessLogTarget::Otlp(settings) => match settings.signal {
                OtlpSignal::Logs => Self::Record,
                OtlpSignal::Traces => Self::Spans(Spans::new(settings)),
            },
        }
    }

    /// Appends the message that contains the output of `line`, which ends with a line feed.
    pub(crate) fn enclose(
        &self,
        buffer: &mut Vec<u8>,
        event: Event<'_>,
        has_milestones: bool,
        line: impl FnOnce(&mut Vec<u8>),
    ) {
        match self {
            Self::Bare => line(buffer),
            Self::Syslog(syslog) => syslog.enclose(buffer, event, has_milestones, line),
            Self::Journal(journal) => journal.enclose(buffer, event, has_milestones, line),
            Self::Record => otlp::log_record(buffer, event, line),
            Self::Spans(spans) => {
                if let Event::Request(request) = event {
                    spans.request(buffer, request);
                }
            }
        }
    }
}

/// Constant parts of the messages of a process.
#[derive(Debug)]
pub(crate) struct Syslog {
    /// Up to the timestamp.
    start: Box<[u8]>,
    /// From the timestamp to `MSGID`: host, program and process.
    origin: Box<[u8]>,
    /// `[` and the ID of the element with the fields.
    element: Option<Box<[u8]>>,
    max_size: usize,
}

impl Syslog {
    fn new(settings: &SyslogSettings) -> Self {
        let system = rustix::system::uname();
        let name = system.nodename().to_str().unwrap_or_default();
        // RFC 5424 section 6.2.4: a host name has 1 to 255 printable characters, and `-` is the value of an
        // unknown one.
        let is_name = (1..=255).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        let host = if is_name { name } else { "-" };
        let origin = format!(" {host} {} {} ", settings.app_name.as_str(), process::id());
        Self {
            start: format!("<{}>1 ", priority(settings.facility, settings.severity)).into_bytes().into(),
            origin: origin.into_bytes().into(),
            element: settings
                .structured_data
                .as_ref()
                .map(|id| format!("[{}", id.as_str()).into_bytes().into()),
            max_size: settings.max_size,
        }
    }

    fn enclose(
        &self,
        buffer: &mut Vec<u8>,
        event: Event<'_>,
        has_milestones: bool,
        line: impl FnOnce(&mut Vec<u8>),
    ) {
        let end = buffer.len() + self.max_size;
        buffer.extend_from_slice(&self.start);
        clock::rfc3339(buffer, SystemTime::now());
        buffer.extend_from_slice(&self.origin);
        buffer.extend_from_slice(event.name().as_bytes());
        buffer.push(b' ');
        match &self.element {
            None => buffer.push(b'-'),
            Some(element) => {
                buffer.extend_from_slice(element);
                // The bracket and the space after it have room in any case.
                fields::all(&mut Pairs::new(buffer, Parameters { end: end - 2 }), event, has_milestones);
                buffer.push(b']');
            }
        }
        buffer.push(b' ');
        line(buffer);
        cut(buffer, end);
    }
}

/// Cuts a line that reaches beyond `end`, at the start of a character.
fn cut(buffer: &mut Vec<u8>, end: usize) {
    if buffer.len() <= end + 1 {
        return;
    }
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    // A character that the limit divides is left out: receivers may refuse a message that is not UTF-8.
    let inside = buffer[..=end].iter().rev().take_while(|byte| is_inside(byte)).count();
    buffer.truncate(end - inside);
    buffer.push(b'\n');
}

/// `SD-PARAM`s of an element of structured data (RFC 5424 section 6.3.3). Those that would end after `end` are omitted.
struct Parameters {
    end: usize,
}

impl Style for Parameters {
    fn begin(&self, line: &mut Vec<u8>, key: &str, _is_quoted: bool) {
        line.push(b' ');
        line.extend_from_slice(key.as_bytes());
        line.extend_from_slice(b"=\"");
    }

    fn end(&self, line: &mut Vec<u8>, pair: usize, value: usize, _is_quoted: bool) {
        // Quotes are escaped already.
        let is_special = |byte: &u8| matches!(byte, b'\\' | b']');
        // Few values contain one, so most cost no allocation.
        if line[value..].iter().any(is_special) {
            for byte in line.split_off(value) {
                if is_special(&byte) {
                    line.push(b'\\');
                }
                line.push(byte);
            }
        }
        line.push(b'"');
        if line.len() > self.end {
            line.truncate(pair);
        }
    }
}

/// Constant fields of the entries of a process.
#[derive(Debug)]
pub(crate) struct Journal {
    constant: Box<[u8]>,
}

impl Journal {
    fn new(settings: &JournalSettings) -> Self {
        let constant = format!(
            "PRIORITY={}\nSYSLOG_FACILITY={}\nSYSLOG_IDENTIFIER={}\n",
            settings.severity as u8,
            settings.facility.number(),
            settings.app_name.as_str()
        );
        Self { constant: constant.into_bytes().into() }
    }

    fn enclose(
        &self,
        buffer: &mut Vec<u8>,
        event: Event<'_>,
        has_milestones: bool,
        line: impl FnOnce(&mut Vec<u8>),
    ) {
        buffer.extend_from_slice(b"MESSAGE=");
        line(buffer);
        buffer.extend_from_slice(&self.constant);
        buffer.extend_from_slice(b"BRISK_TIME=");
        clock::rfc3339(buffer, SystemTime::now());
        buffer.push(b'\n');
        fields::all(&mut Pairs::new(buffer, JournalField), event, has_milestones);
        buffer.push(b'\n');
    }
}

/// `BRISK_KEY=value` and a line feed.
struct JournalField;

impl Style for JournalField {
    fn begin(&self, line: &mut Vec<u8>, key: &str, _is_quoted: bool) {
        line.extend_from_slice(b"BRISK_");
        line.extend(key.bytes().map(|byte| byte.to_ascii_uppercase()));
        line.push(b'=');
    }

    fn end(&self, line: &mut Vec<u8>, _pair: usize, _value: usize, _is_quoted: bool) {
        line.push(b'\n');
    }
}

/// `PRIVAL` of RFC 5424 section 6.2.1.
fn priority(facility: Facility, severity: Severity) -> u8 {
    facility.number() * 8 + severity as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::tests::{connection, request};
    use crate::settings::{AppName, SyslogServer};
    use brisk_telemetry::RequestRecord;

    /// Ends of values, messages and elements, control characters, NUL and a byte order mark.
    const HOSTILE: &str =
        "a\"] [evil@1 b=\"c\\] \u{feff}\n<13>1 - x - - - -\r\0\nMESSAGE=d\n\nMESSAGE=e\u{9b}";

    fn settings(structured_data: Option<&str>, max_size: usize) -> SyslogSettings {
        SyslogSettings {
            server: SyslogServer::Udp("192.0.2.1:514".to_owned()),
            facility: "local7".parse().expect("a facility"),
            severity: Severity::Informational,
            app_name: AppName::default(),
            structured_data: structured_data.map(|id| id.parse().expect("an ID")),
            max_size,
        }
    }

    /// The message after its header, for a line with this end.
    fn message(settings: &SyslogSettings, record: &RequestRecord<'_>, line: &str) -> String {
        let mut buffer = b"before\n".to_vec();
        let write = |buffer: &mut Vec<u8>| buffer.extend_from_slice(format!("{line}\n").as_bytes());
        Syslog::new(settings).enclose(&mut buffer, Event::Request(record), false, write);
        let text = String::from_utf8(buffer).expect("UTF-8");
        let message =
            text.strip_prefix("before\n").and_then(|text| text.strip_suffix('\n')).expect("one message");
        assert!(message.len() <= settings.max_size, "{} bytes", message.len());
        let words: Vec<_> = message.splitn(7, ' ').collect();
        let process = process::id().to_string();
        assert_eq!(
            (words[0], words[3], words[4], words[5]),
            ("<190>1", "brisk", &*process, "request"),
            "{message}"
        );
        words[6].to_owned()
    }

    #[test]
    fn a_message_has_a_header_and_the_line() {
        let connection = connection();
        assert_eq!(message(&settings(None, 1024), &request(&connection), "the line"), "- the line");
    }

    #[test]
    fn structured_data_has_the_fields_and_no_client_ends_it() {
        let connection = connection();
        let record = RequestRecord { user_agent: Some(HOSTILE.as_bytes()), ..request(&connection) };
        let message = message(&settings(Some("access@32473"), 8192), &record, "the line");
        let start = "[access@32473 event=\"request\" client=\"203.0.113.7\" client_port=\"51234\" method=\"GET\" \
                     path=\"/a?b=c\" protocol=\"HTTP/2.0\" status=\"200\" bytes_sent=\"1234\" user_agent=\"a\\\\x22\\] \
                     [evil@1 b=\\\\x22c\\\\x5C\\] \\\\xEF\\\\xBB\\\\xBF\\\\x0A<13>1 - x - - - -\\\\x0D\\\\x00\\\\x0AMESSAGE=d";
        assert!(message.starts_with(start), "{message}");
        assert!(message.ends_with("rtt_us=\"12345\"] the line"), "{message}");
        assert!(message.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{message}");
    }

    #[test]
    fn long_lines_are_cut_and_fields_that_do_not_fit_are_omitted() {
        let connection = connection();
        let long = "x".repeat(5000);
        let record = RequestRecord { user_agent: Some(long.as_bytes()), ..request(&connection) };
        let line = "\u{20ac}".repeat(1000);
        let text = message(&settings(Some("a@1"), 1024), &record, &line);
        assert!(!text.contains("user_agent") && text.contains(" host=\"example.com\" "), "{text}");
        assert!(text.contains("] \u{20ac}\u{20ac}") && text.ends_with('\u{20ac}'), "{text}");
        let text = message(&settings(None, 1024), &record, &line);
        assert!(text.len() > 900 && text.ends_with('\u{20ac}'), "{text}");
    }

    #[test]
    fn an_entry_of_the_journal_has_the_fields_and_no_client_adds_one() {
        let connection = connection();
        let record = RequestRecord { user_agent: Some(HOSTILE.as_bytes()), ..request(&connection) };
        let settings = JournalSettings {
            socket: "/run/systemd/journal/socket".into(),
            facility: "daemon".parse().expect("a facility"),
            severity: Severity::Notice,
            app_name: "web".parse().expect("a name"),
        };
        let mut buffer = Vec::new();
        let write = |buffer: &mut Vec<u8>| buffer.extend_from_slice(b"the line\n");
        Journal::new(&settings).enclose(&mut buffer, Event::Request(&record), false, write);
        let text = String::from_utf8(buffer).expect("UTF-8");
        let entry = text.strip_suffix("\n\n").expect("an empty line at the end");
        let keys: Vec<_> = entry.lines().map(|line| line.split_once('=').expect("a field").0).collect();
        let constant =
            ["MESSAGE", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "BRISK_TIME", "BRISK_EVENT"];
        assert!(keys.starts_with(&constant), "{keys:?}");
        assert!(keys[constant.len()..].iter().all(|key| key.starts_with("BRISK_")), "{keys:?}");
        let start = "MESSAGE=the line\nPRIORITY=5\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=web\nBRISK_TIME=";
        assert!(entry.starts_with(start), "{entry}");
        assert!(
            entry.contains("\nBRISK_USER_AGENT=a\\x22] [evil@1 b=") && entry.contains("\nBRISK_STATUS=200\n"),
            "{entry}"
        );
    }
}
