//! Envoy with any configuration, in a temporary folder on a free port. It is optional: some machines have none.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::ca::Leaf;
use crate::process::{Process, optional_command, serve_on_free_port};

/// A running Envoy with one thread. In its configuration, `PORT` stands for its port.
#[derive(Debug)]
pub struct Envoy {
    /// Ends Envoy when dropped.
    _process: Process,
    address: SocketAddr,
    /// Folder of the configuration.
    _folder: TempDir,
}

impl Envoy {
    /// Starts Envoy with this configuration; `None` if it is not installed, so that the test is to be skipped.
    pub fn start(configuration: &str) -> Option<Self> {
        optional_command("envoy")?;
        let folder = TempDir::with_prefix("brisk-test-envoy-").expect("a temporary folder");
        let (process, address) = serve_on_free_port(|port| {
            let file = folder.path().join("envoy.yaml");
            fs::write(&file, configuration.replace("PORT", &port.to_string())).expect("a temporary file");
            let mut envoy = optional_command("envoy").expect("a program");
            // Envoys with one base ID share memory, and tests run several at a time.
            envoy.arg("-c").arg(file).args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "error"]);
            envoy
        });
        Some(Self { _process: process, address, _folder: folder })
    }

    /// Like [`start`](Self::start); `CHAIN` and `KEY` stand for the files of `leaf`.
    pub fn with_certificate(leaf: &Leaf, configuration: &str) -> Option<Self> {
        let [chain, key] = [&leaf.chain, &leaf.key].map(|path| path.display().to_string());
        Self::start(&configuration.replace("CHAIN", &chain).replace("KEY", &key))
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
