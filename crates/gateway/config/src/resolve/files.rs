//! Files with secrets: reading, and checks of their permissions.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brisk_certs::CertError;
use brisk_config_file::KeyPath;
use brisk_keys::encoding_fault;
use zeroize::Zeroizing;

use super::context::Context;

/// Reads a file with a secret in it; a warning if it is none on this machine.
pub(super) fn read_privately<T, E: Display>(
    file: &Path,
    path: &KeyPath,
    context: &mut Context<'_>,
    read: impl FnOnce(&Path) -> Result<T, E>,
) -> Option<T> {
    let value = read(file).map_err(|error| {
        let message = match start(file).and_then(|(bytes, length)| encoding_fault(&bytes[..length])) {
            Some(fault) => format!("{}: {fault}", file.display()),
            None => error.to_string(),
        };
        context.findings.wrong(path, message);
    });
    let value = value.ok()?;
    warn_of_access(file, context);
    Some(value)
}

/// The first bytes of a regular file, at most 16, and their number: enough to recognize its encoding. A pipe was read to its
/// end before, so opening it again would wait for another writer.
fn start(file: &Path) -> Option<(Zeroizing<[u8; 16]>, usize)> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let (mut start, mut length) = (Zeroizing::new([0; 16]), 0);
    let mut file = File::open(file).ok()?;
    while length < start.len() {
        match file.read(&mut start[length..]).ok()? {
            0 => break,
            read => length += read,
        }
    }
    Some((start, length))
}

/// Notes a file with a secret, and warns where others than the owner and the group may read a secret, or others than the owner may change it.
pub(super) fn warn_of_access(file: &Path, context: &mut Context<'_>) {
    context.secrets.push(file.to_owned());
    let mode = file.metadata().map_or(0, |metadata| metadata.permissions().mode());
    let file = file.display();
    if mode & 0o004 != 0 {
        let warning = format!("{file}: everyone on this machine may read it; `chmod o= {file}` ends that");
        context.findings.warn(warning);
    }
    if mode & 0o022 != 0 {
        let warning = format!("{file}: others than its owner may change it; `chmod go-w {file}` ends that");
        context.findings.warn(warning);
    }
}

/// The key of the file, certificate or private key, that caused `error`.
pub(super) fn blamed(error: &CertError, key: &Path) -> &'static str {
    match error {
        CertError::Read { path, .. } if path == key => "key",
        CertError::Key { .. } | CertError::KeyMismatch { .. } => "key",
        _ => "chain",
    }
}
