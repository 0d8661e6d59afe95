//! `brisk check`: reads a configuration as `brisk serve` would, and starts nothing.

use crate::args::Check;
use crate::process::ThisProcess;
use crate::{har, summary};

/// Prints the warnings, and that the file is valid. Its errors are returned.
pub(crate) fn run(arguments: &Check) -> anyhow::Result<()> {
    if let Some(recording) = &arguments.har {
        return har::run(recording, arguments.rtt, arguments.json);
    }
    let Some(file) = &arguments.file else { anyhow::bail!("name a configuration file") };
    let resolved = brisk_config::check(file, &ThisProcess)?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    for line in summary::certificates(&resolved.settings) {
        println!("{line}");
    }
    println!("{}: ok", file.display());
    Ok(())
}
