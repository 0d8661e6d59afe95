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
    /// The server reset the stream.
    Reset,
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
    pub(super) line: String,
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

/// Headers of the proxies themselves, of a connection, and of its framing.
const OWN: [&str; 16] = [
    "alt-svc",
    "connection",
    "date",
    "forwarded",
    "keep-alive",
    "server",
    "server-timing",
    "transfer-encoding",
    "via",
    "x-case",
    "x-envoy-expected-rq-timeout-ms",
    "x-envoy-upstream-service-time",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

impl Outcome {
    pub(super) fn reset() -> Self {
        Self { end: End::Reset, ..Self::default() }
    }

    /// Whether the connection ended without a response.
    pub(super) fn is_nothing(&self) -> bool {
        self.end == End::Closed && self.status == 0
    }

    /// Status and end in one text.
    fn verdict(&self) -> String {
        match (self.end, self.status) {
            (End::Whole, status) => status.to_string(),
            (end, 0) => format!("{end:?}"),
            (end, status) => format!("{status} {end:?}"),
        }
    }

    /// Values of a header in one text; empty without the header.
    fn header(fields: &Fields, name: &str) -> String {
        let lines = fields.iter().filter(|(own, _)| own == name).map(|(_, value)| format!("[{value}]"));
        lines.collect()
    }
}

/// Aspects in which brisk's outcome differs from another one. Where one server refuses the request, this is the only aspect: the
/// contents of error pages differ.
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
        compare("upstream line".to_owned(), one.line.clone(), other.line.clone());
        compare("upstream body".to_owned(), one.body.clone(), other.body.clone());
        headers("upstream header", (&one.headers, &other.headers), &mut compare);
        headers("upstream trailer", (&one.trailers, &other.trailers), &mut compare);
    }
    let list = |outcome: &Outcome| format!("{:?}", outcome.interims);
    compare("interims".to_owned(), list(ours), list(theirs));
    // A reset discards data that QUIC has received (RFC 9000 section 3.2), a head perhaps.
    if protocol == Protocol::Http3 && [ours.end, theirs.end] == [End::Reset; 2] {
        return found;
    }
    // A response that is cut may be cut anywhere.
    if !compare("status".to_owned(), ours.verdict(), theirs.verdict()) || ours.end != End::Whole {
        return found;
    }
    let is_own_error = ours.status >= 300 && ours.status != 304 && ours.seen.is_empty();
    let is_gateway_error = matches!(ours.status, 502..=504) && !request.has("status_502");
    if is_own_error || is_gateway_error {
        for name in ["content-range", "location", "allow"] {
            let values = [ours, theirs].map(|outcome| Outcome::header(&outcome.headers, name));
            let [one, other] = values;
            compare(format!("header {name}"), one, other);
        }
        return found;
    }
    headers("header", (&ours.headers, &theirs.headers), &mut compare);
    compare("body".to_owned(), ours.body.clone(), theirs.body.clone());
    headers("trailer", (&ours.trailers, &theirs.trailers), &mut compare);
    found
}

fn headers(
    kind: &str,
    (ours, theirs): (&Fields, &Fields),
    compare: &mut impl FnMut(String, String, String) -> bool,
) {
    let mut names: Vec<_> = ours.iter().chain(theirs).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    // The framing of the upstream's request counts: `transfer-encoding` is no header of a proxy there.
    for name in names.into_iter().filter(|name| !OWN.contains(name)) {
        let [one, other] = [ours, theirs].map(|fields| Outcome::header(fields, name));
        compare(format!("{kind} {name}"), one, other);
    }
}
