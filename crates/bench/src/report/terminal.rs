//! One run as text for a terminal.

use brisk_report::terminal::WIDTH;

use super::tables;
use crate::result::RunResult;

/// All tables of the run, in lines of at most [`WIDTH`] characters, separated by empty lines.
pub fn text(result: &RunResult) -> String {
    let tables = tables::all(result);
    let tables: Vec<_> = tables.iter().map(|table| table.to_text(WIDTH)).collect();
    tables.join("\n")
}
