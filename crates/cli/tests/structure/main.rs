//! Rules about the source code that no compiler checks: layers, sizes, cycles, words.

mod cycles;
mod layering;
mod tree;
mod words;
