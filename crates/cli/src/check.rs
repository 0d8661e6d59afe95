//! `brisk check`: reads a configuration as `brisk serve` does, and starts nothing.

use crate::args::Check;
use crate::config;

/// Checks the file. Warnings go to standard error and do not make it wrong.
pub(crate) fn run(args: &Check) -> anyhow::Result<()> {
    let resolved = config::check(&args.file)?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    let settings = &resolved.settings;
    let (hosts, upstreams) = (settings.hosts.len(), settings.upstreams.len());
    println!("{}: right: {}, {}", args.file.display(), count(hosts, "host"), count(upstreams, "upstream"));
    Ok(())
}

fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
