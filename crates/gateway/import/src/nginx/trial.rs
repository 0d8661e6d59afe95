//! Trial of a translation (`--check`): a configuration for nginx and its translation on spare ports, with one certificate, with
//! upstreams that only record requests, and the requests for a comparison.

mod dropped;
mod requests;
mod restated;
mod sample;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::ImportError;
use crate::nginx::include::Files;
use crate::nginx::translate;
pub use requests::TrialRequest;
use restated::Restated;

/// Files for both servers.
#[derive(Clone, Debug)]
pub struct Stand {
    /// Folder for temporary files.
    pub folder: PathBuf,
    /// Certificate chain in place of each `ssl_certificate`, PEM.
    pub chain: PathBuf,
    /// Its key, in place of each `ssl_certificate_key`, PEM.
    pub key: PathBuf,
    /// Folder of the configuration, where relative names in `root`, `alias` and `include` start.
    pub source: PathBuf,
}

impl Stand {
    /// The file `mime.types` that the configuration or the package of nginx has.
    fn media_types(&self, name: &str) -> Option<PathBuf> {
        let files = [self.source.join(name), PathBuf::from("/etc/nginx/mime.types")];
        files.into_iter().find(|file| file.is_file())
    }
}

/// An address of `listen`, with a port of 127.0.0.1 for each server in place of it.
#[derive(Clone, Debug)]
pub struct TrialListener {
    /// The address, such as `0.0.0.0:443`.
    pub address: String,
    /// The port of nginx.
    pub nginx: u16,
    /// The port of brisk.
    pub brisk: u16,
    /// Whether connections have TLS (`listen ... ssl`).
    pub has_tls: bool,
}

/// Two configurations that should have the same effect, and requests that show it.
#[derive(Debug)]
pub struct Trial {
    /// The configuration for nginx: `nginx.conf`.
    pub nginx: String,
    /// The configurations for brisk, one for each process of `brisk serve`.
    pub brisk: Vec<String>,
    /// The addresses.
    pub listeners: Vec<TrialListener>,
    /// Addresses of `proxy_pass` and names of `upstream`, with the port at which their requests are recorded.
    pub upstreams: BTreeMap<String, u16>,
    /// Headers of `proxy_set_header`, in lower case.
    pub forwarded: Vec<String>,
    /// The requests, from `server_name`, `location`, `if` and `map`.
    pub requests: Vec<TrialRequest>,
}

/// Prepares a trial of the translation of `path`. `port` returns a spare port of 127.0.0.1. Reads files only.
///
/// # Errors
///
/// Those of [`nginx`](crate::nginx), and the error of `port`.
pub fn nginx_trial(
    path: &Path,
    stand: &Stand,
    port: &mut dyn FnMut() -> io::Result<u16>,
) -> Result<Trial, ImportError> {
    let (all, files) = Files::read(path)?;
    let unreadable = |error| ImportError::Unreadable { file: path.to_owned(), error };
    let restated = Restated::of(&all, stand, port).map_err(unreadable)?;
    let imported = translate(&restated.lines, &files, path);
    if imported.files.is_empty() {
        return Err(ImportError::Empty { file: path.to_owned() });
    }
    Ok(Trial {
        nginx: restated.nginx(stand),
        brisk: imported.files.iter().map(|text| restated.brisk(text)).collect(),
        requests: requests::of(&restated),
        forwarded: restated.forwarded(),
        listeners: restated.listeners,
        upstreams: restated.upstreams,
    })
}
