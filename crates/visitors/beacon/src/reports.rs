//! Reports that browsers send automatically: Network Error Logging and the Reporting API.

use std::borrow::Cow;

use serde::Deserialize;

use crate::Refusal;

/// Maximum number of reports of one post that are counted; further ones are ignored.
const MOST: usize = 100;

/// Kinds of reports that are counted under their names; others are `other`.
pub(crate) const KINDS: [&str; 10] = [
    "network-error",
    "csp-violation",
    "deprecation",
    "intervention",
    "crash",
    "permissions-policy-violation",
    "document-policy-violation",
    "coep",
    "coop",
    "integrity-violation",
];

/// Types of network errors that are counted under their names; others are `other`. See W3C Network Error Logging section 6.
pub(crate) const ERRORS: [&str; 27] = [
    "ok",
    "dns.unreachable",
    "dns.name_not_resolved",
    "dns.failed",
    "dns.address_changed",
    "tcp.timed_out",
    "tcp.closed",
    "tcp.reset",
    "tcp.refused",
    "tcp.aborted",
    "tcp.address_invalid",
    "tcp.address_unreachable",
    "tcp.failed",
    "tls.version_or_cipher_mismatch",
    "tls.bad_client_auth_cert",
    "tls.cert.name_invalid",
    "tls.cert.date_invalid",
    "tls.cert.authority_invalid",
    "tls.cert.invalid",
    "tls.cert.revoked",
    "tls.protocol.error",
    "tls.failed",
    "http.error",
    "http.protocol.error",
    "http.response.invalid",
    "http.failed",
    "abandoned",
];

#[derive(Deserialize)]
struct Report<'r> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'r, str>,
    #[serde(borrow, default)]
    body: Option<Body<'r>>,
}

#[derive(Deserialize)]
struct Body<'r> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'r, str>>,
}

/// Index of a report in [`KINDS`], and of its error in [`ERRORS`]; an index past the end stands for others.
pub(crate) type Counted = (usize, Option<usize>);

/// Reads a list of reports. JSON of another form is [`Refusal::Malformed`].
pub(crate) fn read(json: &[u8]) -> Result<Vec<Counted>, Refusal> {
    let reports: Vec<Report<'_>> = serde_json::from_slice(json).map_err(|_| Refusal::Malformed)?;
    let place =
        |names: &[&str], name: &str| names.iter().position(|known| *known == name).unwrap_or(names.len());
    let counted = |report: &Report<'_>| {
        let kind = place(&KINDS, &report.kind);
        let error = report.body.as_ref().and_then(|body| body.kind.as_deref());
        // Only the body of a network error, the first kind, has a type of error.
        (kind, error.filter(|_| kind == 0).map(|error| place(&ERRORS, error)))
    };
    Ok(reports.iter().take(MOST).map(counted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_counted_by_closed_sets() {
        let json = br#"[{"age":1,"type":"network-error","url":"https://a.example/","body":{"type":"tcp.reset","phase":"connection","elapsed_time":3}},
            {"type":"network-error","body":{"type":"<b>"}},{"type":"deprecation","body":{"id":"x"}},{"type":"\u003cb\u003e"}]"#;
        let reset = ERRORS.iter().position(|error| *error == "tcp.reset");
        assert_eq!(read(json), Ok(vec![(0, reset), (0, Some(ERRORS.len())), (2, None), (KINDS.len(), None)]));
        for wrong in ["", "{}", "[{}]", "[1]", "[{\"type\":1}]", &"[".repeat(10_000)] {
            assert_eq!(read(wrong.as_bytes()), Err(Refusal::Malformed));
        }
        let many = format!("[{}{{\"type\":\"x\"}}]", "{\"type\":\"x\"},".repeat(3000));
        assert_eq!(read(many.as_bytes()).map(|reports| reports.len()), Ok(MOST));
    }
}
