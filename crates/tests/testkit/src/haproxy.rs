//! HAProxy with any configuration, in a temporary folder on a free port.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::ca::Leaf;
use crate::process::{Process, command, serve_on_free_port};

/// A running HAProxy. In its configuration, `PORT` stands for its port, and `FOLDER` for its folder.
#[derive(Debug)]
pub struct Haproxy {
    process: Process,
    address: SocketAddr,
    /// Folder of the configuration and of the certificate.
    _folder: TempDir,
}

impl Haproxy {
    /// Starts HAProxy with this configuration.
    pub fn start(configuration: &str) -> Self {
        Self::with_files(&[], configuration)
    }

    /// Starts HAProxy; `FOLDER/pair.pem` contains the chain and the key of `leaf`.
    pub fn with_certificate(leaf: &Leaf, configuration: &str) -> Self {
        Self::with_files(&[("pair.pem", pair(leaf))], configuration)
    }

    /// Like [`with_certificate`](Self::with_certificate); `FOLDER/clients.pem` contains the authorities of clients'
    /// certificates.
    pub fn with_clients(leaf: &Leaf, clients: &str, configuration: &str) -> Self {
        Self::with_files(&[("pair.pem", pair(leaf)), ("clients.pem", clients.to_owned())], configuration)
    }

    fn with_files(files: &[(&str, String)], configuration: &str) -> Self {
        let folder = TempDir::with_prefix("brisk-test-haproxy-").expect("a temporary folder");
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::write(&file, text).expect("a temporary file");
            file
        };
        for (name, text) in files {
            write(name, text);
        }
        let (process, address) = serve_on_free_port(|port| {
            let path = folder.path().display().to_string();
            let text = configuration.replace("PORT", &port.to_string()).replace("FOLDER", &path);
            let mut haproxy = command("haproxy");
            // `-db` keeps one process in the foreground, which ends when it is killed.
            haproxy.arg("-db").arg("-f").arg(write("haproxy.cfg", &text));
            haproxy
        });
        Self { process, address, _folder: folder }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// Chain and key of a certificate in one text.
fn pair(leaf: &Leaf) -> String {
    let read = |path| fs::read_to_string(path).expect("a PEM file");
    read(&leaf.chain) + &read(&leaf.key)
}
