//! Keys of replaced texts.

use serde::Deserialize;

/// Replaced texts of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplaceTextKeys {
    /// [texts that are replaced](pages.md#replaced-texts) in responses.
    pub replace_text: Option<ReplaceText>,
}

/// `replace_text` of a route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceText {
    /// The texts.
    pub texts: Vec<Replacement>,
    /// Media types of the responses; `*` for all. Default: `text/html`.
    pub types: Option<Vec<String>>,
    /// Whether only the first occurrence of each text is replaced.
    #[serde(default)]
    pub once: bool,
}

/// One text, and that in its place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The text, in any case of its letters.
    pub from: String,
    /// The text in its place, with variables.
    pub to: String,
}
