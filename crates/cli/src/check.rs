//! `brisk check`: reads a configuration as `brisk serve` would, and starts nothing.

use crate::args::Check;
use crate::{config, summary};

/// Prints the warnings, and that the file is valid. Its errors are returned.
pub(crate) fn run(arguments: &Check) -> anyhow::Result<()> {
    let resolved = config::check(&arguments.file)?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    for line in summary::certificates(&resolved.settings) {
        println!("{line}");
    }
    println!("{}: ok", arguments.file.display());
    Ok(())
}
