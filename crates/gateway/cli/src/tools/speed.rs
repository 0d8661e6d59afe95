//! `brisk speed`: measures algorithms on one core, and forecasts handshakes per second.

mod args;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "speed/no_cuda.rs"]
mod cuda;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use brisk_report::Machine;
use brisk_speed::{LiveLine, SpeedError, json, tables};

use args::Engine;

use super::PROGRAM;

pub(super) use args::Speed;

/// Runs the measurement. Exit code: 2 for wrong arguments, 1 if the measurement failed.
pub(crate) fn run(arguments: Speed) -> ExitCode {
    if arguments.engine == Some(Engine::Cuda) {
        return cuda::run(arguments);
    }
    let Err(error) = measure(arguments) else { return ExitCode::SUCCESS };
    eprintln!("{error:#}");
    let usage = error.downcast_ref::<SpeedError>().is_some_and(SpeedError::is_usage);
    if usage { ExitCode::from(2) } else { ExitCode::FAILURE }
}

fn measure(arguments: Speed) -> anyhow::Result<()> {
    let as_json = arguments.json;
    let mut live = LiveLine::start();
    let result = brisk_speed::run(&arguments.settings(), &mut live);
    live.finish();
    let (result, machine) = (result?, Machine::this());
    let text = if as_json { json::text(&result, &machine, PROGRAM) } else { tables::text(&result, &machine) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}
