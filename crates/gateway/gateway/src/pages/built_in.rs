//! The built-in page, which shows visitors the facts of their own connection.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brisk_answer::Body;
use brisk_answer::settings::{Action, EarlyDataPolicy, Page, RoutePath, RouteSettings, ServiceSettings};
use brisk_http::message::{RequestParts, Response};
use brisk_http_connection::Connection;
use brisk_telemetry::{
    ConnectionRecord, EarlyData, Milestone, Resumption, ResumptionFailure, TlsFacts, escape_markup,
};
use brisk_wire::HttpVersion;
use brisk_wire::registry::NamedGroup;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use http::{StatusCode, Version};
use serde_json::json;

use crate::pages::connections;

const TEMPLATE: &str = include_str!("built_in.html");
const NEXT: &str = include_str!("next.html");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// URL of the dashboard, once it listens.
pub(crate) type DashboardUrl = Arc<OnceLock<String>>;

/// Adds the page to every host of `service` without routes; `true` if there is one. A replayed request for the page is
/// harmless, so hosts that accept early data respond early. Without a configuration file (`first_run`), the page leads to the
/// dashboard and the next step.
pub(crate) fn fill_hosts(service: &mut ServiceSettings, first_run: Option<&DashboardUrl>) -> bool {
    let mut any = false;
    for host in service.hosts.iter_mut().filter(|host| host.routes.is_empty()) {
        let first_run = first_run.cloned();
        let page = Page::new(move |connection, request, client| {
            answer(connection, request, client, first_run.as_ref())
        });
        let page = RouteSettings::new(RoutePath::Prefix("/".to_owned()), Action::Page(page));
        let early_data = if host.tls.early_data > 0 { EarlyDataPolicy::Safe } else { EarlyDataPolicy::Hold };
        host.routes.push(RouteSettings { early_data, ..page });
        any = true;
    }
    any
}

/// Answers `/` with the page and `/connection.json` with the same facts as JSON.
fn answer(
    connection: &Connection,
    request: &RequestParts,
    client: SocketAddr,
    first_run: Option<&DashboardUrl>,
) -> Response<Body> {
    let record = connection.client.record.borrow();
    let requests = connection.flow.requests();
    let (status, kind, body) = match request.uri.path() {
        "/" => {
            let protocol = version_name(request.version);
            (
                StatusCode::OK,
                "text/html; charset=utf-8",
                html(&record, (client, requests), &protocol, first_run),
            )
        }
        "/connection.json" => (StatusCode::OK, "application/json", facts(&record, client, requests)),
        _ => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "not found\n".to_owned()),
    };
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // The facts are those of one connection: a stored page would show those of an earlier one.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn html(
    record: &ConnectionRecord,
    (client, requests): (SocketAddr, u32),
    protocol: &str,
    first_run: Option<&DashboardUrl>,
) -> String {
    let (headline, lead, tls) = match &record.tls {
        Some(tls) => (headline(tls), lead(tls), tls_rows(tls)),
        None => ("This connection is <em>not encrypted</em>".to_owned(), String::new(), String::new()),
    };
    TEMPLATE
        .replace("{{headline}}", &headline)
        .replace("{{lead}}", &lead)
        .replace("{{tls}}", &tls)
        .replace("{{parts}}", &parts(record))
        .replace("{{parts_note}}", parts_note(record))
        .replace("{{connection}}", &connection_rows(record, client, requests, protocol))
        .replace("{{links}}", &first_run.map(|dashboard| links(client, dashboard)).unwrap_or_default())
        .replace("{{next}}", &first_run.map(|_| next(record)).unwrap_or_default())
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
}

/// Links to the next pages. The dashboard and its documentation can be opened on this machine only.
fn links(client: SocketAddr, dashboard: &DashboardUrl) -> String {
    // The URL names a loopback address, which leads other visitors to their own machines.
    let dashboard = dashboard.get().filter(|_| client.ip().to_canonical().is_loopback());
    let here = dashboard.map_or_else(String::new, |url| {
        let url = escape_markup(url);
        format!("<a href=\"{url}/\">Dashboard</a><a href=\"{url}/docs/\">Documentation</a>")
    });
    format!("  <nav aria-label=\"Next\">{here}<a href=\"#next\">Your own server</a></nav>\n")
}

/// The next step: a configuration file with an upstream.
fn next(record: &ConnectionRecord) -> String {
    NEXT.replace("{{listen}}", &record.local.to_string())
}

fn headline(tls: &TlsFacts) -> String {
    format!("Secured by <em>{}</em> in <span>{}</span>", tls.version, milliseconds(tls.handshake_time))
}

