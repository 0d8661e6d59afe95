//! Text output of the findings.

use std::fmt::Write as _;

use brisk_report::Table;
use brisk_report::figures::bytes;

use super::model::Findings;

/// The width of a line at most.
const WIDTH: usize = 100;

impl Findings {
    /// A table of the origins, and the lines for the configuration.
    pub fn text(&self) -> String {
        text(self)
    }
}

fn text(findings: &Findings) -> String {
    let times = match findings.rtt_ms {
        Some(rtt) => format!("at {rtt:.0} ms round trip time"),
        None => "as recorded; --rtt 100ms for other visitors".to_owned(),
    };
    let title = format!("{}: loaded after {:.0} ms, {times}", findings.page, findings.loaded_ms);
    let mut table = Table::new(title).text("origin").figures([
        "requests",
        "connections",
        "bytes",
        "round trips",
        "saves, ms",
    ]);
    for (index, origin) in findings.origins.iter().enumerate() {
        let saved = if index == 0 { String::new() } else { format!("{:.0}", origin.saved_ms) };
        table.row([
            origin.origin.clone(),
            origin.requests.to_string(),
            origin.connections.to_string(),
            bytes(origin.bytes as f64),
            origin.round_trips.to_string(),
            saved,
        ]);
    }
    table.note(format!(
        "All other origins together: {:.0} ms, {:.0} instead of {:.0}.",
        findings.saved_ms, findings.loaded_consolidated_ms, findings.loaded_ms
    ));
    table.note(
        "Round trips are those of lookups (where one was not cached), TCP and TLS 1.3. They save time only as far as the page \
         waited for them: most save none.",
    );
    if findings.without_network > 0 {
        table.note(format!(
            "Requests that went over no network, or not over HTTP, and are not counted: {}.",
            findings.without_network
        ));
    }
    if let Some(fault) = &findings.first_fault {
        table
            .note(format!("Entries that cannot be read and are not counted: {}. {fault}.", findings.skipped));
    }
    if findings.other_pages > 0 {
        table.note(format!("The first page is looked at; others in the file: {}.", findings.other_pages));
    }
    let mut output = table.to_text(WIDTH);
    if findings.toml.is_empty() {
        output.push_str("\nNo other origin made the page wait: there is nothing to consolidate.\n");
    } else {
        output.push_str(
            "\n# Keep those that are yours or that you trust as your own pages: they become a part of this host.\n",
        );
        // Writing to a string cannot fail.
        let _ = write!(output, "{}", findings.toml);
    }
    output
}
