//! The built-in page: tells visitors the facts of their own connection.

use std::fmt::Write;
use std::time::Duration;

use brisk_proxy::settings::{Action, Page, RoutePath, RouteSettings, ServiceSettings};
use brisk_proxy::{Body, Connection};
use brisk_telemetry::{ConnectionRecord, Milestone, Resumption, TlsFacts};
use brisk_wire::registry::NamedGroup;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::json;

const TEMPLATE: &str = include_str!("page.html");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Gives the page to every host without routes; true if there is one.
pub(crate) fn fill_hosts(service: &mut ServiceSettings) -> bool {
    let mut any = false;
    for host in service.hosts.iter_mut().filter(|host| host.routes.is_empty()) {
        host.routes
            .push(RouteSettings::new(RoutePath::Prefix("/".to_owned()), Action::Page(Page::new(answer))));
        any = true;
    }
    any
}

/// Answers `/` with the page and `/connection.json` with the same facts as JSON.
fn answer(connection: &Connection, request: &Parts) -> Response<Body> {
    let record = connection.record.borrow();
    let requests = connection.requests();
    let (status, kind, body) = match request.uri.path() {
        "/" => {
            let protocol = format!("{:?}", request.version);
            (StatusCode::OK, "text/html; charset=utf-8", html(&record, requests, &protocol))
        }
        "/connection.json" => (StatusCode::OK, "application/json", facts(&record, requests)),
        _ => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "not found\n".to_owned()),
    };
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn html(record: &ConnectionRecord, requests: u32, protocol: &str) -> String {
    let (headline, lead, tls) = match &record.tls {
        Some(tls) => (headline(tls), lead(tls), tls_rows(tls)),
        None => ("This connection is <em>not encrypted</em>".to_owned(), String::new(), String::new()),
    };
    TEMPLATE
        .replace("{{headline}}", &headline)
        .replace("{{lead}}", &lead)
        .replace("{{tls}}", &tls)
        .replace("{{steps}}", &steps(record))
        .replace("{{steps_note}}", steps_note(record))
        .replace("{{connection}}", &connection_rows(record, requests, protocol))
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
}

fn headline(tls: &TlsFacts) -> String {
    format!("Secured by <em>{}</em> in {}", tls.version, milliseconds(tls.handshake_time))
}

fn lead(tls: &TlsFacts) -> String {
    let resumed = match tls.resumption {
        Resumption::Full => "A full handshake: the server proved who it is with a signature.",
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
    row(&mut rows, "Suite", &tls.suite.to_string());
    row(&mut rows, "Group", &tls.group.map_or("none: keys of the old session".to_owned(), |g| g.to_string()));
    row(&mut rows, "Signature", &tls.scheme.map_or("none needed".to_owned(), |s| s.to_string()));
    row(&mut rows, "Resumption", resumption(tls.resumption));
    row(&mut rows, "Handshake time", &milliseconds(tls.handshake_time));
    row(&mut rows, "Server name", tls.server_name.as_deref().unwrap_or("none sent"));
    row(&mut rows, "Application protocol", tls.alpn.unwrap_or("none agreed on"));
    if let Some(subject) = &tls.client_subject {
        row(&mut rows, "Your certificate", subject);
    }
    rows
}

fn resumption(kind: Resumption) -> &'static str {
    match kind {
        Resumption::Full => "no, a full handshake",
        Resumption::SessionId => "yes, by session ID",
        Resumption::Ticket => "yes, by session ticket",
        Resumption::Psk => "yes, by pre-shared key",
    }
}

fn connection_rows(record: &ConnectionRecord, requests: u32, protocol: &str) -> String {
    let mut rows = String::new();
    row(&mut rows, "HTTP version", protocol);
    row(&mut rows, "Your address", &record.client.to_string());
    let rtt = record.rtt.map_or("not measured".to_owned(), milliseconds);
    row(&mut rows, "Round trip (TCP)", &rtt);
    row(&mut rows, "Requests on it so far", &requests.to_string());
    row(&mut rows, "Connection number", &record.id.to_string());
    rows
}

fn row(rows: &mut String, name: &str, value: &str) {
    let value = escaped(value);
    write!(rows, "<dt>{name}</dt><dd><code>{value}</code></dd>").expect("a string takes everything");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STEPS: [(Milestone, &str); 5] = [
    (Milestone::ClientHello, "ClientHello read"),
    (Milestone::CertificateChosen, "Certificate chosen"),
    (Milestone::KeyOperationStarted, "Key operation begun"),
    (Milestone::KeyOperationFinished, "Key operation done"),
    (Milestone::HandshakeFinished, "Handshake finished"),
];

/// A bar per step, from the step before it to itself, on the scale of the whole handshake.
fn steps(record: &ConnectionRecord) -> String {
    let total = record.timeline.offset(Milestone::HandshakeFinished).unwrap_or_default().as_secs_f64();
    let (mut bars, mut before) = (String::new(), 0.0);
    for (milestone, name) in STEPS {
        let Some(at) = record.timeline.offset(milestone) else { continue };
        let percent = 100.0 * at.as_secs_f64() / total.max(1e-6);
        let width = percent - before;
        write!(
            bars,
            r#"<div class="step"><i style="left:{before:.1}%;width:{width:.1}%"></i><span>{name}</span><b>{}</b></div>"#,
            milliseconds(at)
        )
        .expect("a string takes everything");
        before = percent;
    }
    bars
}

fn steps_note(record: &ConnectionRecord) -> &'static str {
    if record.timeline.offset(Milestone::KeyOperationStarted).is_some() {
        "Times count from the accepted TCP connection. Most of the last step is the way to you and back."
    } else {
        "Times count from the accepted TCP connection. There was no key operation: that is what resumption saves."
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn facts(record: &ConnectionRecord, requests: u32) -> String {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let tls = record.tls.as_ref().map(|tls| {
        json!({
            "version": tls.version.to_string(),
            "suite": tls.suite.to_string(),
            "group": tls.group.map(|group| group.to_string()),
            "scheme": tls.scheme.map(|scheme| scheme.to_string()),
            "resumption": tls.resumption.name(),
            "handshake_us": micros(tls.handshake_time),
            "hello_retry": tls.hello_retry,
            "server_name": tls.server_name,
            "alpn": tls.alpn,
            "client_subject": tls.client_subject,
        })
    });
    let steps: serde_json::Map<_, _> = STEPS
        .iter()
        .filter_map(|(milestone, _)| Some((milestone, record.timeline.offset(*milestone)?)))
        .map(|(milestone, at)| (milestone.name().to_owned(), micros(at).into()))
        .collect();
    let all = json!({
        "connection": record.id,
        "client": record.client.to_string(),
        "requests": requests,
        "rtt_us": record.rtt.map(micros),
        "tls": tls,
        "steps_us": steps,
    });
    format!("{all:#}\n")
}
