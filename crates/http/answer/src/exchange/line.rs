//! The parts of a request's head for the access log.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use brisk_http::message::RequestParts;
use brisk_http::trace_context::TraceId;
use brisk_telemetry::{LogOutputs, RequestLog, RequestSpan, Side, Source};
use brisk_variants::{HostVariants, Labels};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Uri, Version, header};

use super::Exchange;

/// Reason and responsible side of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) side: Side,
    pub(super) reason: &'static str,
}

/// The parts of a request that only the access log needs.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) version: Version,
    pub(super) host: Option<HeaderValue>,
    pub(super) referer: Option<HeaderValue>,
    pub(super) user_agent: Option<HeaderValue>,
    /// Further headers that the form of the log needs.
    headers: Box<[Option<HeaderValue>]>,
    /// The place of the request in a trace.
    pub(super) trace: Option<RequestSpan>,
    /// Time from the head to the start of forwarding, if the request belongs to a trace.
    pub(super) upstream_start: Cell<Option<Duration>>,
    /// Bytes of all these parts, at most those of the head.
    pub(super) held: usize,
    /// Values of varied settings of the host that the connection has.
    pub(super) labels: Labels,
    /// Outputs of the log that get the line.
    pub(super) outputs: LogOutputs,
}

impl Exchange {
    /// Releases the memory of heads, except for the parts of the request's head that the access log holds until the end. The
    /// body is polled once the head of the response is written.
    pub(super) fn release_heads(&mut self) {
        let Some(heads) = &mut self.heads else { return };
        match self.line.as_ref().map_or(0, |line| line.held) {
            // Without a line, nothing holds the head any more.
            0 => self.heads = None,
            kept => heads.remove(heads.bytes().saturating_sub(kept)),
        }
    }

    /// Adds the values of varied settings of the host that the connection has to the access log.
    pub(crate) fn name_variants(&mut self, variants: &HostVariants) {
        if let (Some(line), Some(assigned)) = (&mut self.line, self.connection.extras.assigned()) {
            line.labels = variants.labels(assigned);
        }
    }
}

impl Exchange {
    /// Sets the authenticated user, for the access log and for variables.
    pub(crate) fn name_user(&mut self, user: Arc<str>) {
        self.user = Some(user);
    }

    /// The authenticated user.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl Exchange {
    /// Adds the trace to the access log and to exported spans.
    pub(crate) fn name_trace(&mut self, trace: RequestSpan) {
        if let Some(line) = &mut self.line {
            line.trace = Some(trace);
        }
    }

    /// Whether a new trace is to be recorded.
    pub(crate) fn samples_trace(&self, trace: TraceId) -> bool {
        self.telemetry.access_log.as_ref().is_none_or(|log| log.samples_trace(trace.bits()))
    }

    /// Records that forwarding begins.
    pub(crate) fn mark_upstream(&self) {
        if let Some(line) = &self.line {
            line.upstream_start.set(Some(self.elapsed()));
        }
    }
}

impl Exchange {
    /// Adds the failure to the recent problems.
    pub(super) fn note(&self, Failure { side, reason }: Failure) {
        let source = match side {
            Side::Client => Source::Client,
            Side::Upstream => Source::Upstream,
            Side::Internal => Source::Internal,
        };
        // A closure, because an example is rarely formed: frequent problems keep the last one.
        self.telemetry.metrics.problems().note(source, reason, || {
            let mut example = self.client.to_string();
            if let Some(line) = &self.line {
                example.extend([", ", &line.text()]);
            }
            if let Some(server) = self.outcome.server() {
                example.extend([", upstream ", server.name()]);
            }
            example
        });
    }
}

impl Line {
    /// The parts that `log` needs.
    pub(super) fn of(request: &RequestParts, log: &dyn RequestLog) -> Self {
        // Clones share the bytes of the head, which `held` counts until the line is written.
        let header = |name| request.headers.get(name).cloned();
        let [host, referer, user_agent] = [header::HOST, header::REFERER, header::USER_AGENT].map(header);
        let headers: Box<[_]> =
            log.headers().iter().map(|name| request.headers.get(&**name).cloned()).collect();
        let values = [&host, &referer, &user_agent].into_iter().chain(&headers).flatten();
        let held = values.map(HeaderValue::len).sum::<usize>() + length(&request.uri);
        Self {
            method: request.method.clone(),
            uri: request.uri.clone(),
            version: request.version,
            host,
            referer,
            user_agent,
            headers,
            held,
            trace: None,
            upstream_start: Cell::default(),
            labels: Labels::default(),
            outputs: LogOutputs::All,
        }
    }

    /// Values of the further headers.
    pub(super) fn headers(&self) -> Vec<Option<&[u8]>> {
        self.headers.iter().map(|value| value.as_ref().map(HeaderValue::as_bytes)).collect()
    }

    pub(super) fn host(&self) -> &str {
        let host = self.host.as_ref().and_then(|host| host.to_str().ok());
        // RFC 9113 section 8.3.1: `:authority` precedes `Host`.
        self.uri.authority().map(http::uri::Authority::as_str).or(host).unwrap_or_default()
    }

    /// Method, host, and path with query.
    pub(super) fn text(&self) -> String {
        format!("{} {}{}", self.method, self.host(), self.path())
    }

    /// Path and query.
    pub(super) fn path(&self) -> &str {
        self.uri.path_and_query().map_or("", PathAndQuery::as_str)
    }
}

fn length(uri: &Uri) -> usize {
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    authority + uri.path_and_query().map_or(0, |path| path.as_str().len())
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use brisk_http::message::{Request, Response};
    use brisk_http_connection::held::Account;
    use brisk_http_connection::testing::connection;
    use brisk_logs::{AccessLog, AccessLogSettings, AccessLogTarget};
    use brisk_telemetry::{Metrics, RequestId};
    use brisk_transform::body::Body;
    use http_body_util::BodyExt;

    use super::super::{Exchange, Telemetry};

    /// Bytes of heads that a connection holds during the response to a request with a `Referer` of 10,000 bytes.
    async fn held_during_the_response(log: Option<AccessLog>) -> usize {
        let telemetry = Rc::new(Telemetry {
            metrics: Metrics::new(),
            access_log: log.map(|log| std::sync::Arc::new(log) as _),
        });
        let connection = connection();
        let held = || connection.multiplex().accounts.held(Account::Heads);
        connection.multiplex();
        let request =
            Request::get("/path").header("referer", "r".repeat(10_000)).header("x-other", "o".repeat(5000));
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let mut exchange = Exchange::begin(&telemetry, &connection, RequestId(1), &head);
        exchange.hold_head(|| 16_000).expect("room");
        drop(head);
        assert_eq!(held(), 16_000);
        let mut body = exchange.respond(Response::new(Body::full("hello"))).into_body();
        body.frame().await.expect("a frame").expect("data");
        let during = held();
        drop(body);
        assert_eq!(held(), 0);
        during
    }

    #[tokio::test]
    async fn parts_of_a_head_that_the_log_holds_count_until_the_end() {
        let target = AccessLogTarget::File("/dev/null".into());
        let output = AccessLogSettings { target, ..AccessLogSettings::default() };
        let log = AccessLog::open(&[output], |_| Err(String::new())).expect("a log");
        assert_eq!(held_during_the_response(log).await, 10_000 + "/path".len());
        assert_eq!(held_during_the_response(None).await, 0);
    }
}
