//! `[access_log]`.

use std::path::{Path, PathBuf};

use brisk_config_file::KeyPath;
use brisk_telemetry::access_log::{AccessLogFormat, AccessLogSettings, AccessLogTarget};

use super::context::Context;
use crate::raw;
use crate::values::LogFile;

/// Format and target of the access log; `None` if it is off.
pub(super) fn access_log(raw: &raw::AccessLog, context: &mut Context<'_>) -> Option<AccessLogSettings> {
    let format = match raw.format.unwrap_or(raw::AccessLogFormat::Text) {
        raw::AccessLogFormat::Off => return None,
        raw::AccessLogFormat::Text => AccessLogFormat::Text,
        raw::AccessLogFormat::Json => AccessLogFormat::Json,
    };
    let target = match raw.file.as_ref().unwrap_or(&LogFile::Stdout) {
        LogFile::Stdout => AccessLogTarget::Stdout,
        LogFile::Stderr => AccessLogTarget::Stderr,
        LogFile::Path(file) => AccessLogTarget::File(log_file(&context.base.join(file), context)),
    };
    Some(AccessLogSettings { format, target, has_milestones: raw.milestones.unwrap_or(false) })
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
