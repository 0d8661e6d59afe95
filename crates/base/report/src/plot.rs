//! Charts as SVG without scripts: scales, axes, lines, bars, intervals. The style sheet defines the colours for light
//! and dark. Lines also differ by their dashes, for monochrome prints.

use std::fmt::Write;

use crate::escape;
use crate::figures::tick;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 276.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
/// Room for the name of the vertical axis, which is above its numbers.
const TOP: f64 = 28.0;
const BOTTOM: f64 = 44.0;

/// Height of a row of [`estimates`], and space above the first.
const ROW: f64 = 22.0;
const ROWS_TOP: f64 = 12.0;
/// Width of the names left of [`estimates`], and of the texts right of them.
const NAMES: f64 = 230.0;
const TEXT: f64 = 120.0;

/// Intended numbers of ticks.
const TICKS: (f64, f64) = (8.0, 5.0);

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic; for positive values.
    Logarithmic,
}

/// An axis: range, ticks and label.
#[derive(Debug, Clone)]
pub struct Axis {
    label: String,
    scale: Scale,
    least: f64,
    most: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis that covers `values`. A linear one begins at zero.
    pub fn new(label: &str, scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0)) {
            least = least.min(value);
            most = most.max(value);
        }
        if least > most {
            (least, most) = (1.0, 1.0);
        }
        let ticks = match scale {
            Scale::Linear => {
                least = least.min(0.0);
                most = if most > least { most } else { least + 1.0 };
                linear_ticks(least, most, TICKS.1)
            }
            Scale::Logarithmic => {
                most = if most > least * 1.01 { most } else { least * 2.0 };
                logarithmic_ticks(least, most)
            }
        };
        // The axis ends at a tick, so that the highest value can be read.
        least = ticks.first().copied().unwrap_or(least).min(least);
        most = ticks.last().copied().unwrap_or(most).max(most);
        let ticks = ticks.into_iter().map(|at| (at, tick(at))).collect();
        Self { label: label.to_owned(), scale, least, most, ticks }
    }

    /// A logarithmic axis from `least` to `most`, which need not be ticks.
    pub fn between(label: &str, least: f64, most: f64) -> Self {
        let mut axis = Self::new(label, Scale::Logarithmic, [least, most].into_iter());
        if most > least {
            axis.ticks.retain(|(at, _)| *at >= least && *at <= most);
            (axis.least, axis.most) = (least, most);
        }
        axis
    }

    /// A linear axis from zero to `most` with the given ticks.
    pub fn exact(label: &str, most: f64, ticks: Vec<(f64, String)>) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, least: 0.0, most: most.max(1e-9), ticks }
    }

    /// A linear axis of seconds from zero to `most`.
    pub fn time(most: f64) -> Self {
        let ticks = linear_ticks(0.0, most, TICKS.0).into_iter().filter(|tick| *tick <= most * 1.0001);
        Self::exact("time, s", most, ticks.map(|at| (at, tick(at))).collect())
    }

    /// Position between 0 and 1; values outside the range are drawn at the edge.
    fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.least) / (self.most - self.least),
            // Zero has no logarithm; it is drawn at the edge.
            Scale::Logarithmic => (value.max(1e-12) / self.least).ln() / (self.most / self.least).ln(),
        };
        part.clamp(0.0, 1.0)
    }
}

/// Steps of 1, 2 or 5 times a power of ten, about `aim` of them, covering the range.
fn linear_ticks(least: f64, most: f64, aim: f64) -> Vec<f64> {
    let rough = ((most - least) / aim).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power);
    // The tolerances absorb rounding errors, which would choose the next step or add a tick beyond the
    // range.
    let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(power * 10.0);
    let (first, last) = ((least / step).floor() as i64, (most / step - 1e-9).ceil() as i64);
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Powers of ten, and 2 and 5 times them if the range is short.
fn logarithmic_ticks(least: f64, most: f64) -> Vec<f64> {
    let factors: &[f64] = match (most / least).log10() {
        decades if decades < 1.5 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        decades if decades < 4.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let powers = (least.log10().floor() as i32)..=(most.log10().floor() as i32 + 1);
    let all: Vec<f64> =
        powers.flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power))).collect();
    let first = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let last = all.iter().position(|tick| *tick >= most).unwrap_or(all.len() - 1);
    all[first..=last].to_vec()
}

/// Style of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A line through its points.
    Line,
    /// A line that keeps its value until the next point.
    Steps,
    /// A bar from each point to the next one. The last point only ends the last bar.
    Bars,
}

/// A named series of points.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Style.
    pub mark: Mark,
    /// Points (x, y), ordered by x.
    pub points: Vec<(f64, f64)>,
    /// Tooltip of each point; may be empty.
    pub hints: Vec<String>,
}

