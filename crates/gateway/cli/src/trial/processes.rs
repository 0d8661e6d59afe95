//! Processes of a trial, which end with it.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Folders with programs of the system, which a user may not have in `PATH`.
const SYSTEM: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin"];

/// Timeout for all servers to listen.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Bytes of the messages of a server that are shown at most.
const SHOWN: usize = 4000;

/// Running servers. Dropping ends them.
pub(super) struct Processes(Vec<(String, Child, PathBuf)>);

/// Result of a start.
pub(super) enum Started {
    Running(Processes),
    /// Another program listens at one of the ports.
    PortTaken,
}

/// The program `nginx`.
pub(super) fn nginx() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
    folders.map(|folder| folder.join("nginx")).find(|program| program.is_file())
}

impl Processes {
    /// Starts nginx with `conf` and a process of brisk for each of `files`, and waits until all `ports` accept connections.
    pub(super) async fn start(
        nginx: &Path,
        conf: &Path,
        files: &[PathBuf],
        folder: &Path,
        ports: Vec<u16>,
    ) -> Result<Started> {
        let mut all = Self(Vec::new());
        let mut command = Command::new(nginx);
        command.arg("-c").arg(conf).args(["-e", "stderr"]);
        all.spawn("nginx", command, folder)?;
        for (index, file) in files.iter().enumerate() {
            let mut command = Command::new(env::current_exe()?);
            command.arg("serve").arg("--config").arg(file).args(["--workers", "1", "--state-dir"]);
            command.arg(folder.join(format!("state-{index}")));
            all.spawn("brisk", command, folder)?;
        }
        let end = Instant::now() + TIMEOUT;
        let mut waiting = ports;
        loop {
            // Before the look at the processes: one of them may have ended because another program has its port.
            waiting.retain(|port| !accepts(*port));
            if let Some((name, status, messages)) = all.failed() {
                if messages.contains("ddress already in use") {
                    return Ok(Started::PortTaken);
                }
                bail!("{name} has not started with the configuration of the check ({status}):\n{messages}");
            }
            if waiting.is_empty() {
                return Ok(Started::Running(all));
            }
            if Instant::now() > end {
                bail!("nothing listens at {waiting:?} of 127.0.0.1 after {} seconds", TIMEOUT.as_secs());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn spawn(&mut self, name: &str, mut command: Command, folder: &Path) -> Result<()> {
        // A file in place of a pipe: a server with many messages would wait until they are read.
        let log = folder.join(format!("log-{}", self.0.len()));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        self.0.push((name.to_owned(), command.spawn()?, log));
        Ok(())
    }

    /// A server that has ended, by itself or by a signal, with its last messages.
    fn failed(&mut self) -> Option<(String, ExitStatus, String)> {
        let (name, status, log) = self.0.iter_mut().find_map(|(name, child, log)| {
            child.try_wait().ok().flatten().map(|status| (name, status, log))
        })?;
        let messages = fs::read(log).unwrap_or_default();
        let last = &messages[messages.len().saturating_sub(SHOWN)..];
        Some((name.clone(), status, String::from_utf8_lossy(last).into_owned()))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child, _) in &mut self.0 {
            // Nothing of them is kept, so they need no time to end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn accepts(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_a_signal_has_ended_has_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = Processes(Vec::new());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo crashed >&2; kill -KILL $$"]);
        all.spawn("nginx", command, folder.path()).expect("a shell");
        let (name, status, messages) = loop {
            match all.failed() {
                Some(failed) => break failed,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert_eq!((name.as_str(), status.code(), messages.as_str()), ("nginx", None, "crashed\n"));
    }
}
