//! Keys of repetition.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryKeys {
    /// One retry at another server, of requests that were not sent or are safe to repeat. With only one server: of requests that
    /// failed on a kept connection. The table has [further reasons](#retries): `statuses`, `unsafe_methods`.
    pub retry: Option<RetryValue>,
}

/// `retry`: whether a request is repeated, or further reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryValue {
    /// Repetition for the usual reasons, or none.
    Is(bool),
    /// Repetition for further reasons.
    Table(RetryTable),
}

/// Further reasons of a repetition.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct RetryTable {
    /// Statuses of responses after which the request is repeated.
    pub statuses: Vec<u16>,
    /// Whether requests with other methods than idempotent ones are repeated too.
    pub unsafe_methods: Option<bool>,
}

impl RetryKeys {
    /// Whether requests are sent once.
    pub(crate) fn is_off(&self) -> bool {
        self.retry == Some(RetryValue::Is(false))
    }
}

impl<'de> Deserialize<'de> for RetryValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RetryValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a table as { statuses = [502, 503, 504] }")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<RetryValue, E> {
                Ok(RetryValue::Is(on))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<RetryValue, A::Error> {
                RetryTable::deserialize(value::MapAccessDeserializer::new(table)).map(RetryValue::Table)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