/// An HTML section with a chart of `series`. The n-th series has the n-th colour.
pub fn chart(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let mut svg = opening(title, HEIGHT);
    grid(&mut svg, x, y);
    for (index, series) in series.iter().enumerate() {
        let points: Vec<_> =
            series.points.iter().map(|(at, value)| (across(x, *at), up(y, *value))).collect();
        let class = index % 6 + 1;
        // Writing to a string cannot fail.
        let _ = match series.mark {
            Mark::Line => write!(svg, "<path class=\"l c{class}\" d=\"{}\"/>", line(&points)),
            Mark::Steps => write!(svg, "<path class=\"l c{class}\" d=\"{}\"/>", stairs(&points)),
            Mark::Bars => write!(svg, "<path class=\"b c{class}\" d=\"{}\"/>", bars(&points)),
        };
        for ((left, top), hint) in points.iter().zip(&series.hints) {
            let hint = escape(hint);
            let _ = write!(
                svg,
                "<circle class=\"h c{class}\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"4\"><title>{hint}</title></circle>"
            );
        }
    }
    svg.push_str("</svg>\n");
    figure(title, &svg, series.iter().map(|series| series.name.as_str()))
}

/// A row of [`estimates`]: a value with its interval, or a heading.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Name, shown left of the chart.
    pub name: String,
    /// Whether the row is a heading, of which only the name is shown.
    pub is_heading: bool,
    /// Index of the colour.
    pub series: usize,
    /// The value and both ends of its interval; `None` to draw nothing.
    pub range: Option<(f64, f64, f64)>,
    /// Text, shown right of the chart.
    pub text: String,
}

/// An HTML section with values and intervals, one row each, and a line at `baseline`.
pub fn estimates(title: &str, x: &Axis, baseline: Option<f64>, rows: &[Estimate]) -> String {
    let height = rows.len() as f64 * ROW + ROWS_TOP + BOTTOM;
    let bottom = height - BOTTOM;
    let mut svg = opening(title, height);
    for (at, name) in &x.ticks {
        let left = along(x, *at);
        let _ = write!(svg, "<path class=\"g\" d=\"M{left:.1} {ROWS_TOP}V{bottom:.1}\"/>");
        text(&mut svg, "t m", left, bottom + 16.0, name);
    }
    text(&mut svg, "t m", f64::midpoint(NAMES, WIDTH - TEXT), height - 8.0, &x.label);
    if let Some(baseline) = baseline {
        let left = along(x, baseline);
        let _ = write!(svg, "<path class=\"base\" d=\"M{left:.1} {ROWS_TOP}V{bottom:.1}\"/>");
    }
    for (index, row) in rows.iter().enumerate() {
        estimate(&mut svg, x, row, ROWS_TOP + (index as f64 + 0.5) * ROW);
    }
    svg.push_str("</svg>\n");
    figure(title, &svg, std::iter::empty())
}

/// Draws a row whose middle is at `top`.
fn estimate(svg: &mut String, x: &Axis, row: &Estimate, top: f64) {
    let class = row.series % 6 + 1;
    if row.is_heading {
        text(svg, "t s", 0.0, top + 4.0, &row.name);
        return;
    }
    text(svg, "t e", NAMES - 10.0, top + 4.0, &row.name);
    text(svg, "t", WIDTH - TEXT + 10.0, top + 4.0, &row.text);
    let Some((value, low, high)) = row.range else { return };
    let (value, low, high, end) = (along(x, value), along(x, low), along(x, high), top - 4.0);
    let _ = write!(
        svg,
        "<path class=\"i c{class}\" d=\"M{low:.1} {top:.1}H{high:.1}M{low:.1} {end:.1}v8M{high:.1} {end:.1}v8\"/>"
    );
    let _ = write!(svg, "<circle class=\"p c{class}\" cx=\"{value:.1}\" cy=\"{top:.1}\" r=\"4.5\"/>");
}

/// Horizontal position of a value in [`estimates`].
fn along(x: &Axis, value: f64) -> f64 {
    NAMES + x.place(value) * (WIDTH - NAMES - TEXT)
}

/// Draws a text with its class, position and escaped content.
fn text(svg: &mut String, class: &str, left: f64, top: f64, content: &str) {
    // Writing to a string cannot fail.
    let _ = write!(svg, "<text class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\">{}</text>", escape(content));
}

fn opening(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\" xmlns=\"http://www.w3.org/2000/svg\">"
    )
}

