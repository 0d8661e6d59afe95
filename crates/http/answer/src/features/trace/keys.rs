//! Keys of trace context.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// Trace context of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceKeys {
    /// [trace context](pages.md#trace-context) of requests.
    pub trace: Option<Trace>,
}

/// Treatment of trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Off.
    Off,
    /// Continue the trace of the client.
    Continue,
    /// Begin a trace with each request.
    New,
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Trace;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "`true`, `false`, or \"new\" for a trace that does not continue that of the client",
                )
            }

            fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<Trace, E> {
                Ok(if is_on { Trace::Continue } else { Trace::Off })
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Trace, E> {
                match word {
                    "new" => Ok(Trace::New),
                    other => Err(E::unknown_variant(other, &["new"])),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}
