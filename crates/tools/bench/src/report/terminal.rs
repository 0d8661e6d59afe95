//! One run as text for a terminal.

use super::tables;
use crate::result::RunResult;

/// All tables of the run, separated by empty lines. Columns of text are wrapped to fit `width` characters.
pub fn text(result: &RunResult, width: usize) -> String {
    let tables = tables::all(result);
    let tables: Vec<_> = tables.iter().map(|table| table.to_text(width)).collect();
    tables.join("\n")
}