fn figure<'a>(title: &str, svg: &str, legend: impl Iterator<Item = &'a str>) -> String {
    let entry = |(index, name): (usize, &str)| {
        let class = index % 6 + 1;
        let key =
            format!("<svg class=\"k\" viewBox=\"0 0 24 8\"><path class=\"l c{class}\" d=\"M0 4H24\"/></svg>");
        format!("<span>{key}{}</span>", escape(name))
    };
    let legend: Vec<_> = legend.enumerate().map(entry).collect();
    let legend = if legend.len() > 1 {
        format!("<p class=\"legend\">{}</p>\n", legend.concat())
    } else {
        String::new()
    };
    format!("<section>\n<h2>{}</h2>\n{legend}<div class=\"wide\">{svg}</div></section>\n", escape(title))
}

fn across(x: &Axis, value: f64) -> f64 {
    LEFT + x.place(value) * (WIDTH - LEFT - RIGHT)
}

fn up(y: &Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM)
}

fn grid(svg: &mut String, x: &Axis, y: &Axis) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (at, name) in &y.ticks {
        let top = up(y, *at);
        let _ = write!(svg, "<path class=\"g\" d=\"M{LEFT} {top:.1}H{right}\"/>");
        text(svg, "t e", LEFT - 8.0, top + 4.0, name);
    }
    for (at, name) in &x.ticks {
        let left = across(x, *at);
        let _ = write!(svg, "<path class=\"g\" d=\"M{left:.1} {bottom}v5\"/>");
        text(svg, "t m", left, bottom + 18.0, name);
    }
    text(svg, "t m", f64::midpoint(LEFT, right), HEIGHT - 6.0, &x.label);
    text(svg, "t", 0.0, TOP - 16.0, &y.label);
}

fn line(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    path
}

fn stairs(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = if index == 0 { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
    }
    path
}

fn bars(points: &[(f64, f64)]) -> String {
    let bottom = HEIGHT - BOTTOM;
    let mut path = String::new();
    for pair in points.windows(2) {
        let ((left, top), right) = (pair[0], pair[1].0);
        // A thin gap separates bars.
        let _ = write!(path, "M{left:.1} {bottom}V{top:.1}H{:.1}V{bottom}Z", (right - 0.8).max(left + 0.4));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_cover_the_range() {
        assert_eq!(linear_ticks(0.0, 4321.0, 5.0), [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0]);
        assert_eq!(linear_ticks(0.0, 10.0, 5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    }

    #[test]
    fn logarithmic_ticks_cover_the_range() {
        let ticks = logarithmic_ticks(120.0, 80_000.0);
        assert_eq!((ticks[0], *ticks.last().unwrap()), (100.0, 100_000.0));
        assert!(ticks.contains(&2000.0), "{ticks:?}");
    }

    #[test]
    fn an_axis_without_values_or_with_one_is_still_an_axis() {
        for values in [vec![], vec![5.0], vec![f64::NAN], vec![0.0]] {
            for scale in [Scale::Linear, Scale::Logarithmic] {
                let axis = Axis::new("x", scale, values.iter().copied());
                assert!(axis.most > axis.least && axis.place(5.0).is_finite(), "{axis:?}");
            }
        }
    }

    #[test]
    fn places_go_from_left_to_right() {
        let axis = Axis::new("x", Scale::Logarithmic, [1.0, 100.0].into_iter());
        assert!((axis.place(10.0) - 0.5).abs() < 1e-9);
        assert!(axis.place(1e9) <= 1.0 && axis.place(-1.0) >= 0.0);
    }

    #[test]
    fn a_chart_has_its_lines_and_says_what_they_are() {
        let series = |name: &str, mark| Series {
            name: name.to_owned(),
            mark,
            points: vec![(0.0, 1.0), (1.0, 2.0)],
            hints: vec!["<1>".to_owned(), String::new()],
        };
        let y = Axis::new("ms", Scale::Linear, [1.0, 2.0].into_iter());
        let all = [series("p50", Mark::Line), series("p99", Mark::Steps), series("n", Mark::Bars)];
        let html = chart("A & B", &Axis::time(1.0), &y, &all);
        assert!(html.contains("<h2>A &amp; B</h2>") && html.contains("<title>&lt;1&gt;</title>"), "{html}");
        for part in ["class=\"l c1\"", "class=\"l c2\"", "class=\"b c3\"", "p50</span>"] {
            assert!(html.contains(part), "no {part} in {html}");
        }
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    #[test]
    fn estimates_show_value_and_interval() {
        let axis = Axis::new("ratio", Scale::Logarithmic, [0.5, 2.0].into_iter());
        let row = |range, is_heading| Estimate {
            name: "nginx".to_owned(),
            is_heading,
            series: 0,
            range,
            text: "1.2".to_owned(),
        };
        let rows = [row(None, true), row(Some((1.2, 1.1, 1.3)), false), row(None, false)];
        let html = estimates("Ratios", &axis, Some(1.0), &rows);
        assert_eq!(html.matches("<circle").count(), 1, "{html}");
        assert!(html.contains("class=\"base\""), "{html}");
    }
}
