//! The parts of a request's head for the access log.

use std::sync::Arc;

use brisk_http::trace_context::TraceId;
use brisk_telemetry::{AccessLog, Side};
use brisk_trials::HostExperiments;
use http::request::Parts;
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
    /// The authenticated user.
    pub(super) user: Option<Arc<str>>,
    /// The trace that the request belongs to.
    pub(super) trace: Option<TraceId>,
    /// Experiments of the host that include the connection, each with the arm.
    pub(super) experiments: Vec<(Arc<str>, Arc<str>)>,
}

impl Exchange {
    /// Adds the arms of the connection in the host's experiments to the access log.
    pub(crate) fn name_arms(&mut self, experiments: &HostExperiments) {
        if let (Some(line), Some(arms)) = (&mut self.line, self.connection.extras.arms()) {
            line.experiments = experiments.named(arms);
        }
    }
}

impl Exchange {
    /// Adds the authenticated user to the access log.
    pub(crate) fn name_user(&mut self, user: Arc<str>) {
        if let Some(line) = &mut self.line {
            line.user = Some(user);
        }
    }
}

impl Exchange {
    /// Adds the trace to the access log.
    pub(crate) fn name_trace(&mut self, trace: TraceId) {
        if let Some(line) = &mut self.line {
            line.trace = Some(trace);
        }
    }
}

impl Line {
    /// The parts that `log` needs.
    pub(super) fn of(request: &Parts, log: &AccessLog) -> Self {
        let header = |name| request.headers.get(name).cloned();
        let headers = log.headers().iter().map(|name| request.headers.get(&**name).cloned()).collect();
        Self {
            method: request.method.clone(),
            uri: request.uri.clone(),
            version: request.version,
            host: header(header::HOST),
            referer: header(header::REFERER),
            user_agent: header(header::USER_AGENT),
            headers,
            user: None,
            trace: None,
            experiments: Vec::new(),
        }
    }

    /// Values of the further headers.
    pub(super) fn headers(&self) -> Vec<Option<&[u8]>> {
        self.headers.iter().map(|value| value.as_ref().map(HeaderValue::as_bytes)).collect()
    }

    pub(super) fn host(&self) -> &str {
        let host = self.host.as_ref().and_then(|host| host.to_str().ok());
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
