//! PHP-FPM with one pool, which executes scripts for FastCGI.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::{Process, command};

/// Running PHP-FPM on a Unix socket.
#[derive(Debug)]
pub struct PhpFpm {
    process: Process,
    folder: TempDir,
}

impl PhpFpm {
    /// Starts a pool of `children` processes with further `settings`, such as `php_admin_value[log_errors] = on`.
    pub fn start(children: usize, settings: &str) -> Self {
        let folder = TempDir::with_prefix("brisk-test-php-").expect("a temporary folder");
        let process = run(folder.path(), children, settings);
        Self { process, folder }
    }

    /// Path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("php.sock")
    }

    /// The server as it is written in a configuration.
    pub fn url(&self) -> String {
        format!("fastcgi+unix:{}", self.socket().display())
    }

    /// Ends all processes and starts them again on the same socket.
    pub fn restart(&mut self, children: usize, settings: &str) {
        // A kill would leave the children, which hold the socket.
        self.process.signal(rustix::process::Signal::TERM);
        self.process.wait();
        self.process = run(self.folder.path(), children, settings);
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // The first process ends its children, which would go on without it.
        self.process.signal(rustix::process::Signal::TERM);
        self.process.wait();
    }
}

fn run(folder: &Path, children: usize, settings: &str) -> Process {
    let socket = folder.join("php.sock");
    let file = folder.join("fpm.conf");
    let text = format!(
        "[global]\ndaemonize = no\nerror_log = /dev/stderr\n[www]\nlisten = {}\nlisten.mode = 0666\npm = static\n\
         pm.max_children = {children}\nping.path = /ping\nclear_env = no\nuser = root\ngroup = root\n\
         php_admin_flag[log_errors] = on\nphp_admin_value[session.save_path] = {}\n{settings}\n",
        socket.display(),
        folder.display(),
    );
    fs::write(&file, text).expect("a temporary file");
    let mut command = command("php-fpm8.2");
    command.arg("--nodaemonize").arg("--fpm-config").arg(&file);
    if rustix::process::getuid().is_root() {
        command.arg("--allow-to-run-as-root");
    }
    let mut process = Process::start(&mut command);
    process.await_socket(&socket);
    process
}
