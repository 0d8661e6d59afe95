//! `[access_log]` and its outputs.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_logs::{
    AccessLogFormat, AccessLogSettings, AccessLogTarget, AppName, Facility, JournalSettings, LogFilter,
    LogTemplate, Sample, Severity, SyslogSettings,
};

use super::context::Context;
use crate::raw;
use crate::values::LogFile;

/// Maximum number of outputs: each has a thread, and 1 MiB of lines for each worker.
const MOST_OUTPUTS: usize = AccessLogSettings::MOST;

/// Socket of journald.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Length of syslog messages: that which rsyslog accepts by default, and the limits. The smallest one has room for the header.
const MESSAGE: u64 = 8 << 10;
const SMALLEST: u64 = 1 << 10;
const LARGEST: u64 = 64_000;

/// The outputs of the access log; none if it is off.
pub(super) fn access_log(raw: &raw::AccessLog, context: &mut Context<'_>) -> Vec<AccessLogSettings> {
    let path = KeyPath::of("access_log");
    // For all outputs: `--access-log off` of the command line must silence the file's outputs too.
    if matches!(raw.format, Some(raw::LogFormat::Named(raw::AccessLogFormat::Off))) {
        return Vec::new();
    }
    if raw.output.is_empty() {
        let single = raw::LogOutput {
            file: raw.file.clone().or(Some(LogFile::Stdout)),
            format: raw.format.clone(),
            sample: raw.sample,
            milestones: raw.milestones,
            ..raw::LogOutput::default()
        };
        return output(&single, &path, context).into_iter().collect();
    }
    if raw.file.is_some() {
        // Format, sample and milestones are defaults of the outputs. A file is none: outputs must not mix
        // their lines in it.
        let message = "has no effect beside [[access_log.output]]: write the file as one of the outputs";
        context.shared.findings.wrong(&path.key("file"), message);
    }
    if raw.output.len() > MOST_OUTPUTS {
        let message = format!("more than {MOST_OUTPUTS} outputs: each has a thread and buffers of its own");
        context.shared.findings.incomplete(&path.key("output").index(MOST_OUTPUTS), message);
    }
    let outputs = raw.output.iter().enumerate().filter_map(|(index, own)| {
        let inherited = raw::LogOutput {
            format: own.format.clone().or_else(|| raw.format.clone()),
            sample: own.sample.or(raw.sample),
            milestones: own.milestones.or(raw.milestones),
            ..own.clone()
        };
        output(&inherited, &path.key("output").index(index), context)
    });
    outputs.collect()
}

/// The output at `path`; `None` if it is off or wrong.
fn output(raw: &raw::LogOutput, path: &KeyPath, context: &mut Context<'_>) -> Option<AccessLogSettings> {
    let format = match raw.format.as_ref().unwrap_or(&raw::LogFormat::Named(raw::AccessLogFormat::Text)) {
        raw::LogFormat::Named(raw::AccessLogFormat::Off) => return None,
        raw::LogFormat::Named(raw::AccessLogFormat::Text) => AccessLogFormat::Text,
        raw::LogFormat::Named(raw::AccessLogFormat::Json) => AccessLogFormat::Json,
        raw::LogFormat::Template(text) => {
            if raw.milestones == Some(true) {
                let message = "has no effect with a template, which has no variable for them";
                context.shared.findings.wrong(&path.key("milestones"), message);
            }
            let template = LogTemplate::new(text);
            let template = template
                .map_err(|reason| context.shared.findings.wrong(&path.key("format").key("template"), reason));
            let template = template.ok()?;
            needs_fingerprints(template.fingerprints(), context);
            AccessLogFormat::Template(Arc::new(template))
        }
    };
    let only_listed = raw.only_listed == Some(true);
    if only_listed && raw.name.is_none() {
        let message = "no list can have an output without a name: write name = \"NAME\", and access_log = [\"NAME\"] for a host";
        context.shared.findings.wrong(&path.key("only_listed"), message);
    }
    let sample = share(raw.sample, path, context);
    let filter = filter(raw, path, context);
    let target = target(raw, path, context)?;
    let (name, has_milestones) = (raw.name.clone().map(Box::from), raw.milestones.unwrap_or(false));
    Some(AccessLogSettings { format, target, sample, has_milestones, name, only_listed, filter })
}

/// `only` or `except`.
fn filter(raw: &raw::LogOutput, path: &KeyPath, context: &mut Context<'_>) -> Option<LogFilter> {
    let (key, test) = match (&raw.only, &raw.except) {
        (Some(_), Some(_)) => {
            let message = "`only` and `except` exclude each other: write one of them";
            context.shared.findings.wrong(&path.key("except"), message);
            return None;
        }
        (Some(test), None) => ("only", test),
        (None, Some(test)) => ("except", test),
        (None, None) => return None,
    };
    let filter = LogFilter::new(&test.value, &test.regex, key == "except");
    let filter = filter.map_err(|reason| context.shared.findings.wrong(&path.key(key), reason)).ok()?;
    needs_fingerprints(filter.fingerprints(), context);
    Some(filter)
}

