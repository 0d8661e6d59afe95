//! Reports of one run: a status line during the run, then text, JSON and an HTML page.
//!
//! Nothing here measures: every report is created from a [`RunResult`](crate::RunResult).

pub mod html;
pub mod json;
mod live;
mod plots;
mod tables;
pub mod terminal;

pub use live::LiveFigures;

#[cfg(test)]
pub(crate) mod tests;
