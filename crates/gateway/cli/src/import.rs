//! `brisk import`: translates configurations of other servers.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use brisk_import::{Class, ImportError, Imported, Report};

use crate::args::{Import, ImportCommand, ImportFile};
use crate::trial;

/// Runs `brisk import`.
pub(crate) fn run(arguments: &Import) -> Result<()> {
    match &arguments.command {
        ImportCommand::Nginx(arguments) => {
            let common = &arguments.common;
            // The check alone needs no output.
            if !arguments.check || common.output.is_some() || common.report.is_some() {
                translate("nginx", common, brisk_import::nginx)?;
            }
            if arguments.check { trial::run(&common.file) } else { Ok(()) }
        }
        ImportCommand::Haproxy(arguments) => translate("HAProxy", arguments, brisk_import::haproxy),
        ImportCommand::Caddy(arguments) => translate("Caddy", arguments, brisk_import::caddy),
    }
}

fn translate(
    server: &str,
    arguments: &ImportFile,
    read: impl Fn(&Path) -> Result<Imported, ImportError>,
) -> Result<()> {
    // Files that the result names keep their meaning if it is moved.
    let Imported { files, report } = read(&std::path::absolute(&arguments.file)?)?;
    // The report is on standard error, so that standard output is a configuration.
    if let Some(output) = &arguments.output {
        for (index, text) in files.iter().enumerate() {
            let path = numbered(output, index + 1);
            write(&path, text, arguments.force)?;
            println!("{}", path.display());
        }
    } else {
        io::stdout().write_all(files.join("\n# ---\n\n").as_bytes())?;
    }
    // After the output: without an output it must not be there.
    if let Some(path) = &arguments.report {
        write(path, &report.to_string(), arguments.force)?;
    }
    eprint!("{}", summary(&report));
    let open = report.open();
    // An error although the files are written: a script must not use a result that permits more than the input.
    if !open.is_empty() {
        bail!(
            "{server} refuses requests that the result serves, because of {}: write routes with `respond` or `deny` for them before use",
            open.join(", ")
        );
    }
    Ok(())
}

/// `brisk.toml`, `brisk-2.toml` and so on.
fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}-{number}.toml"))
}

fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    // A configuration that the operator has edited must not be lost to a second import.
    let opened = if force { File::create(path) } else { File::create_new(path) };
    match opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{} exists: choose another name, or add --force", path.display())
        }
        Err(error) => bail!("{}: {error}", path.display()),
    }
}

/// The counts, and the directives that are not the same in brisk.
fn summary(report: &Report) -> String {
    let [unneeded, carried, different, missing] = report.counts();
    let mut text = format!(
        "{carried} directives carried over, {unneeded} not needed, {different} with a difference, {missing} NOT carried\n"
    );
    for entry in report.entries() {
        let detail = match entry.class {
            Class::Carried | Class::NotNeeded(_) => continue,
            Class::Difference(detail) => detail,
            Class::NotCarried { reason, action } => format!("NOT CARRIED: {reason}; {action}"),
        };
        text.extend([entry.place.as_str(), ": ", &entry.text, "\n    ", &detail, "\n"]);
    }
    text
}
