//! Parts of reports of measurements: numbers, tables, charts, HTML pages, JSON documents, the terminal, facts about the
//! machine.
//!
//! Independent of the measuring tools, which format their results with these parts.

pub mod figures;
pub mod html;
pub mod json;
mod machine;
pub mod plot;
mod table;
pub mod terminal;
pub mod text;

pub use brisk_telemetry::escape_markup as escape;
pub use machine::Machine;
pub use table::{Table, wrapped};
