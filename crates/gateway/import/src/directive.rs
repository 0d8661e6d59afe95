//! Directives of a configuration in any of the languages that are read.

use std::path::Path;
use std::sync::Arc;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Arc<Path>,
    pub(crate) line: usize,
}

impl Place {
    /// `nginx.conf:12`, with the name of the file alone.
    pub(crate) fn short(&self) -> String {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}:{}", self.line)
    }
}

/// A directive with its arguments, and the directives of its block.
#[derive(Clone, Debug)]
pub(crate) struct Directive {
    /// Number of the directive in the whole input, for the report.
    pub(crate) id: usize,
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
    pub(crate) block: Option<Vec<Self>>,
    pub(crate) place: Place,
}

impl Directive {
    /// File, line and text, for a comment of the output.
    pub(crate) fn comment(&self) -> String {
        format!("{} {}", self.place.short(), self.text())
    }

    /// The argument at `index`; empty if it is missing.
    pub(crate) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// The directives of the block; none without a block.
    pub(crate) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The directive as text, without its block.
    pub(crate) fn text(&self) -> String {
        [self.name.as_str()]
            .into_iter()
            .chain(self.args.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The value of a parameter of the form `name=value`.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether an argument is exactly `word`.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.args.iter().any(|arg| arg == word)
    }
}
