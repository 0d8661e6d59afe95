//! Colours and width of the terminal.

use std::env;
use std::io::{self, IsTerminal};

use brisk_report::terminal::{self, WIDTH};

/// Style of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Headings.
    Title,
    /// Secondary information.
    Soft,
    /// Messages from the client.
    Client,
    /// Messages from the server.
    Server,
    /// Good result.
    Good,
    /// Possible improvement.
    Warn,
    /// Failure.
    Bad,
    /// Duration of a phase.
    Phase,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Soft => "2",
            Self::Client | Self::Phase => "36",
            Self::Server | Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "1;31",
        }
    }
}

/// Capabilities of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    is_coloured: bool,
    width: usize,
}

impl Paint {
    /// Capabilities of standard output: the [width](terminal::width) of reports, and on a terminal colours unless `NO_COLOR` is
    /// set (<https://no-color.org>).
    pub fn of_stdout() -> Self {
        let width = terminal::width();
        if !io::stdout().is_terminal() {
            return Self { width, ..Self::plain() };
        }
        let is_refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { is_coloured: !is_refused && !is_dumb, width }
    }

    /// Output without colours, 100 columns wide.
    pub const fn plain() -> Self {
        Self { is_coloured: false, width: WIDTH }
    }

    /// Width in columns.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// `text` with its titles emphasised: lines that are not indented, as [`brisk_report::Table`] has them.
    pub fn titled(&self, text: &str) -> String {
        let line = |line: &str| {
            let is_title = !line.starts_with(char::is_whitespace);
            if is_title { self.style(Style::Title, line) } else { line.to_owned() }
        };
        text.lines().map(|text| line(text) + "\n").collect()
    }

    /// `text` in this style.
    pub fn style(&self, style: Style, text: &str) -> String {
        if self.is_coloured && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }
}
