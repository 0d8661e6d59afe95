//! `[access_log]`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_telemetry::access_log::{AccessLogFormat, AccessLogSettings, AccessLogTarget, LogTemplate, Sample};

use super::context::Context;
use crate::raw;
use crate::values::LogFile;

/// Format and target of the access log; `None` if it is off.
pub(super) fn access_log(raw: &raw::AccessLog, context: &mut Context<'_>) -> Option<AccessLogSettings> {
    let path = KeyPath::of("access_log");
    let format = match raw.format.as_ref().unwrap_or(&raw::LogFormat::Named(raw::AccessLogFormat::Text)) {
        raw::LogFormat::Named(raw::AccessLogFormat::Off) => return None,
        raw::LogFormat::Named(raw::AccessLogFormat::Text) => AccessLogFormat::Text,
        raw::LogFormat::Named(raw::AccessLogFormat::Json) => AccessLogFormat::Json,
        raw::LogFormat::Template(text) => {
            if raw.milestones == Some(true) {
                let message = "has no effect with a template, which has no variable for them";
                context.findings.wrong(&path.key("milestones"), message);
            }
            let template = LogTemplate::new(text);
            let template = template
                .map_err(|reason| context.findings.wrong(&path.key("format").key("template"), reason));
            let template = template.ok()?;
            let (ja4, certificates) = template.fingerprints();
            context.fingerprints = (context.fingerprints.0 || ja4, context.fingerprints.1 || certificates);
            AccessLogFormat::Template(Arc::new(template))
        }
    };
    let sample = raw.sample.and_then(|share| {
        let sample = Sample::new(share);
        if sample.is_none() {
            let message =
                format!("{share} is no share of requests: write a number above 0 and at most 1, as 0.01");
            context.findings.wrong(&path.key("sample"), message);
        }
        sample
    });
    let target = match raw.file.as_ref().unwrap_or(&LogFile::Stdout) {
        LogFile::Stdout => AccessLogTarget::Stdout,
        LogFile::Stderr => AccessLogTarget::Stderr,
        LogFile::Path(file) => AccessLogTarget::File(log_file(&context.base.join(file), context)),
    };
    Some(AccessLogSettings { format, target, sample, has_milestones: raw.milestones.unwrap_or(false) })
}

/// The file may be missing, its folder may not.
fn log_file(file: &Path, context: &mut Context<'_>) -> PathBuf {
    let path = KeyPath::of("access_log").key("file");
    if file.is_dir() {
        context.findings.wrong(&path, format!("{} is a folder: write the name of a file", file.display()));
    } else if let Some(folder) =
        file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
    {
        context.findings.wrong(&path, format!("the folder {} does not exist", folder.display()));
    }
    file.to_owned()
}
