//! `brisk check`: reads a configuration as `brisk serve` would, and starts nothing.

use crate::args::Check;
use crate::config;

/// Prints the warnings, and that the file is valid. Its errors are returned.
pub(crate) fn run(arguments: &Check) -> anyhow::Result<()> {
    let resolved = config::check(&arguments.file)?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    println!("{}: ok", arguments.file.display());
    Ok(())
}
