//! Keys of changed paths: `rewrite_path` and `rewrite_files`.

use std::fmt;

use brisk_config_file::KeyPath;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Expressions with the paths for their matches, of which the first that matches decides.
#[derive(Clone, Debug)]
pub struct Rewrites {
    /// All entries.
    pub all: Vec<RewritePath>,
    /// Whether they are written as a list.
    pub is_list: bool,
}

/// An expression and the paths for its matches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewritePath {
    /// Regular expression for the path.
    pub pattern: String,
    /// Path and query, formed from the groups of the expression. For files, also a list of paths.
    pub to: Targets,
}

/// A path, or a list of paths.
#[derive(Clone, Debug)]
pub struct Targets(pub Vec<String>);

impl Rewrites {
    /// The entries with their places in the file.
    pub(super) fn entries(&self, path: &KeyPath) -> impl Iterator<Item = (KeyPath, &RewritePath)> {
        let place = move |index| if self.is_list { path.index(index) } else { path.clone() };
        self.all.iter().enumerate().map(move |(index, rewrite)| (place(index), rewrite))
    }
}

impl<'de> Deserialize<'de> for Rewrites {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Rewrites;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{ pattern = \"...\", to = \"...\" }, or a list of such tables")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Rewrites, A::Error> {
                let one = RewritePath::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(Rewrites { all: vec![one], is_list: false })
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Rewrites, A::Error> {
                let all = Vec::deserialize(value::SeqAccessDeserializer::new(list))?;
                Ok(Rewrites { all, is_list: true })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Targets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Targets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path in quotes, or for files a list of paths")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<Targets, E> {
                Ok(Targets(vec![path.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Targets, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(Targets)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
