//! `brisk speed`: the algorithms on one core, and the handshakes that it can be expected to serve.

use std::io::{self, IsTerminal, Stderr, Write};
use std::process::ExitCode;

use anyhow::Context;
use brisk_bench::report::Machine;
use brisk_bench::report::figures::number;
use brisk_speed::{Observer, SpeedError, Step, json};

use crate::args::{Engine, Speed};
use crate::bench::PROGRAM;
use crate::speed_report;

/// What is said where a GPU is asked for that this program knows nothing of.
#[cfg(not(feature = "cuda"))]
pub(crate) const WITHOUT_CUDA: &str =
    "this brisk was built without it: build it with `cargo build --release -p brisk-cli --features cuda`";

/// To the start of the line, and everything after it removed.
const REWRITE: &str = "\r\x1b[2K";

/// 2 if what was asked for makes no sense, 1 if nothing could be measured.
pub(crate) fn run(arguments: Speed) -> ExitCode {
    if arguments.engine == Some(Engine::Cuda) {
        return on_gpu(arguments);
    }
    let Err(error) = measure(arguments) else { return ExitCode::SUCCESS };
    eprintln!("{error:#}");
    let usage = error.downcast_ref::<SpeedError>().is_some_and(SpeedError::is_usage);
    if usage { ExitCode::from(2) } else { ExitCode::FAILURE }
}

#[cfg(feature = "cuda")]
fn on_gpu(arguments: Speed) -> ExitCode {
    crate::speed_cuda::run(arguments)
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(_: Speed) -> ExitCode {
    eprintln!("--engine cuda: {WITHOUT_CUDA}");
    ExitCode::from(2)
}

fn measure(arguments: Speed) -> anyhow::Result<()> {
    let as_json = arguments.json;
    let mut live = Live::new();
    let result = brisk_speed::run(&arguments.settings(), &mut live);
    live.finish();
    let (result, machine) = (result?, Machine::this());
    let text =
        if as_json { json::text(&result, &machine, PROGRAM) } else { speed_report::text(&result, &machine) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// A line in the terminal, if there is one, that says how far the run is. What cannot be shown is no failure.
pub(crate) struct Live {
    terminal: Option<Stderr>,
}

impl Live {
    pub(crate) fn new() -> Self {
        let mut live = Self { terminal: io::stderr().is_terminal().then(io::stderr) };
        live.show("making keys");
        live
    }

    fn show(&mut self, line: &str) {
        if let Some(terminal) = &mut self.terminal {
            let _ = write!(terminal, "{REWRITE}{line}").and_then(|()| terminal.flush());
        }
    }

    /// Removes the line.
    pub(crate) fn finish(mut self) {
        self.show("");
    }
}

impl Observer for Live {
    fn step(&mut self, step: &Step<'_>) {
        let percent = step.done * 100 / step.of.max(1);
        self.show(&format!("{percent:>3} %  {}  {}/s", step.what, number(step.rate)));
    }
}
