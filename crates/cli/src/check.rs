//! `brisk check`: reads a configuration as `brisk serve` does, and starts nothing.

use brisk_config::Running;

use crate::args::Check;
use crate::summary;

/// Prints the warnings and the confirmation that the file is valid, or the report about a recording (HAR). Returns the
/// errors of the file.
pub(crate) fn run(arguments: &Check) -> anyhow::Result<()> {
    if let Some(recording) = &arguments.har {
        let findings = brisk_har::analyse(recording, arguments.rtt)?;
        let text = if arguments.json { brisk_report::json::document(&findings) } else { findings.text() };
        print!("{text}");
        return Ok(());
    }
    let Some(file) = &arguments.file else { anyhow::bail!("name a configuration file") };
    let resolved = brisk_config::check(file, &Running::default())?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    for line in summary::certificates(&resolved.settings) {
        println!("{line}");
    }
    println!("{}: ok", file.display());
    Ok(())
}
