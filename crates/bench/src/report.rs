//! What a run came to, for people and programs: live in the terminal, as tables, as JSON, as a page.
//!
//! Nothing here measures; everything is made of a [`RunResult`](crate::RunResult).

pub mod figures;
pub mod html;
pub mod json;
pub mod live;
pub mod machine;
pub mod plot;
pub mod plots;
pub mod table;
pub mod tables;
pub mod terminal;

pub use live::Live;
pub use machine::Machine;

#[cfg(test)]
pub(crate) mod tests;
