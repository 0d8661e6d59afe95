//! Outcomes of an exchange, and the differences of two outcomes.

use super::request::Request;
use super::servers::{Protocol, Server};

/// Names (in lower case) and values.
pub(super) type Fields = Vec<(String, String)>;

/// End of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The response is complete.
    #[default]
    Whole,
    /// The server reset the stream, with this error code.
    Reset(u64),
    /// The server closed the connection.
    Closed,
    /// The bytes of the server are no HTTP.
    Invalid,
    /// The server sent nothing more before the timeout.
    Silent,
}

/// All that a client and the upstream learn of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) end: End,
    /// Interim responses except 100, which depends on the time of the content (RFC 9110 section 10.1.1).
    pub(super) interims: Vec<u16>,
    /// 0 without a response.
    pub(super) status: u16,
    pub(super) headers: Fields,
    pub(super) body: String,
    pub(super) trailers: Fields,
    pub(super) seen: Vec<Seen>,
}

/// A request at the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: String,
    pub(super) headers: Fields,
    pub(super) body: String,
    pub(super) trailers: Fields,
}

/// An aspect in which two outcomes differ.
#[derive(Debug)]
pub(super) struct Difference<'a> {
    pub(super) request: &'a Request,
    pub(super) protocol: Protocol,
    /// The server that brisk is compared with; brisk itself over HTTP/2 if the protocol is HTTP/3.
    pub(super) server: Server,
    pub(super) aspect: String,
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) outcomes: [&'a Outcome; 2],
}

/// Headers of responses that the servers form themselves, for the connection and its framing, too.
const OWN_OF_RESPONSES: &[&str] = &[
    "alt-svc",
    "connection",
    "date",
    "keep-alive",
    "server",
    "server-timing",
    "transfer-encoding",
    "via",
    "x-request-id",
];

/// Headers of requests that the proxies or the clients of the comparison form.
const OWN_OF_REQUESTS: &[&str] = &[
    "forwarded",
    "via",
    "x-case",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

/// Error codes of a malformed request over HTTP/2 and HTTP/3.
const PROTOCOL_ERROR: u64 = 1;
const H3_MESSAGE_ERROR: u64 = 0x10e;

impl Outcome {
    pub(super) fn reset(code: u64) -> Self {
        Self { end: End::Reset(code), ..Self::default() }
    }

    /// Error code of a refusal that is another one than for malformed messages (RFC 9113 section 8.1.1, RFC 9114 section
    /// 4.1.2). A stream whose request reached the upstream is reset because the response breaks off.
    pub(super) fn wrong_code(&self, protocol: Protocol) -> Option<u64> {
        let malformed = match protocol {
            Protocol::Http1 => return None,
            Protocol::Http2 => PROTOCOL_ERROR,
            Protocol::Http3 => H3_MESSAGE_ERROR,
        };
        match self.end {
            End::Reset(code) if self.status == 0 && self.seen.is_empty() && code != malformed => Some(code),
            _ => None,
        }
    }

    /// Whether the connection ended without a response.
    pub(super) fn is_nothing(&self) -> bool {
        self.end == End::Closed && self.status == 0
    }

    /// Status and end in one text.
    fn verdict(&self) -> String {
        let end = match self.end {
            End::Whole => return self.status.to_string(),
            End::Reset(_) => "Reset".to_owned(),
            end => format!("{end:?}"),
        };
        if self.status == 0 { end } else { format!("{} {end}", self.status) }
    }

    /// Values of a header in one text; empty without the header.
    fn header(fields: &Fields, name: &str) -> String {
        let lines = fields.iter().filter(|(own, _)| own == name).map(|(_, value)| format!("[{value}]"));
        lines.collect()
    }
}

/// Aspects in which brisk's outcome differs from another one. Where one server refuses the request, this is the only aspect:
/// the contents of error pages differ.
pub(super) fn differences<'a>(
    request: &'a Request,
    (protocol, server): (Protocol, Server),
    [ours, theirs]: [&'a Outcome; 2],
) -> Vec<Difference<'a>> {
    let mut found = Vec::new();
    let mut compare = |aspect: String, one: String, other: String| {
        let is_same = one == other;
        if !is_same {
            let outcomes = [ours, theirs];
            found.push(Difference { request, protocol, server, aspect, ours: one, theirs: other, outcomes });
        }
        is_same
    };
    let reach = |outcome: &Outcome| match outcome.seen.len() {
        0 => outcome.verdict(),
        1 => "forwarded".to_owned(),
        more => format!("forwarded {more} times"),
    };
    if !compare("reach".to_owned(), reach(ours), reach(theirs)) {
        return found;
    }
    if let ([one, ..], [other, ..]) = (&ours.seen[..], &theirs.seen[..]) {
        compare("upstream method".to_owned(), one.method.clone(), other.method.clone());
        compare("upstream target".to_owned(), one.target.clone(), other.target.clone());
        compare("upstream version".to_owned(), one.version.clone(), other.version.clone());
        compare("upstream body".to_owned(), one.body.clone(), other.body.clone());
        headers("upstream header", OWN_OF_REQUESTS, (&one.headers, &other.headers), &mut compare);
        headers("upstream trailer", &[], (&one.trailers, &other.trailers), &mut compare);
    }
    let list = |outcome: &Outcome| format!("{:?}", outcome.interims);
    compare("interims".to_owned(), list(ours), list(theirs));
    // A reset discards data that QUIC has received (RFC 9000 section 3.2), a head perhaps.
    if protocol == Protocol::Http3 && matches!([ours.end, theirs.end], [End::Reset(_), End::Reset(_)]) {
        return found;
    }
    // A response that is cut may be cut anywhere.
    if !compare("status".to_owned(), ours.verdict(), theirs.verdict()) || ours.end != End::Whole {
        return found;
    }
    let is_own_error = ours.status >= 300 && ours.status != 304 && ours.seen.is_empty();
    let is_gateway_error = matches!(ours.status, 502..=504) && !request.has("response_status_502");
    if is_own_error || is_gateway_error {
        for name in ["content-range", "location", "allow"] {
            let values = [ours, theirs].map(|outcome| Outcome::header(&outcome.headers, name));
            let [one, other] = values;
            compare(format!("header {name}"), one, other);
        }
        return found;
    }
    headers("header", OWN_OF_RESPONSES, (&ours.headers, &theirs.headers), &mut compare);
    compare("body".to_owned(), ours.body.clone(), theirs.body.clone());
    headers("trailer", &[], (&ours.trailers, &theirs.trailers), &mut compare);
    found
}

fn headers(
    kind: &str,
    own: &[&str],
    (ours, theirs): (&Fields, &Fields),
    compare: &mut impl FnMut(String, String, String) -> bool,
) {
    let mut names: Vec<_> = ours.iter().chain(theirs).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names.into_iter().filter(|name| !own.contains(name)) {
        let [one, other] = [ours, theirs].map(|fields| Outcome::header(fields, name));
        compare(format!("{kind} {name}"), one, other);
    }
}
