//! `brisk speed --engine cuda`: measures RSA on a GPU and on the processor.

mod options;

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use brisk_keys_cuda::measure::{self, CudaResult, MeasureStep, html, json, markdown};
use brisk_report::Machine;
use brisk_speed::{LiveLine, Observer, Step as Shown};

use super::args::Speed;
use crate::tools::PROGRAM;

pub(super) use options::Options;

/// Runs the measurement. Exit code: 2 for wrong arguments, 1 if the measurement failed or a result was wrong.
pub(crate) fn run(arguments: Speed) -> ExitCode {
    let Speed { subjects, seconds, cuda: options, json: as_json, .. } = arguments;
    let (file, page) = (options.markdown.clone(), options.html.clone());
    let plan = match options.plan(&subjects, seconds) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let machine = Machine::this();
    let tables = |result: &CudaResult| markdown::text(result, &machine.line());
    let mut live = LiveLine::start();
    let mut observe = |step: &MeasureStep<'_>| {
        live.step(&Shown { done: step.done, of: step.of, what: step.what, rate: step.rate });
    };
    let result = measure::run(&plan, &mut observe, |so_far| {
        // A failure to write is reported at the end, where the file is written again.
        if let Some(file) = &file {
            drop(fs::write(file, tables(so_far)));
        }
    });
    live.finish();
    let outcome = result.map_err(anyhow::Error::from).and_then(|result| {
        let text = if as_json { json::text(&result, &machine, PROGRAM) } else { tables(&result) };
        io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
        let files = [(&file, tables(&result)), (&page, html::page(&result, &machine.line()))];
        for (file, text) in files.iter().filter_map(|(file, text)| Some((file.as_ref()?, text))) {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(result.verified.iter().map(|verified| verified.wrong).sum::<u64>())
    });
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("{wrong} results of the GPU are not those of AWS-LC");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
