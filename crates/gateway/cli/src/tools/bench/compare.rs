//! `brisk bench compare`: starts the servers of a plan, measures them in turn, and reports their ratios.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use brisk_bench::result::Interval;
use brisk_bench::{Observer, Settings};
use brisk_compare::{
    Ended, Interrupt, Plan, PlanError, Progress, Report, Run, Runner, ServerError, Testbed, compare, run_on,
};
use brisk_probe::terminal::Paint;
use brisk_report::figures::{duration, shortened};
use brisk_report::terminal::{self, StatusLine, WIDTH};

use super::args::Compare;
use crate::tools::PROGRAM;
use crate::tools::result_file::ResultFile;

/// Runs the comparison and writes its reports. Exit code: 1 if no cell could be measured, otherwise 0.
pub(crate) fn run(arguments: &Compare) -> anyhow::Result<ExitCode> {
    let plan = plan(arguments)?;
    let page = arguments.html.as_deref().map(ResultFile::open).transpose()?;
    let markdown = arguments.markdown.as_deref().map(ResultFile::open).transpose()?;
    let interrupt = Interrupt::watch().context("cannot listen for signals")?;
    let wrong = |problem| PlanError::Wrong { path: arguments.plan.clone(), problem };
    let testbed = Testbed::start(&plan, &interrupt).map_err(|error| match error {
        ServerError::Plan { .. } => wrong(error.to_string()).into(),
        _ => anyhow::Error::from(error),
    })?;
    let cells = cells(&plan, &testbed).map_err(|error| wrong(format!("{error:#}")))?;
    // Only after the servers are started: children inherit the affinity of this process, and servers choose their own cores.
    if let Err(error) = run_on(&plan.cores) {
        eprintln!("warning: cannot run on cores {:?} alone: {error}", plan.cores);
    }
    let is_present: Vec<_> = testbed.servers.iter().map(|server| server.missing.is_none()).collect();
    let begin = Instant::now();
    let mut runner = Measured { plan: &plan, cells, begin, interrupt, line: StatusLine::on_stderr() };
    let comparison = compare(&plan, &is_present, &mut runner);
    runner.line.clear();
    if comparison.ended == Ended::Interrupted && !comparison.has_figures() {
        return Err(ServerError::Interrupted.into());
    }
    let report = Report::new(&plan, &comparison, &testbed, PROGRAM);
    let paint = Paint::of_stdout();
    let text = if arguments.json { report.json() } else { paint.titled(&report.text(paint.width())) };
    let printed = io::stdout().write_all(text.as_bytes()).context("cannot write to standard output");
    if let Some(file) = page {
        file.write_text(&report.html())?;
    }
    if let Some(file) = markdown {
        file.write_text(&report.markdown())?;
    }
    printed?;
    Ok(if comparison.ended == Ended::Nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn plan(arguments: &Compare) -> Result<Plan, PlanError> {
    let mut plan = Plan::read(&arguments.plan)?;
    let kept = plan.keep(&arguments.target, &arguments.mode);
    kept.map_err(|problem| PlanError::Wrong { path: arguments.plan.clone(), problem })?;
    if let Some(time) = arguments.time {
        plan.limits.time = time;
    }
    if let Some(most) = arguments.rounds.map(usize::from) {
        // The minimum of the plan must not exceed the maximum of the operator.
        plan.limits.rounds = (plan.limits.rounds.0.min(most), most);
    }
    Ok(plan)
}

/// Settings of each cell (target and mode) whose server is available, in the order of the plan.
fn cells(plan: &Plan, testbed: &Testbed) -> anyhow::Result<Vec<((usize, usize), Settings)>> {
    let there = plan.cells().filter(|(target, _)| testbed.servers[*target].missing.is_none());
    there.map(|(target, mode)| Ok(((target, mode), settings(plan, testbed, target, mode)?))).collect()
}

fn settings(plan: &Plan, testbed: &Testbed, target: usize, mode: usize) -> anyhow::Result<Settings> {
    let (server, place) = (&testbed.servers[target], (&plan.targets[target].name, &plan.modes[mode].name));
    let context = || format!("target {:?}, mode {:?}", place.0, place.1);
    let words =
        plan.options(target, mode, &server.variables).map_err(anyhow::Error::msg).with_context(context)?;
    let mut options = super::options(&words).with_context(context)?;
    options.server = server.pid.or(options.server);
    options.settings().with_context(context)
}

/// [`Runner`] that measures real servers, with a progress line on standard error.
struct Measured<'a> {
    plan: &'a Plan,
    cells: Vec<((usize, usize), Settings)>,
    begin: Instant,
    interrupt: Interrupt,
    line: StatusLine,
}

impl Runner for Measured<'_> {
    fn measure(&mut self, target: usize, mode: usize) -> Result<Run, String> {
        let found = self.cells.iter().find(|(cell, _)| *cell == (target, mode));
        let (_, settings) = found.ok_or("the server is missing")?;
        let mut quiet = Quiet(self.interrupt.clone());
        let result = brisk_bench::run(settings, &mut quiet).map_err(|error| error.to_string())?;
        Ok(Run::from(&result))
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn interrupted(&self) -> bool {
        self.interrupt.is_noted()
    }

    fn progress(&mut self, progress: &Progress) {
        let Progress { round, target, mode, settled, cells } = *progress;
        let line = format!(
            "{}  round {round}, {settled} of {cells} known well enough: {}, {}",
            duration(Duration::from_secs(self.begin.elapsed().as_secs())),
            self.plan.targets[target].name,
            self.plan.modes[mode].name
        );
        let columns = terminal::size().map_or(WIDTH, |(columns, _)| columns);
        self.line.show(&shortened(&line, columns - 1));
    }
}

/// [`Observer`] without output, for runs below the progress line.
struct Quiet(Interrupt);

impl Observer for Quiet {
    fn second(&mut self, _: &Interval) {}

    fn is_stopped(&self) -> bool {
        self.0.is_noted()
    }
}
