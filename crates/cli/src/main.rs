//! The program `brisk`: one subcommand per duty.

mod args;
mod check;
mod config;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use config::ConfigError;

/// Handshakes and requests allocate little, but on every core at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A wrong configuration or command line, as clap ends with it too.
const WRONG_CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    if error.is::<ConfigError>() {
        eprintln!("{error}");
        return ExitCode::from(WRONG_CONFIGURATION);
    }
    eprintln!("brisk: {error:#}");
    ExitCode::FAILURE
}
