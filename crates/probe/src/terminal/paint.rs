//! Colours and width of the terminal.

use std::env;
use std::io::{self, IsTerminal};

/// Width without a terminal, and maximum width.
const WIDTH: usize = 100;
const WIDEST: usize = 140;

/// Minimum width; lines wrap in narrower terminals.
const NARROWEST: usize = 60;

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
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Title => "1",
            Self::Soft => "2",
            Self::Client => "36",
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

/// The width of an output with this number of columns.
fn width(columns: Option<usize>) -> usize {
    columns.filter(|columns| *columns > 0).unwrap_or(WIDTH).clamp(NARROWEST, WIDEST)
}

impl Paint {
    /// Capabilities of standard output: on a terminal, its width, and colours unless `NO_COLOR` is set
    /// (<https://no-color.org>). Elsewhere the width is that of the variable `COLUMNS`, or 100 columns.
    pub fn of_stdout() -> Self {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
            return Self { width: width(columns), ..Self::plain() };
        }
        let window = rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
        let width = width(window);
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

    /// `text` in this style.
    pub fn style(&self, style: Style, text: &str) -> String {
        if self.is_coloured && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }
}
