//! A finished run as text.

use super::tables;
use crate::result::RunResult;

/// Columns that the text fits into.
pub const WIDTH: usize = 100;

/// All tables of the run, lines of at most [`WIDTH`] characters, an empty line between two tables.
pub fn text(result: &RunResult) -> String {
    let tables = tables::all(result);
    let tables: Vec<_> = tables.iter().map(|table| table.to_text(WIDTH)).collect();
    tables.join("\n")
}
