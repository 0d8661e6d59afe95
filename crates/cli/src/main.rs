//! The program `brisk`: arguments, configuration, and what they set in motion.

mod args;
mod check;
mod config;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Measured with the HTTP paths: a fifth less CPU per request than with the system's allocator.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            exit_code(&error)
        }
    }
}

/// 2 for what the operator wrote, as for wrong arguments; 1 for everything else.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<config::ConfigError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}
