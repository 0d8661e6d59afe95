//! Comparison of two responses of a trial.

use std::fmt;

use brisk_import::{TrialListener, TrialRequest};

use super::exchange::{Exchanged, Reply};
use super::recorder::OWN_HOST;

/// Headers that each server has in its own way, such as `Date` and `ETag`.
const OWN: [&str; 14] = [
    "accept-ranges",
    "alt-svc",
    "connection",
    "content-length",
    "date",
    "etag",
    "expires",
    "keep-alive",
    "retry-after",
    "server",
    "transfer-encoding",
    "vary",
    "via",
    "x-request-id",
];

/// Headers that brisk sends to upstreams without a setting.
const SENT: [&str; 6] = [
    "forwarded: ",
    "via: ",
    "x-forwarded-for: ",
    "x-forwarded-host: ",
    "x-forwarded-proto: ",
    "x-request-id: ",
];

/// Bytes of a value that are shown at most.
const SHOWN: usize = 200;

/// The differences of all responses.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) all: Vec<Difference>,
    /// Reasons for responses that differ as documented.
    pub(super) explained: Vec<&'static str>,
}

/// Two responses to one request that are not the same.
#[derive(Debug)]
pub(super) struct Difference {
    request: String,
    /// Part of the response, the value of nginx and that of brisk.
    parts: Vec<(String, String, String)>,
}

impl Differences {
    /// Compares the responses of nginx (`theirs`) and brisk (`ours`). An error is a difference, also if both have it: the check has
    /// not compared anything.
    pub(super) fn add(
        &mut self,
        request: &TrialRequest,
        listener: &TrialListener,
        theirs: Exchanged,
        ours: Exchanged,
    ) {
        let name = described(request, listener);
        let (theirs, ours) = match (theirs, ours) {
            (Ok(None), Ok(None)) => return,
            (Ok(None), Ok(Some(ours))) if matches!(ours.status, 403 | 421) => {
                return self
                    .explained
                    .push("brisk responds with 403 or 421 where nginx closes the connection");
            }
            (Ok(Some(theirs)), Ok(Some(ours))) => (theirs, ours),
            (theirs, ours) => {
                let status = |exchanged: Exchanged| match exchanged {
                    Ok(Some(reply)) => reply.status.to_string(),
                    Ok(None) => "none".to_owned(),
                    Err(error) => error,
                };
                let parts = vec![("status".to_owned(), status(theirs), status(ours))];
                return self.all.push(Difference { request: name, parts });
            }
        };
        if let Some(reason) = explanation(request, listener, &theirs, &ours) {
            return self.explained.push(reason);
        }
        let parts = parts(request, listener, &theirs, &ours);
        if !parts.is_empty() {
            self.all.push(Difference { request: name, parts });
        }
    }
}

/// The documented reason for a difference, such as a redirect to `https` with 308 in place of 301.
fn explanation(
    request: &TrialRequest,
    listener: &TrialListener,
    theirs: &Reply,
    ours: &Reply,
) -> Option<&'static str> {
    let secure = |reply: &Reply| {
        let rest = reply.header("location")?.strip_prefix("https://")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // Each server has another port for HTTPS in the trial.
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let host =
            authority.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(authority, |(host, _)| host);
        Some(format!("{host}{}", neutral(path, request, listener)))
    };
    let is_same = || secure(theirs).is_some_and(|theirs| secure(ours) == Some(theirs));
    if matches!(theirs.status, 301 | 302 | 307) && ours.status == 308 && is_same() {
        return Some("brisk redirects plain HTTP to HTTPS with 308");
    }
    if ours.status == 501 && theirs.status != 501 {
        return Some(
            "a directive is NOT CARRIED, and its route refuses requests: see the report of the import",
        );
    }
    (theirs.status == 413 && ours.status == 413).then_some("both refuse the size of the request")
}

fn parts(
    request: &TrialRequest,
    listener: &TrialListener,
    theirs: &Reply,
    ours: &Reply,
) -> Vec<(String, String, String)> {
    let mut parts = Vec::new();
    let mut add = |name: &str, theirs: String, ours: String| {
        if theirs != ours {
            parts.push((name.to_owned(), theirs, ours));
        }
    };
    add("status", theirs.status.to_string(), ours.status.to_string());
    let is_built_in = theirs.status >= 300 || ours.status >= 300;
    let mut names: Vec<_> =
        theirs.headers.iter().chain(&ours.headers).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let is_of_page = matches!(name, "content-type" | "cache-control" | "last-modified");
        if OWN.contains(&name) || (is_of_page && is_built_in) {
            continue;
        }
        let values = |reply: &Reply| {
            let own = reply.headers.iter().filter(|(own, _)| own == name);
            let mut values: Vec<_> = own.map(|(_, value)| neutral(value, request, listener)).collect();
            values.sort();
            values.join(", ")
        };
        let (mut theirs, mut ours) = (values(theirs), values(ours));
        if name == "www-authenticate" {
            // brisk adds the charset (RFC 7617 section 2.1).
            ours = ours.replace(", charset=\"UTF-8\"", "");
        } else if name == "content-type" && !theirs.contains("charset") {
            ours = ours.replace("; charset=utf-8", "");
        } else if name == "location" {
            // nginx forms absolute URLs of paths.
            let start = format!("{}://{}", if listener.has_tls { "https" } else { "http" }, request.host);
            theirs = without(theirs, &start);
            ours = without(ours, &start);
        }
        add(name, theirs, ours);
    }
    // Pages for errors and redirects have texts of each server.
    if !is_built_in {
        let text = |reply: &Reply| neutral(&String::from_utf8_lossy(&reply.body), request, listener);
        let (theirs, ours) = (text(theirs), text(ours));
        let ours = if theirs == ours { ours } else { without_sent(&theirs, &ours) };
        add("body", theirs, ours);
    }
    parts
}

