//! Writes connection secrets for debugging, if `TlsSettings::key_log` is set.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::{env, fmt};

use rustls::KeyLog;

use crate::TlsError;

/// Appends lines in the NSS key log format, which Wireshark reads, to one file.
pub(crate) struct KeyLogFile {
    file: Mutex<File>,
}

impl KeyLogFile {
    /// Opens the file named by `SSLKEYLOGFILE`; a new file has mode 0600.
    pub(crate) fn from_environment() -> Result<Self, TlsError> {
        let path = env::var_os("SSLKEYLOGFILE").ok_or(TlsError::KeyLogUnnamed)?;
        let path = Path::new(&path);
        // For the owner only: with these secrets, recorded connections can be decrypted.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        match file {
            Ok(file) => Ok(Self { file: Mutex::new(file) }),
            Err(source) => Err(TlsError::KeyLog { path: path.to_owned(), source }),
        }
    }

    fn write(&self, label: &str, client_random: &[u8], secret: &[u8]) -> io::Result<()> {
        let mut line = Vec::with_capacity(label.len() + 2 * (client_random.len() + secret.len()) + 3);
        write!(line, "{label} ")?;
        for byte in client_random {
            write!(line, "{byte:02x}")?;
        }
        line.push(b' ');
        for byte in secret {
            write!(line, "{byte:02x}")?;
        }
        line.push(b'\n');
        let mut file = self.file.lock().map_err(|_| io::Error::other("a writer panicked"))?;
        // The whole line at once: other processes may append to the same file.
        file.write_all(&line)
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if let Err(error) = self.write(label, client_random, secret) {
            tracing::warn!(%error, "cannot write to the TLS key log");
        }
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLogFile").finish_non_exhaustive()
    }
}
