//! Keys of early data.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor, value};

/// Early data of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EarlyDataKeys {
    /// Requests that are processed before the TLS handshake is complete (0-RTT). `"safe"`: GET, HEAD and OPTIONS without a
    /// body; a list: requests for these paths with any method, for example `"/api/search"`, or `"/img/*"` for a prefix. Other
    /// requests wait for the handshake. Not on hosts that request client certificates. [Rules](sessions.md#0-rtt).
    pub early_data: Option<EarlyData>,
}

/// Requests that may get a response before the handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// No early data.
    No,
    /// GET, HEAD and OPTIONS without a body.
    Safe,
    /// Requests for these paths, with any method.
    Paths(Vec<String>),
}

impl EarlyData {
    const WORDS: [&'static str; 2] = ["no", "safe"];
}

impl<'de> Deserialize<'de> for EarlyData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = EarlyData;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"no\", \"safe\" or a list of paths")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<EarlyData, E> {
                match word {
                    "no" => Ok(EarlyData::No),
                    "safe" => Ok(EarlyData::Safe),
                    path if path.starts_with('/') => {
                        Err(E::custom(format!("paths are written as a list: [{path:?}]")))
                    }
                    other => Err(E::unknown_variant(other, &EarlyData::WORDS)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<EarlyData, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(EarlyData::Paths)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
