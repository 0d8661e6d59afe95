//! Rules about the source code that no compiler checks: layers, sizes, cycles, words.

mod cycles;
mod holders;
mod layering;
mod limits;
mod measurements;
mod paths;
mod prose;
mod statics;
mod tree;
mod visitors;
mod words;
