//! Caddy with any Caddyfile, in a temporary folder on a free port. It is optional: some machines have none.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::process::{Process, optional_command, serve_on_free_port};

/// A running Caddy. In its configuration, `PORT` stands for its port.
#[derive(Debug)]
pub struct Caddy {
    /// Ends Caddy when dropped.
    _process: Process,
    address: SocketAddr,
    /// Folder of the configuration and of the data.
    _folder: TempDir,
}

impl Caddy {
    /// Starts Caddy with this Caddyfile; `None` if it is not installed, so that the test is to be skipped.
    pub fn start(configuration: &str) -> Option<Self> {
        optional_command("caddy")?;
        let folder = TempDir::with_prefix("brisk-test-caddy-").expect("a temporary folder");
        let (process, address) = serve_on_free_port(|port| {
            let file = folder.path().join("Caddyfile");
            fs::write(&file, configuration.replace("PORT", &port.to_string())).expect("a temporary file");
            let mut caddy = optional_command("caddy").expect("a program");
            caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
            caddy
                .env("HOME", folder.path())
                .env("XDG_DATA_HOME", folder.path())
                .env("XDG_CONFIG_HOME", folder.path());
            caddy
        });
        Some(Self { _process: process, address, _folder: folder })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
