//! Reports of measurements: numbers, tables, charts, HTML pages, JSON documents, the terminal, facts about the machine.
//!
//! It knows no tool that measures. A tool formats its own results with these parts.

pub mod figures;
pub mod html;
pub mod json;
mod machine;
pub mod plot;
mod table;
pub mod terminal;

pub use machine::Machine;
pub use table::{Table, escape, wrapped};
