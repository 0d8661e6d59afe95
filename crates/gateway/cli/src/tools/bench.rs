//! `brisk bench`: applies one load and prints the result.

mod args;
mod compare;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use brisk_bench::report::{LiveFigures, html, json, terminal};
use brisk_bench::result::Interval;
use brisk_bench::{BenchError, Observer, Options, Settings};
use brisk_compare::{Interrupt, PlanError};
use brisk_probe::terminal::Paint;
use brisk_report::Machine;
use clap::Parser;

use args::{BenchCommand, Load};

use super::PROGRAM;
use super::result_file::ResultFile;
use crate::limits;

pub(super) use args::Bench;

/// Runs the load or the comparison. Exit code: `0` after a measurement without failed operations, `2` for wrong arguments,
/// files or plans, `1` otherwise.
pub(crate) fn run(arguments: Bench) -> ExitCode {
    // A refusal is no error here: a run that lacks descriptors fails, and reports the lack.
    limits::raise_open_files();
    let done = match &arguments.command {
        Some(BenchCommand::Compare(compare)) => compare::run(compare),
        None => measure(arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        let wrong_plan = error.is::<PlanError>();
        let usage = wrong_plan || error.downcast_ref::<BenchError>().is_some_and(BenchError::is_usage);
        if usage { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}

/// Parses the options of a mode in a plan file. They have the syntax of the command line, so clap parses them too; the error
/// is the first line of its message.
pub(crate) fn options(words: &[String]) -> anyhow::Result<Options> {
    #[derive(Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        load: Load,
    }
    let line = Line::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        anyhow!("{}", first.trim_start_matches("error: "))
    })?;
    Ok(line.load.options())
}

fn measure(arguments: Bench) -> anyhow::Result<ExitCode> {
    let Bench { load, json: as_json, html: page, records, .. } = arguments;
    let mut settings = load.options().settings()?;
    settings.keeps_records = records.is_some();
    let page = page.as_deref().map(ResultFile::open).transpose()?;
    let records = records.as_deref().map(ResultFile::open).transpose()?;
    // Before the run: from here on SIGINT ends it early, with the result so far.
    let interrupt = Interrupt::watch().context("cannot listen for signals")?;
    let mut progress = Progress::new(&settings, interrupt);
    let result = brisk_bench::run(&settings, &mut progress);
    progress.finish();
    let result = result?;
    let machine = Machine::this();
    let paint = Paint::of_stdout();
    let text = if as_json {
        json::text(&result, &machine, PROGRAM)
    } else {
        paint.titled(&terminal::text(&result, paint.width()))
    };
    // Neither a closed output nor a full disk costs the other result.
    let printed = io::stdout().write_all(text.as_bytes()).context("cannot write to standard output");
    if let Some(file) = page {
        file.write_text(&html::run(&result, &machine, PROGRAM))?;
    }
    if let Some(file) = records {
        file.write(|output| brisk_bench::records::write(&result.connections, output))?;
    }
    printed?;
    Ok(if result.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows the figures of each second on standard error, if that is a terminal.
struct Progress {
    live: LiveFigures,
    interrupt: Interrupt,
}

impl Progress {
    fn new(settings: &Settings, interrupt: Interrupt) -> Self {
        Self { live: LiveFigures::on_stderr(settings), interrupt }
    }

    fn finish(self) {
        self.live.finish();
    }
}

impl Observer for Progress {
    fn second(&mut self, interval: &Interval) {
        self.live.show(interval);
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.is_noted()
    }
}
