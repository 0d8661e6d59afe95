//! Key for the outputs of the access log that get the lines of requests.

use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

/// Key of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogKeys {
    /// Lines for the requests in the [access log](access-log.md), and spans for OpenTelemetry. Metrics count all requests. A list has
    /// the names of the [outputs](access-log.md#outputs) that get the lines.
    pub access_log: Option<LoggedTo>,
}

/// Value of `access_log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedTo {
    /// All outputs that are not `only_listed`, or none.
    All(bool),
    /// The outputs with these names.
    Outputs(Vec<String>),
}

impl<'de> Deserialize<'de> for LoggedTo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl<'de> Visitor<'de> for Value {
            type Value = LoggedTo;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a list of names of outputs, as [\"shop\"]")
            }

            fn visit_bool<E: de::Error>(self, is_logged: bool) -> Result<LoggedTo, E> {
                Ok(LoggedTo::All(is_logged))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<LoggedTo, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(names)).map(LoggedTo::Outputs)
            }
        }
        deserializer.deserialize_any(Value)
    }
}