fn lead(tls: &TlsFacts) -> String {
    let resumed = match tls.resumption {
        Resumption::Full => "A full handshake: the server proved who it is with a signature.",
        Resumption::EarlyData => {
            "A resumed handshake with 0-RTT: the first request came with the first packet and did not wait for the handshake."
        }
        _ => "A resumed handshake: no certificate and no signature were needed.",
    };
    let quantum = match tls.group {
        Some(NamedGroup::X25519MLKEM768) => " Its key exchange also withstands quantum computers.",
        _ => "",
    };
    format!("{resumed}{quantum}")
}

fn tls_rows(tls: &TlsFacts) -> String {
    let mut rows = String::new();
    row(&mut rows, "Version", &tls.version.to_string());
    name(&mut rows, "Suite", Some(&tls.suite), "");
    name(&mut rows, "Group", tls.group.map(group).as_ref(), "none: the keys of the old session");
    name(&mut rows, "Signature", tls.scheme.as_ref(), "none needed");
    row(&mut rows, "Resumption", resumption(tls.resumption));
    if let Some(failure) = tls.resumption_failure {
        row(&mut rows, "Why not resumed", not_resumed(failure));
    }
    if let Some(early) = tls.early_data {
        row(&mut rows, "Early data (0-RTT)", early_data(early));
    }
    if tls.hello_retry {
        row(
            &mut rows,
            "Extra round trip",
            "yes, your browser guessed another group than this server prefers",
        );
    }
    row(&mut rows, "Handshake time", &milliseconds(tls.handshake_time));
    name(&mut rows, "Server name", tls.server_name.as_ref(), "none sent");
    name(&mut rows, "Application protocol", tls.alpn.map(HttpVersion::alpn).as_ref(), "none agreed on");
    if let Some(subject) = &tls.client_subject {
        name(&mut rows, "Your certificate", Some(subject), "");
    }
    rows
}

/// Name of a version of HTTP, without a minor version after HTTP/1.1, since later ones have none.
fn version_name(version: Version) -> String {
    let name = format!("{version:?}");
    match name.strip_suffix(".0") {
        Some(major) if version > Version::HTTP_11 => major.to_owned(),
        _ => name,
    }
}

/// The registry writes `x25519` alone and `X25519MLKEM768`; readers would take them for two things.
fn group(group: NamedGroup) -> String {
    if group == NamedGroup::X25519 { "X25519".to_owned() } else { group.to_string() }
}

fn resumption(kind: Resumption) -> &'static str {
    match kind {
        Resumption::Full => "no, a full handshake",
        Resumption::SessionId => "yes, by session ID",
        Resumption::Ticket => "yes, by session ticket",
        Resumption::Psk => "yes, by pre-shared key",
        Resumption::EarlyData => "yes, by pre-shared key, and the request came with the first packet (0-RTT)",
    }
}

/// The reason for which the session that the browser offered was rejected.
fn not_resumed(failure: ResumptionFailure) -> &'static str {
    match failure {
        ResumptionFailure::NoSession => "your browser's session is not known here, or no longer",
        ResumptionFailure::UnknownKey => "your browser's ticket was sealed with a key that is not known here",
        ResumptionFailure::Expired => "your browser's ticket is too old",
        ResumptionFailure::Forged => "your browser's ticket is damaged",
        ResumptionFailure::StoreLate | ResumptionFailure::StoreDown => {
            "the server could not ask in time for your browser's session"
        }
        ResumptionFailure::Used => "your browser's session was used before",
        ResumptionFailure::Unsuitable => "your browser's session was made for another name or other settings",
    }
}

fn early_data(outcome: EarlyData) -> &'static str {
    match outcome {
        EarlyData::Accepted => "accepted: it came before the handshake was complete",
        EarlyData::Disabled => "sent by your browser, but not taken here",
        EarlyData::NotResumed => "sent by your browser, but its session was not resumed",
        EarlyData::Unsuitable => "sent by your browser, but it does not fit its session",
    }
}

fn connection_rows(record: &ConnectionRecord, client: SocketAddr, requests: u32, protocol: &str) -> String {
    let mut rows = String::new();
    row(&mut rows, "HTTP version", protocol);
    name(&mut rows, "Your address", Some(&shown(client)), "");
    let rtt = record.rtt.map_or("not measured".to_owned(), milliseconds);
    row(&mut rows, "Round trip", &rtt);
    row(&mut rows, "Requests so far", &requests.to_string());
    row(&mut rows, "Connection number", &record.id.to_string());
    rows
}

/// Adds a row with `value` in words.
fn row(rows: &mut String, title: &str, value: &str) {
    let value = escape_markup(value);
    write!(rows, "<dt>{title}</dt><dd>{value}</dd>").expect("a string takes everything");
}

