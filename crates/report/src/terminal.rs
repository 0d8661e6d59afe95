//! The terminal: the width of text reports, and a status line that is rewritten in place.

use std::io::{self, IsTerminal, Stderr, Write};

/// Maximum number of columns of text reports.
pub const WIDTH: usize = 100;

/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A line that is rewritten in place while a measurement runs. Errors of the terminal are ignored, because missing
/// progress does not affect the measurement.
#[derive(Debug)]
pub struct StatusLine<W: Write = Stderr> {
    terminal: Option<W>,
    is_shown: bool,
}

impl StatusLine {
    /// Uses standard error if it is a terminal; otherwise nothing is written.
    pub fn on_stderr() -> Self {
        Self { terminal: io::stderr().is_terminal().then(io::stderr), is_shown: false }
    }
}

impl<W: Write> StatusLine<W> {
    /// Uses `terminal`, which must understand ANSI escape codes.
    pub fn new(terminal: W) -> Self {
        Self { terminal: Some(terminal), is_shown: false }
    }

    /// Replaces the line by `line`, which must fit into the terminal: a line that wraps cannot be replaced.
    pub fn show(&mut self, line: &str) {
        let Some(terminal) = &mut self.terminal else { return };
        self.is_shown = true;
        let _ = write!(terminal, "{CLEAR}{line}").and_then(|()| terminal.flush());
    }

    /// Removes the line, if one is shown.
    pub fn clear(&mut self) {
        let Some(terminal) = self.terminal.as_mut().filter(|_| self.is_shown) else { return };
        self.is_shown = false;
        let _ = write!(terminal, "{CLEAR}").and_then(|()| terminal.flush());
    }
}

/// One bar for each value; the highest value has the full height. If all values are zero, all bars have minimum height.
pub fn sparkline(values: impl Iterator<Item = f64> + Clone) -> String {
    let highest = values.clone().fold(0.0_f64, f64::max);
    let bar = |value: f64| {
        let part = if highest > 0.0 { value / highest } else { 0.0 };
        BARS[((part * 7.0).round() as usize).min(7)]
    };
    values.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_reaches_from_nothing_to_the_highest() {
        assert_eq!(sparkline([0.0, 50.0, 100.0].into_iter()), "▁▅█");
        assert_eq!(sparkline([0.0, 0.0].into_iter()), "▁▁");
        assert_eq!(sparkline(std::iter::empty()), "");
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
