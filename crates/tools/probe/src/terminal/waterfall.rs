//! Phases of a connection as bars.

use std::fmt::Write;

use brisk_report::figures::shortened;

use super::{Paint, Style, ms};
use crate::report::Report;

/// Bars of one to eight eighths of a column.
const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// One line per phase, positioned on a common time scale.
pub(super) fn waterfall(report: &Report, paint: &Paint) -> String {
    let phases = report.phases.named();
    let total: f64 = phases.iter().map(|(_, time)| time).sum();
    let room = paint.width().saturating_sub(26).max(10);
    let mut text = format!("{}\n", paint.style(Style::Title, "Time"));
    let mut before = 0.0;
    for (index, (name, time)) in phases.iter().enumerate() {
        let scale = if total > 0.0 { room as f64 / total } else { 0.0 };
        let is_unfinished = report.phases.unfinished == Some(name);
        // Phases are no verdicts: none has the colour of a warning.
        let style = [Style::Phase, Style::Soft][index % 2];
        let style = if is_unfinished { Style::Bad } else { style };
        let bar = paint.style(style, &bar(before * scale, time * scale));
        let _ = writeln!(text, "  {name:<8}{:>9}  {bar}", ms(*time));
        if is_unfinished {
            let note = format!("{name} was not completed: the connection failed after {} of it", ms(*time));
            let _ = writeln!(text, "{:>21}{}", "", paint.style(Style::Bad, &shortened(&note, room)));
        }
        before += time;
    }
    let _ = writeln!(text, "  {:<8}{:>9}", "total", ms(report.phases.total_ms.unwrap_or(total)));
    text
}

/// A bar of `length` columns after `begin` columns; at most one column longer.
fn bar(begin: f64, length: f64) -> String {
    let begin = begin.max(0.0).floor() as usize;
    let eighths = (length.max(0.0) * 8.0).round() as usize;
    let mut bar = " ".repeat(begin);
    bar.extend(std::iter::repeat_n('█', eighths / 8));
    if !eighths.is_multiple_of(8) {
        bar.push(PARTS[eighths % 8]);
    }
    // A phase that took almost no time is still visible.
    if eighths == 0 {
        bar.push(PARTS[1]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lie_one_behind_the_other() {
        assert_eq!(bar(0.0, 2.0), "██");
        assert_eq!(bar(2.9, 1.5), "  █▌");
        assert_eq!(bar(3.0, 0.0), "   ▏");
    }
}
