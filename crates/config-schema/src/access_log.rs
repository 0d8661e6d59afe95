//! `[access_log]`: target and format of lines.

use serde::Deserialize;

use crate::values::LogFile;

/// `[access_log]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    pub format: Option<AccessLogFormat>,
    pub file: Option<LogFile>,
    pub milestones: Option<bool>,
}

/// The form of an access log line.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AccessLogFormat {
    /// A line of text.
    Text,
    /// A JSON object.
    Json,
    /// No access log.
    Off,
}
