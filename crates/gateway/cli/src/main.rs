//! The program `brisk`: parses arguments and runs the subcommand.

mod acme;
mod args;
mod cert;
mod check;
mod compress;
mod engines;
mod fixed_keys;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
mod http3;
mod import;
mod isolated;
mod key_servers;
mod keyserver;
mod limits;
mod log;
mod mark;
mod memory;
mod sandbox;
mod serve;
mod source;
mod summary;
mod supervise;
mod tokens;
#[cfg(feature = "tools")]
mod tools;
#[cfg(not(feature = "tools"))]
#[path = "no_tools.rs"]
mod tools;
mod trial;
mod tune;
mod visits;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(arguments) => {
            // First, since it replaces the process: threads, and everything else that was
            // prepared before, would be lost.
            tune::c_library();
            memory::small_pages();
            memory::purge_soon();
            serve::run(&arguments)
        }
        Command::Check(arguments) => check::run(&arguments),
        Command::Compress(arguments) => compress::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Cert(arguments) => cert::run(arguments),
        Command::Mark(arguments) => mark::run(&arguments),
        Command::Keyserver(arguments) => keyserver::run(arguments),
        Command::KeyProcess(arguments) => {
            memory::small_pages();
            isolated::run(arguments)
        }
        Command::Supervise(arguments) => return supervise::run(arguments),
        Command::Upgrade(arguments) => supervise::upgrade(&arguments),
        Command::Tool(tool) => return tools::run(tool),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Only the outermost message: each error of brisk's crates already contains its cause.
            eprintln!("{error}");
            exit_code(&error)
        }
    }
}

/// Exit code of an error: `2` for an error of the configuration, as for wrong arguments, otherwise `1`.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<brisk_config::ConfigError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}
