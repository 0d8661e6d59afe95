//! uWSGI with an application in Python, over the protocol uwsgi.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, command};

/// Running uWSGI on a Unix socket.
#[derive(Debug)]
pub struct Uwsgi {
    process: Process,
    folder: TempDir,
}

impl Uwsgi {
    /// Starts the WSGI application `application` of the text of a module.
    pub fn start(text: &str) -> Self {
        let folder = TempDir::with_prefix("brisk-test-uwsgi-").expect("a temporary folder");
        fs::write(folder.path().join("app.py"), text).expect("a temporary file");
        let process = run(folder.path());
        Self { process, folder }
    }

    /// Path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("app.sock")
    }

    /// The server as it is written in a configuration.
    pub fn url(&self) -> String {
        format!("uwsgi+unix:{}", self.socket().display())
    }

    /// Ends the server and starts it again on the same socket.
    pub fn restart(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
        // A killed server leaves its socket, and the file is no sign of a server that listens.
        fs::remove_file(self.socket()).expect("a socket");
        self.process = run(self.folder.path());
    }
}

fn run(folder: &Path) -> Process {
    let mut command = command("uwsgi");
    command.args(["--plugins", "python3", "--need-app", "--wsgi-file", "app.py", "--threads", "2"]);
    command.args([
        "--uwsgi-socket",
        "app.sock",
        "--chmod-socket=666",
        "--buffer-size",
        "65535",
        "--die-on-term",
    ]);
    let mut process = Process::start(command.current_dir(folder));
    process.await_socket(&folder.join("app.sock"));
    process
}
