//! Tables, as text, Markdown or HTML.

use std::fmt::Write;

use crate::escape;

/// A table: a title, columns, rows, and notes below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Title, with the unit if all figures have the same one.
    pub title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    heading: String,
    align: Align,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// Gap between two columns of text.
const GAP: &str = "  ";

impl Table {
    /// A table without columns and rows.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), columns: Vec::new(), rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a column of text, aligned left. The widest such column is wrapped if a line would be too long.
    #[must_use]
    pub fn text(mut self, heading: impl Into<String>) -> Self {
        self.columns.push(Column { heading: heading.into(), align: Align::Left });
        self
    }

    /// Adds a column of numbers, aligned right.
    #[must_use]
    pub fn figure(mut self, heading: impl Into<String>) -> Self {
        self.columns.push(Column { heading: heading.into(), align: Align::Right });
        self
    }

    /// Adds columns of numbers.
    #[must_use]
    pub fn figures<T: Into<String>>(self, headings: impl IntoIterator<Item = T>) -> Self {
        headings.into_iter().fold(self, Self::figure)
    }

    /// Adds a row with one cell for each column. Missing cells are empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Adds a line below the table.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Text for a terminal. Lines longer than `width` characters are wrapped.
    pub fn to_text(&self, width: usize) -> String {
        let widths = self.widths(width);
        let mut text = self.title_lines(width);
        let headings: Vec<_> = self.columns.iter().map(|column| column.heading.clone()).collect();
        if headings.iter().any(|heading| !heading.is_empty()) {
            self.line(&mut text, &headings, &widths);
        }
        for row in &self.rows {
            self.line(&mut text, row, &widths);
        }
        for note in &self.notes {
            text.push_str(&wrapped(note, width));
        }
        text
    }

    /// The title. Lines after the first are indented, so that a reader does not take them for another title.
    fn title_lines(&self, width: usize) -> String {
        if self.title.chars().count() <= width {
            return format!("{}\n", self.title);
        }
        let text = wrapped(&self.title, width);
        text.strip_prefix(GAP).unwrap_or(&text).to_owned()
    }

