//! Keys of `[experiment.NAME]`: a setting with different values for different visitors.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// `[experiment.NAME]`. A field has the name and the meaning of its key in `docs/configuration.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "docs/configuration.md describes the keys")]
pub struct ExperimentKeys {
    pub setting: String,
    pub values: Vec<ExperimentValue>,
    pub share: Option<f64>,
    pub hosts: Option<Vec<String>>,
    pub metric: Option<String>,
    pub margin: Option<f64>,
}

/// A value of the setting, as its own key has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentValue {
    /// `true` or `false`.
    Switch(bool),
    /// A whole number.
    Number(i64),
    /// Text in quotes.
    Text(String),
}

impl fmt::Display for ExperimentValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}

impl<'de> Deserialize<'de> for ExperimentValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = ExperimentValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false`, a whole number or text in quotes")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<ExperimentValue, E> {
                Ok(ExperimentValue::Switch(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ExperimentValue, E> {
                Ok(ExperimentValue::Number(value))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<ExperimentValue, E> {
                Ok(ExperimentValue::Text(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