/// Has JA4 and fingerprints of certificates computed, which cost each connection a hash, only if a text of the log has them.
fn needs_fingerprints((ja4, certificates): (bool, bool), context: &mut Context<'_>) {
    let fingerprints = &mut context.shared.fingerprints;
    *fingerprints = (fingerprints.0 || ja4, fingerprints.1 || certificates);
}

/// The share in the key `sample`; `None`: all.
pub(super) fn share(written: Option<f64>, path: &KeyPath, context: &mut Context<'_>) -> Option<Sample> {
    let share = written?;
    let sample = Sample::new(share);
    if sample.is_none() {
        let message =
            format!("{share} is no share of requests: write a number above 0 and at most 1, as 0.01");
        context.shared.findings.wrong(&path.key("sample"), message);
    }
    sample
}

fn target(raw: &raw::LogOutput, path: &KeyPath, context: &mut Context<'_>) -> Option<AccessLogTarget> {
    match (&raw.file, &raw.syslog, &raw.journal) {
        (Some(LogFile::Stdout), None, None) => Some(AccessLogTarget::Stdout),
        (Some(LogFile::Stderr), None, None) => Some(AccessLogTarget::Stderr),
        (Some(LogFile::Path(file)), None, None) => {
            Some(AccessLogTarget::File(log_file(&context.shared.base.join(file), &path.key("file"), context)))
        }
        (None, Some(syslog), None) => self::syslog(syslog, &path.key("syslog"), context),
        (None, None, Some(journal)) => self::journal(journal, &path.key("journal"), context),
        _ => {
            context.shared.findings.incomplete(path, "needs exactly one of file, syslog and journal");
            None
        }
    }
}

fn syslog(raw: &raw::Syslog, path: &KeyPath, context: &mut Context<'_>) -> Option<AccessLogTarget> {
    let size = raw.max_size.map(|size| size.0);
    let max_size =
        context.shared.findings.within(&path.key("max_size"), size, MESSAGE, &(SMALLEST..=LARGEST));
    // All are read before the first `?`, so that one run reports every wrong key.
    let server = read(Some(&raw.server), path, "server", context);
    let origin = origin([&raw.facility, &raw.severity, &raw.app_name], path, context);
    let structured_data = read(raw.structured_data.as_deref(), path, "structured_data", context);
    let (facility, severity, app_name) = origin?;
    Some(AccessLogTarget::Syslog(SyslogSettings {
        server: server?,
        facility,
        severity,
        app_name,
        structured_data,
        max_size: usize::try_from(max_size).ok()?,
    }))
}

fn journal(raw: &raw::Journal, path: &KeyPath, context: &mut Context<'_>) -> Option<AccessLogTarget> {
    let (facility, severity, app_name) =
        origin([&raw.facility, &raw.severity, &raw.app_name], path, context)?;
    Some(AccessLogTarget::Journal(JournalSettings {
        socket: context.shared.base.join(raw.socket.as_deref().unwrap_or(Path::new(JOURNAL))),
        facility,
        severity,
        app_name,
    }))
}

/// Facility, severity and name of the program; reports each that is wrong.
fn origin(
    [facility, severity, app_name]: [&Option<String>; 3],
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<(Facility, Severity, AppName)> {
    let facility = read(facility.as_deref().or(Some("local7")), path, "facility", context);
    let severity = read(severity.as_deref().or(Some("info")), path, "severity", context);
    let app_name = read(app_name.as_deref().or(Some("brisk")), path, "app_name", context);
    Some((facility?, severity?, app_name?))
}

/// Reads a value; reports one that is wrong.
fn read<T: FromStr<Err = String>>(
    text: Option<&str>,
    path: &KeyPath,
    key: &str,
    context: &mut Context<'_>,
) -> Option<T> {
    text?.parse().map_err(|reason: String| context.shared.findings.wrong(&path.key(key), reason)).ok()
}

/// The file may be missing, its folder may not.
fn log_file(file: &Path, path: &KeyPath, context: &mut Context<'_>) -> PathBuf {
    if file.is_dir() {
        context
            .shared
            .findings
            .wrong(path, format!("{} is a folder: write the name of a file", file.display()));
    } else if let Some(folder) =
        file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
    {
        context.shared.findings.wrong(path, format!("the folder {} does not exist", folder.display()));
    }
    file.to_owned()
}
