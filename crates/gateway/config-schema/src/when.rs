//! `when` of a route: conditions on more than the path.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

use crate::values::Network;

/// Conditions, all of which a request has to meet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    pub methods: Vec<String>,
    pub headers: BTreeMap<String, Test>,
    pub query: BTreeMap<String, Test>,
    pub cookies: BTreeMap<String, Test>,
    pub networks: Vec<Network>,
    pub path_regex: Option<String>,
}

/// A text, a regular expression, `true` for any value, or `false` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    Present(bool),
    Text(String),
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
