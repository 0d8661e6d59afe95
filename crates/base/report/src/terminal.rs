//! The terminal: the width of text reports, and a status of one or more lines that is rewritten in place.

use std::env;
use std::io::{self, IsTerminal, Stderr, Write};

/// Columns of text reports without a terminal.
pub const WIDTH: usize = 100;

/// Least and greatest number of columns of text reports. Lines wrap in narrower terminals.
const NARROWEST: usize = 60;
const WIDEST: usize = 140;

/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Moves to the line above.
const UP: &str = "\x1b[1A";

/// Lines that are rewritten in place while a measurement runs. Errors of the terminal are ignored, because missing
/// progress does not affect the measurement.
#[derive(Debug)]
pub struct StatusLine<W: Write = Stderr> {
    terminal: Option<W>,
    /// Number of shown lines.
    lines: usize,
}

/// Columns of text reports on standard output: those of its terminal, otherwise those of the variable `COLUMNS`, otherwise
/// [`WIDTH`]; at least 60 and at most 140.
pub fn width() -> usize {
    let stdout = io::stdout();
    // The terminal knows its present width; `COLUMNS` may be from before a change of the window.
    let columns = if stdout.is_terminal() {
        rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col.into())
    } else {
        env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok())
    };
    limited(columns)
}

fn limited(columns: Option<usize>) -> usize {
    columns.filter(|columns| *columns > 0).unwrap_or(WIDTH).clamp(NARROWEST, WIDEST)
}

/// Columns and rows of the terminal of standard error; `None` without one.
pub fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    Some((size.ws_col.into(), size.ws_row.into())).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

impl StatusLine {
    /// Uses standard error if it is a terminal; otherwise nothing is written.
    pub fn on_stderr() -> Self {
        Self { terminal: io::stderr().is_terminal().then(io::stderr), lines: 0 }
    }
}

impl<W: Write> StatusLine<W> {
    /// Uses `terminal`, which must understand ANSI escape codes.
    pub fn new(terminal: W) -> Self {
        Self { terminal: Some(terminal), lines: 0 }
    }

    /// Replaces the shown lines by `text`, whose lines must fit into the terminal: a line that wraps cannot be replaced.
    pub fn show(&mut self, text: &str) {
        let cleared = self.cleared();
        let Some(terminal) = &mut self.terminal else { return };
        self.lines = text.split('\n').count();
        // One write, so that the terminal never shows cleared lines without the new ones.
        let _ = write!(terminal, "{cleared}{text}").and_then(|()| terminal.flush());
    }

    /// Removes the lines, if some are shown.
    pub fn clear(&mut self) {
        let cleared = self.cleared();
        let Some(terminal) = self.terminal.as_mut().filter(|_| self.lines > 0) else { return };
        self.lines = 0;
        let _ = write!(terminal, "{cleared}").and_then(|()| terminal.flush());
    }

    /// Codes that clear the shown lines and move to the start of the first.
    fn cleared(&self) -> String {
        let above = format!("{UP}{CLEAR}").repeat(self.lines.saturating_sub(1));
        format!("{CLEAR}{above}")
    }
}

/// A chart of `rows` lines with one column for each value, from the first line down; the highest value has the full height.
/// The lines have no line breaks.
pub fn columns(values: &[f64], rows: usize) -> Vec<String> {
    // All values may be 0, and the division needs a positive number.
    let highest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let eighths = |value: f64| (value / highest * (rows * 8) as f64).round() as usize;
    let cell = |value: f64, row: usize| match eighths(value).saturating_sub((rows - 1 - row) * 8) {
        0 => ' ',
        part => BARS[part.min(8) - 1],
    };
    (0..rows).map(|row| values.iter().map(|value| cell(*value, row)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_neither_too_narrow_nor_too_wide() {
        assert_eq!([None, Some(0), Some(20), Some(80), Some(400)].map(limited), [WIDTH, WIDTH, 60, 80, 140]);
    }

    #[test]
    fn columns_fill_their_rows_from_below() {
        assert_eq!(columns(&[0.0, 1.0, 2.0], 2), ["  █", " ██"]);
        assert_eq!(columns(&[1.0, 16.0], 2), [" █", "▁█"]);
        assert_eq!(columns(&[0.0], 1), [" "]);
    }

    #[test]
    fn several_lines_are_rewritten_from_the_first() {
        let mut written = Vec::new();
        let mut status = StatusLine::new(&mut written);
        status.show("a\nb\nc");
        status.show("d");
        status.clear();
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text, "\r\x1b[2Ka\nb\nc\r\x1b[2K\x1b[1A\r\x1b[2K\x1b[1A\r\x1b[2Kd\r\x1b[2K");
    }

    #[test]
    fn the_line_is_rewritten_and_removed_once() {
        let mut written = Vec::new();
        let mut line = StatusLine::new(&mut written);
        line.clear();
        line.show("one");
        line.show("two");
        line.clear();
        line.clear();
        let text = String::from_utf8(written).unwrap();
        let lines: Vec<_> = text.split(CLEAR).collect();
        assert_eq!(lines, ["", "one", "two", ""]);
    }
}
