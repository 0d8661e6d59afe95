//! Key for requests without a line in the access log.

use serde::Deserialize;

/// Key of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogKeys {
    /// Lines for the requests in the [access log](access-log.md), and spans for OpenTelemetry. Metrics count all requests.
    pub access_log: Option<bool>,
}
