//! Progress of a run in the terminal.

use brisk_report::figures::number;
use brisk_report::terminal::StatusLine;

use crate::{Observer, Step};

/// A status line on standard error, if that is a terminal, with the progress and the latest figure.
#[derive(Debug)]
pub struct LiveLine(StatusLine);

impl LiveLine {
    /// Shows that keys are being generated, which is the first step.
    pub fn start() -> Self {
        let mut line = StatusLine::on_stderr();
        line.show("making keys");
        Self(line)
    }

    /// Removes the line.
    pub fn finish(mut self) {
        self.0.clear();
    }
}

impl Observer for LiveLine {
    fn step(&mut self, step: &Step<'_>) {
        let percent = step.done * 100 / step.of.max(1);
        self.0.show(&format!("{percent:>3} %  {}  {}/s", step.what, number(step.rate)));
    }
}
