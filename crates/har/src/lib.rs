//! `brisk check --har`: which origins a recorded page asks, and what it would save to serve them from the page's own.

mod document;
mod model;
mod output;

use std::path::Path;
use std::time::Duration;

/// Prints what was found.
pub(crate) fn run(file: &Path, rtt: Option<Duration>, as_json: bool) -> anyhow::Result<()> {
    let page = document::read(file)?;
    let findings =
        model::Findings::of(&page, rtt).map_err(|why| anyhow::anyhow!("{}: {why}", file.display()))?;
    if as_json {
        print!("{}", brisk_report::json::document(&findings));
    } else {
        print!("{}", output::text(&findings));
    }
    Ok(())
}
