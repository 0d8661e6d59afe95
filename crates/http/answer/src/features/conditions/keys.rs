//! Keys of conditions on more than the path.

use std::collections::BTreeMap;
use std::fmt;

use brisk_config_file::Network;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Conditions of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConditionKeys {
    /// Further [conditions](#conditions-of-routes): `methods`, `headers`, `query`, `cookies`, `networks`, `path_regex`.
    pub when: Option<When>,
}

/// Conditions, all of which a request has to meet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Methods in capitals. `"GET"` includes HEAD, and `WebSocket` over HTTP/2 and HTTP/3.
    pub methods: Vec<String>,
    /// Request headers by name. Not `Host`: the names of hosts decide about it.
    pub headers: BTreeMap<String, Test>,
    /// Parameters of the query by name, compared after decoding of percent-encoding and `+`.
    pub query: BTreeMap<String, Test>,
    /// Cookies by name.
    pub cookies: BTreeMap<String, Test>,
    /// Addresses of clients; with a PROXY header, those of the header.
    pub networks: Vec<Network>,
    /// Regular expression for the [normalised path](#hostroute) without the query.
    pub path_regex: Option<String>,
}

/// A text, a regular expression, `true` for any value, or `false` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Any value, or no value.
    Present(bool),
    /// This text.
    Text(String),
    /// Values that the expression matches.
    Regex(String),
}

impl<'de> Deserialize<'de> for Test {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            regex: String,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Test;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the value in quotes, { regex = \"...\" }, `true` for any value or `false` for none",
                )
            }

            fn visit_bool<E: de::Error>(self, is_present: bool) -> Result<Test, E> {
                Ok(Test::Present(is_present))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Test, E> {
                Ok(Test::Text(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Test, A::Error> {
                let Table { regex } = Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(Test::Regex(regex))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
