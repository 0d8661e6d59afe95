//! Resolution of `cgi`.

use std::path::{Path, PathBuf};

use brisk_config_file::KeyPath;
use brisk_http::cgi::CgiProtocol;
use brisk_rules::{Maps, Template, Variable};

use super::{CgiSettings, Files, Param, ScriptKeys};
use crate::features::{Context, GroupScope};

/// Variables that only brisk sets: those of the body, which another value would contradict, and `HTTP_PROXY`, which programs take for
/// the proxy of their own requests (CVE-2016-5385).
const RESERVED: [&str; 3] = ["CONTENT_LENGTH", "HTTP_PROXY", "SCGI"];

/// Variables whose values are found with responses, or computed only for headers and routes.
const UNKNOWN: [Variable; 3] = [Variable::Upstream, Variable::Ja4, Variable::ClientFingerprint];

/// Resolves the keys of one group.
pub(super) fn settings(
    keys: &ScriptKeys,
    group: &GroupScope<'_>,
    context: &mut Context<'_, '_>,
) -> CgiSettings {
    let path = group.key("cgi");
    if group.cgi_protocol().is_none() {
        if context.findings.written(&path) {
            context.findings.wrong(
                &path,
                "has no effect: the servers speak HTTP; those of FastCGI are written as \"fastcgi://127.0.0.1:9000\" or \"fastcgi+unix:/run/php/php-fpm.sock\"",
            );
        }
        return CgiSettings::default();
    }
    let usual = CgiSettings::default();
    let params = params(keys, &path.key("params"), context);
    let streams_bodies = streams_bodies(keys, group, &path, context);
    let Some(root) = keys.root.as_deref() else {
        for key in ["files", "index", "script", "suffixes", "path_info"] {
            if context.findings.written(&path.key(key)) {
                context.findings.wrong(
                    &path.key(key),
                    "has no effect without `root`, the folder of the scripts: without it, one application gets all paths",
                );
            }
        }
        return CgiSettings { streams_bodies, params, ..usual };
    };
    if !root.starts_with('/') {
        let message = format!(
            "{root:?} is not a folder of the application server: write its whole path, as \"/srv/www\""
        );
        context.findings.wrong(&path.key("root"), message);
    }
    let script = |key: &str, written: &Option<String>, context: &mut Context<'_, '_>| {
        written.as_deref().and_then(|text| script(text, &path.key(key), context))
    };
    let suffixes = keys.suffixes.as_ref().map(|all| suffixes(all, &path.key("suffixes"), context));
    CgiSettings {
        root: Some(root.trim_end_matches('/').into()),
        files: files(keys, root, &path, context),
        index: script("index", &keys.index, context).unwrap_or(usual.index),
        suffixes: suffixes.unwrap_or(usual.suffixes),
        has_path_info: keys.path_info.unwrap_or(usual.has_path_info),
        script: script("script", &keys.script, context),
        streams_bodies,
        params,
    }
}

fn streams_bodies(
    keys: &ScriptKeys,
    group: &GroupScope<'_>,
    path: &KeyPath,
    context: &mut Context<'_, '_>,
) -> bool {
    let streams = keys.stream_bodies.unwrap_or(false);
    if streams && group.cgi_protocol() != Some(CgiProtocol::FastCgi) {
        let message = "is for FastCGI: uwsgi and SCGI state the length of a body before it";
        context.findings.wrong(&path.key("stream_bodies"), message);
    }
    streams
}

/// The folder in which scripts are looked up.
fn files(keys: &ScriptKeys, root: &str, path: &KeyPath, context: &mut Context<'_, '_>) -> Option<PathBuf> {
    let (folder, key) = match &keys.files {
        Some(Files::None) => return None,
        Some(Files::Folder(folder)) => (context.base.join(folder), "files"),
        None => (Path::new(root).to_owned(), "root"),
    };
    // A relative root has been reported already.
    if !folder.is_dir() && root.starts_with('/') {
        let message = format!(
            "there is no folder {} on this machine: if only the application server has it, write `files = \"none\"`, or in `files` where it is here",
            folder.display()
        );
        context.findings.wrong(&path.key(key), message);
    }
    Some(folder)
}

/// The path of a script below the root, without a slash at its begin.
fn script(text: &str, path: &KeyPath, context: &mut Context<'_, '_>) -> Option<Box<str>> {
    let name = text.strip_prefix('/').unwrap_or(text);
    // Dot segments would name a file outside of the root, which the application server would execute.
    let is_path = name.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    if !is_path || name.contains(['?', '%', '\\']) || name.bytes().any(|byte| byte.is_ascii_control()) {
        let message = format!("{text:?} is not a script below the root: write one as \"index.php\"");
        context.findings.wrong(path, message);
        return None;
    }
    Some(name.into())
}

fn suffixes(written: &[String], path: &KeyPath, context: &mut Context<'_, '_>) -> Vec<Box<str>> {
    for (index, suffix) in written.iter().enumerate() {
        let is_suffix = suffix.len() > 1 && suffix.starts_with('.') && !suffix.contains('/');
        if !is_suffix {
            let message = format!("{suffix:?} is not the end of a name: write one as \".php\"");
            context.findings.wrong(&path.index(index), message);
        }
    }
    written.iter().map(|suffix| suffix.as_str().into()).collect()
}

fn params(keys: &ScriptKeys, path: &KeyPath, context: &mut Context<'_, '_>) -> Vec<Param> {
    let mut params = Vec::new();
    for (name, text) in &keys.params {
        let path = path.key(name);
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_name = name.bytes().next().is_some_and(is_letter)
            && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit());
        if !is_name {
            let message =
                format!("{name:?} is not the name of a variable: write letters, digits and _, as APP_ENV");
            context.findings.wrong(&path, message);
        } else if RESERVED.contains(&name.as_str()) {
            context.findings.wrong(&path, format!("brisk alone sets or omits {name}: remove this line"));
        }
        match Template::new(text, &Maps::default()) {
            Ok(value) if UNKNOWN.iter().any(|variable| value.has(variable)) => {
                let message = "has a variable that is not known here: set it as a header in `request_headers`, which arrives as HTTP_NAME";
                context.findings.wrong(&path, message);
            }
            Ok(value) => params.push(Param { name: name.as_str().into(), text: text.as_str().into(), value }),
            Err(reason) => context.findings.wrong(&path, reason),
        }
    }
    params
}