/// Adds a row with a name of the protocols, or the words `absent` for `None`.
fn name(rows: &mut String, title: &str, value: Option<&impl ToString>, absent: &str) {
    let Some(value) = value else { return row(rows, title, absent) };
    // Names of suites and schemes are broken between their words where the page is narrow.
    let value = escape_markup(&value.to_string()).replace('_', "_<wbr>");
    write!(rows, "<dt>{title}</dt><dd><code>{value}</code></dd>").expect("a string takes everything");
}

/// Parts of a handshake, each with the [`Milestone`] that ends it and its name.
const PARTS: [(Milestone, &str); 5] = [
    (Milestone::ClientHello, "Your hello"),
    (Milestone::CertificateChosen, "Certificate"),
    (Milestone::KeyOperationStarted, "Key exchange"),
    (Milestone::KeyOperationFinished, "Signature"),
    (Milestone::HandshakeFinished, "To you and back"),
];

/// One bar per part, from the end of the previous part to its own, on the scale of the whole handshake.
fn parts(record: &ConnectionRecord) -> String {
    let total = record.timeline.offset(Milestone::HandshakeFinished).unwrap_or_default().as_secs_f64();
    let (mut bars, mut begun) = (String::new(), Duration::ZERO);
    for (milestone, name) in PARTS {
        let Some(ended) = record.timeline.offset(milestone) else { continue };
        let taken = ended.saturating_sub(begun);
        // `max`: without TLS the total is 0.
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / total.max(1e-6);
        write!(
            bars,
            r#"<dt>{name}</dt><dd class="bar"><i style="margin-left:{:.1}%;width:{:.1}%"></i></dd><dd>{}</dd>"#,
            percent(begun),
            percent(taken),
            milliseconds(taken)
        )
        .expect("a string takes everything");
        begun = ended;
    }
    bars
}

/// An address with its port, if the port is known.
fn shown(client: SocketAddr) -> String {
    if client.port() == 0 { client.ip().to_string() } else { client.to_string() }
}

fn parts_note(record: &ConnectionRecord) -> &'static str {
    if record.timeline.offset(Milestone::KeyOperationStarted).is_some() {
        "The first part begins with the accepted TCP connection. In the last, your browser verifies the certificate."
    } else {
        "The first part begins with the accepted TCP connection. There was no signature: that is what resumption saves."
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn facts(record: &ConnectionRecord, client: SocketAddr, requests: u32) -> String {
    let all = json!({
        "connection": record.id,
        "client": shown(client),
        "requests": requests,
        "rtt_us": record.rtt.map(connections::micros),
        "tls": record.tls.as_deref().map(connections::tls),
        "steps_us": connections::steps(&record.timeline),
    });
    format!("{all:#}\n")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use brisk_telemetry::Timeline;

    use super::*;

    fn record(reached: &[(Milestone, u64)]) -> ConnectionRecord {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut record = ConnectionRecord::new(1, address, address, Timeline::start());
        for (milestone, millis) in reached {
            record.timeline.mark_after(*milestone, Duration::from_millis(*millis));
        }
        record
    }

    #[test]
    fn a_bar_begins_where_the_one_before_it_ends() {
        let record = record(&[(Milestone::ClientHello, 1), (Milestone::HandshakeFinished, 4)]);
        let bars = parts(&record);
        assert!(bars.contains("margin-left:0.0%;width:25.0%"), "{bars}");
        assert!(bars.contains("margin-left:25.0%;width:75.0%\"></i></dd><dd>3.00 ms"), "{bars}");
        assert_eq!(bars.matches("<i ").count(), 2, "{bars}");
        assert!(parts_note(&record).contains("what resumption saves"));
    }

    #[test]
    fn versions_without_a_minor_version_are_named_without_one() {
        let versions = [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2, Version::HTTP_3];
        assert_eq!(versions.map(version_name), ["HTTP/1.0", "HTTP/1.1", "HTTP/2", "HTTP/3"]);
    }

    #[test]
    fn names_break_between_their_words() {
        let mut rows = String::new();
        name(&mut rows, "Suite", Some(&"TLS_AES_128"), "");
        assert_eq!(rows, "<dt>Suite</dt><dd><code>TLS_<wbr>AES_<wbr>128</code></dd>");
    }

    #[test]
    fn both_groups_with_x25519_write_it_alike() {
        assert_eq!([NamedGroup::X25519, NamedGroup::X25519MLKEM768].map(group), ["X25519", "X25519MLKEM768"]);
        assert_eq!(group(NamedGroup::SECP256R1), "secp256r1");
    }

    #[test]
    fn values_of_strangers_are_text() {
        let mut rows = String::new();
        name(&mut rows, "Your certificate", Some(&"<b>\"&"), "");
        assert_eq!(rows, "<dt>Your certificate</dt><dd><code>&lt;b&gt;&quot;&amp;</code></dd>");
    }
}
