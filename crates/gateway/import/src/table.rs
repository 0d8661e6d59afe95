//! Tables of the output, with the places of the input in comments.

use std::fmt::Write as _;

use crate::report::one_line;
use crate::toml::{self, Keys};

/// A table of the output, with the place of the input that it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// As written, with its brackets.
    pub(crate) header: String,
    pub(crate) keys: Keys,
    pub(crate) comment: String,
}

impl Table {
    /// Appends the table to a configuration.
    pub(crate) fn write(&self, text: &mut String) {
        text.push('\n');
        if !self.comment.is_empty() {
            let _ = writeln!(text, "# {}", one_line(&self.comment).trim());
        }
        let _ = writeln!(text, "{}", self.header);
        for (key, value) in &self.keys.0 {
            let _ = writeln!(text, "{} = {value}", toml::bare(key));
        }
    }
}

/// The name of the table of this kind (`limit`, `upstream`) with these keys, which is added if there is none.
pub(crate) fn named(tables: &mut Vec<Table>, kind: &str, name: &str, keys: &Keys, comment: &str) -> String {
    let mut number = 1;
    loop {
        let candidate = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let header = format!("[{kind}.{candidate}]");
        match tables.iter().find(|table| table.header == header).map(|own| own.keys == *keys) {
            Some(true) => return candidate,
            Some(false) => number += 1,
            None => {
                tables.push(Table { header, keys: keys.clone(), comment: comment.to_owned() });
                return candidate;
            }
        }
    }
}