/// A response of a recorder through brisk, without the headers that only brisk sends, and with the `Host` of nginx if a
/// configuration does not choose it.
fn without_sent(theirs: &str, ours: &str) -> String {
    let is_named = |start: &str| theirs.lines().any(|line| line.starts_with(start));
    let has_own_host = is_named(OWN_HOST);
    let lines = ours.split_inclusive('\n').filter_map(|line| {
        let is_sent = SENT.iter().any(|start| line.starts_with(start) && !is_named(start));
        match line.strip_prefix("host: ") {
            Some(_) if has_own_host => Some(format!("{OWN_HOST}\n")),
            _ => (!is_sent).then(|| line.to_owned()),
        }
    });
    lines.collect()
}

/// A text without the ports of the trial.
fn neutral(text: &str, request: &TrialRequest, listener: &TrialListener) -> String {
    let [theirs, ours] = [listener.nginx, listener.brisk].map(|port| port.to_string());
    // Ports are in redirects, and in variables such as `$server_port` that a server sends or forwards.
    text.replace(&format!("{}:{theirs}", request.host), &request.host)
        .replace(&format!("{}:{ours}", request.host), &request.host)
        .replace(&ours, &theirs)
}

fn described(request: &TrialRequest, listener: &TrialListener) -> String {
    let scheme = if listener.has_tls { "https" } else { "http" };
    let header = request.header.as_ref().map(|(name, value)| format!(" {name}: {value}")).unwrap_or_default();
    format!(
        "{} {scheme}://{}{}{header} at {}",
        request.method, request.host, request.target, listener.address
    )
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.request)?;
        for (name, theirs, ours) in &self.parts {
            let [theirs, ours] = [theirs, ours].map(|text| shortened(text));
            write!(formatter, "\n    {name}: nginx {theirs:?}, brisk {ours:?}")?;
        }
        Ok(())
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(SHOWN).map_or(text, |(end, _)| &text[..end])
}

fn without(text: String, start: &str) -> String {
    text.strip_prefix(start).map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "as the comparison takes it")]
    fn reply(status: u16, headers: &[(&str, &str)], body: &str) -> Exchanged {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Ok(Some(Reply { status, headers: headers.collect(), body: body.into() }))
    }

    fn compared(theirs: Exchanged, ours: Exchanged) -> (Vec<String>, usize) {
        let [host, method, target] = ["a.example", "GET", "/x"].map(str::to_owned);
        let request = TrialRequest { listener: 0, host, method, target, header: None };
        let listener =
            TrialListener { address: "0.0.0.0:80".to_owned(), nginx: 4001, brisk: 4002, has_tls: false };
        let mut differences = Differences::default();
        differences.add(&request, &listener, theirs, ours);
        (differences.all.iter().map(Difference::to_string).collect(), differences.explained.len())
    }

    #[test]
    fn differences_are_named_and_documented_ones_counted() {
        let same = [
            (reply(200, &[("server", "nginx"), ("x-a", "1")], "4001"), reply(200, &[("x-a", "1")], "4002")),
            (
                reply(302, &[("location", "http://a.example:4001/to")], "page"),
                reply(302, &[("location", "/to")], "other page"),
            ),
            (
                reply(200, &[], "app\nGET /\nhost: (of proxy_pass)\nx-a: 1\n0 bytes"),
                reply(200, &[], "app\nGET /\nhost: a.example\nx-a: 1\nx-forwarded-proto: http\n0 bytes"),
            ),
            (Ok(None), Ok(None)),
        ];
        for (theirs, ours) in same {
            assert_eq!(compared(theirs, ours), (Vec::new(), 0));
        }
        let explained = [
            (
                reply(301, &[("location", "https://a.example/x")], ""),
                reply(308, &[("location", "https://a.example:1/x")], ""),
            ),
            (Ok(None), reply(403, &[], "")),
            (reply(200, &[], ""), reply(501, &[], "")),
        ];
        for (theirs, ours) in explained {
            assert_eq!(compared(theirs, ours), (Vec::new(), 1));
        }
        let error = || Err("timeout".to_owned());
        for (theirs, ours) in [
            (
                reply(301, &[("location", "https://a.example/x")], ""),
                reply(308, &[("location", "https://a.example/")], ""),
            ),
            (
                reply(301, &[("location", "https://www.a.example/x")], ""),
                reply(308, &[("location", "https://a.example:1/x")], ""),
            ),
            (error(), error()),
            (Ok(None), error()),
        ] {
            let (named, explained) = compared(theirs, ours);
            assert_eq!((named.len(), explained), (1, 0), "{named:?}");
        }
        let (named, _) = compared(reply(200, &[("x-a", "1")], "a"), reply(404, &[], "b"));
        assert_eq!(
            named,
            [
                "GET http://a.example/x at 0.0.0.0:80\n    status: nginx \"200\", brisk \"404\"\n    x-a: nginx \"1\", brisk \"\""
            ]
        );
    }
}
