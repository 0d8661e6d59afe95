//! Parts of charts with a line for each phase or request: names on the left, bars on a common time scale.

use std::fmt::Write;

use brisk_report::escape;

/// Width of the charts.
pub(crate) const WIDTH: f64 = 900.0;
/// Width of the names beside the charts.
pub(crate) const NAMES: f64 = 220.0;

/// Height of a chart line.
pub(crate) const LINE: f64 = 20.0;

/// Begin of a chart with this height.
pub(crate) fn svg(name: &str, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{name}\" xmlns=\"http://www.w3.org/2000/svg\">"
    )
}

/// A bar in the line at `top`.
pub(crate) fn bar(svg: &mut String, top: f64, left: f64, right: f64, class: usize) {
    let top = top + 4.0;
    let _ = write!(svg, "<path class=\"b c{class}\" d=\"M{left:.1} {top:.1}H{right:.1}v12H{left:.1}Z\"/>");
}

/// A name and a text right of a bar that ends at `right`.
pub(crate) fn line(svg: &mut String, top: f64, name: &str, right: f64, text: &str) {
    let (names, middle) = (NAMES - 10.0, top + 14.0);
    let _ = write!(svg, "<text class=\"t e\" x=\"{names:.1}\" y=\"{middle:.1}\">{}</text>", escape(name));
    let _ =
        write!(svg, "<text class=\"t\" x=\"{:.1}\" y=\"{middle:.1}\">{}</text>", right + 8.0, escape(text));
}
