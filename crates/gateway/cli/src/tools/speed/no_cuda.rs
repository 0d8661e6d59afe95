//! Substitute for `cuda.rs` in a program built without the feature `cuda`.
#![expect(clippy::needless_pass_by_value, reason = "the items take what those of `cuda.rs` need")]

use std::process::ExitCode;

use clap::Args;

use super::args::Speed;

/// GPU options of `brisk speed`: none.
#[derive(Args, Debug)]
pub(crate) struct Options {}

/// Prints an error with the command that builds brisk with a GPU. Exit code: 2.
pub(super) fn run(arguments: Speed) -> ExitCode {
    let Options {} = arguments.cuda;
    eprintln!(
        "--engine cuda: this brisk was built without it: build it with `cargo build --release -p brisk-cli --features cuda`"
    );
    ExitCode::from(2)
}