    /// Appends a row, with as many lines as its longest cell needs.
    fn line(&self, text: &mut String, cells: &[String], widths: &[usize]) {
        let cells: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| lines(cell, *width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        for index in 0..height {
            let mut line = String::new();
            for ((cell, column), width) in cells.iter().zip(&self.columns).zip(widths) {
                let part = cell.get(index).map_or("", String::as_str);
                line.push_str(GAP);
                // Writing to a string cannot fail.
                let _ = match column.align {
                    Align::Left => write!(line, "{part:<width$}"),
                    Align::Right => write!(line, "{part:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }

    /// Widths of the columns; the widest column of text is narrowed if all together are too wide.
    fn widths(&self, limit: usize) -> Vec<usize> {
        let cells = |index: usize| self.rows.iter().map(move |row| row[index].chars().count());
        let width = |(index, column): (usize, &Column)| {
            cells(index).chain([column.heading.chars().count()]).max().unwrap_or_default()
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(width).collect();
        let total: usize = widths.iter().map(|width| width + GAP.len()).sum();
        // Numbers are never narrowed: a number in two lines would be misread.
        let words = (0..widths.len()).filter(|index| self.columns[*index].align == Align::Left);
        if let (true, Some(widest)) = (total > limit, words.max_by_key(|index| widths[*index])) {
            widths[widest] = widths[widest].saturating_sub(total - limit).max(8);
        }
        widths
    }

    /// Markdown: a table below a heading of level 3.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| {
            // A bar would begin another cell.
            let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = format!("### {}\n\n", self.title);
        let headings: Vec<_> = self.columns.iter().map(|column| column.heading.clone()).collect();
        text.push_str(&line(&headings));
        text.push('|');
        for column in &self.columns {
            text.push_str(if column.align == Align::Left { "---|" } else { "---:|" });
        }
        text.push('\n');
        text.extend(self.rows.iter().map(|row| line(row)));
        text.extend(self.notes.iter().map(|note| format!("\n{note}\n")));
        text
    }

    /// HTML: a `<section>` of a page.
    pub fn to_html(&self) -> String {
        let class = |align| if align == Align::Left { "" } else { " class=\"n\"" };
        let row = |tag: &str, cells: &mut dyn Iterator<Item = &String>| {
            let cells = cells.zip(&self.columns);
            let cells =
                cells.map(|(cell, column)| format!("<{tag}{}>{}</{tag}>", class(column.align), escape(cell)));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let mut html =
            format!("<section>\n<h2>{}</h2>\n<div class=\"wide\"><table>\n<thead>", escape(&self.title));
        html.push_str(&row("th", &mut self.columns.iter().map(|column| &column.heading)));
        html.push_str("</thead>\n<tbody>\n");
        html.extend(self.rows.iter().map(|cells| row("td", &mut cells.iter())));
        html.push_str("</tbody>\n</table></div>\n");
        html.extend(self.notes.iter().map(|note| format!("<p class=\"note\">{}</p>\n", escape(note))));
        html.push_str("</section>\n");
        html
    }
}

/// `text` in lines of at most `width` characters, each indented by two spaces and ended by a line break.
pub fn wrapped(text: &str, width: usize) -> String {
    let lines = lines(text, width.saturating_sub(GAP.len()));
    lines.iter().flat_map(|line| [GAP, line, "\n"]).collect()
}

/// Splits text into lines of at most `width` characters, at least one; longer words are split, behind an underscore if they have
/// one.
fn lines(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + rest.len() > width {
            lines.push(String::new());
        }
        while rest.len() > width {
            // Names of suites remain readable.
            let end = rest[..width.max(1)]
                .iter()
                .rposition(|letter| *letter == '_')
                .map_or(width.max(1), |at| at + 1);
            let after = rest.split_off(end);
            lines.last_mut().expect("there is one").extend(rest);
            lines.push(String::new());
            rest = after;
        }
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = Table::new("Latency, µs").text("step").figures(["p50", "p99"]).text("what");
        table.row(["connect", "45", "1,200", "a"]);
        table.row(["tls", "1,234", "9", "a rather long description | with a bar"]);
        table.note("A note.");
        table
    }

    #[test]
    fn a_long_title_is_wrapped() {
        let table = Table::new("Core 1 of a processor with a long name, 2 cores, and a system").text("step");
        let expected = "\
Core 1 of a processor with a
  long name, 2 cores, and a
  system
  step
";
        assert_eq!(table.to_text(30), expected);
    }

    #[test]
    fn text_is_aligned() {
        let expected = "\
Latency, µs
  step       p50    p99  what
  connect     45  1,200  a
  tls      1,234      9  a rather long description | with a bar
  A note.
";
        assert_eq!(example().to_text(100), expected);
    }

    #[test]
    fn names_are_split_behind_an_underscore() {
        assert_eq!(lines("TLS_ECDHE_RSA_WITH_AES_256_GCM", 20), ["TLS_ECDHE_RSA_WITH_", "AES_256_GCM"]);
        assert_eq!(lines("abcdefgh", 5), ["abcde", "fgh"]);
    }

    #[test]
    fn the_widest_words_give_way_when_a_line_is_too_long() {
        let text = example().to_text(50);
        let expected =
            "  tls      1,234      9  a rather long description\n                         | with a bar\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
    }

    #[test]
    fn notes_are_wrapped() {
        assert_eq!(wrapped("one two three", 10), "  one two\n  three\n");
        assert_eq!(lines("one morethanten two", 6), ["one", "moreth", "anten", "two"]);
    }

    #[test]
    fn a_table_without_headings_has_no_heading_line() {
        let mut table = Table::new("Run").text("").figure("");
        table.row(["time", "1 s"]);
        assert_eq!(table.to_text(80), "Run\n  time  1 s\n");
    }

    #[test]
    fn markdown_escapes_what_it_is_made_of() {
        let markdown = example().to_markdown();
        assert!(
            markdown.starts_with("### Latency, µs\n\n| step | p50 | p99 | what |\n|---|---:|---:|---|\n")
        );
        assert!(markdown.contains("description \\| with"), "{markdown}");
        assert!(markdown.ends_with("\n\nA note.\n"), "{markdown}");
    }

    #[test]
    fn html_escapes_what_it_is_made_of() {
        let mut table = Table::new("a < b").text("x");
        table.row(["<script>\"&"]);
        let html = table.to_html();
        assert!(html.contains("<h2>a &lt; b</h2>"), "{html}");
        assert!(html.contains("<td>&lt;script&gt;&quot;&amp;</td>"), "{html}");
    }
}
