//! `[access_log]`: target and format of lines.

use std::fmt;
use std::path::PathBuf;

use brisk_config_file::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

use super::values::LogFile;

/// `[access_log]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessLog {
    pub format: Option<LogFormat>,
    pub file: Option<LogFile>,
    pub sample: Option<f64>,
    pub milestones: Option<bool>,
    pub output: Vec<LogOutput>,
}

/// `[[access_log.output]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogOutput {
    pub name: Option<String>,
    pub only_listed: Option<bool>,
    pub file: Option<LogFile>,
    pub syslog: Option<Syslog>,
    pub journal: Option<Journal>,
    pub format: Option<LogFormat>,
    pub sample: Option<f64>,
    pub milestones: Option<bool>,
    pub only: Option<LogTest>,
    pub except: Option<LogTest>,
}

/// `access_log.output.only` and `access_log.output.except`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogTest {
    pub value: String,
    pub regex: String,
}

/// `access_log.output.syslog`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Syslog {
    pub server: String,
    pub facility: Option<String>,
    pub severity: Option<String>,
    pub app_name: Option<String>,
    pub structured_data: Option<String>,
    pub max_size: Option<Size>,
}

/// `access_log.output.journal`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Journal {
    pub socket: Option<PathBuf>,
    pub facility: Option<String>,
    pub severity: Option<String>,
    pub app_name: Option<String>,
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

/// A form by its name, or a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Named(AccessLogFormat),
    Template(String),
}

impl<'de> Deserialize<'de> for LogFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            template: String,
        }
        // No untagged enum of serde: its error would be that no variant matches, without the forms that are
        // permitted.
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = LogFormat;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"text\", \"json\", \"off\" or { template = \"...\" }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<LogFormat, E> {
                AccessLogFormat::deserialize(value::StrDeserializer::new(word)).map(LogFormat::Named)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<LogFormat, A::Error> {
                let Table { template } = Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(LogFormat::Template(template))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
