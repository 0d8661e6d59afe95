//! The process between the gateway and its key process: starts the latter, and again whenever it ends. It has the rights that
//! this takes, no keys, and reads nothing that a peer sends.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio, exit};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::control::Control;
use super::rights;
use crate::args::KeyProcess;
use crate::limits;

/// The program that this process runs, even where its file was replaced.
pub(super) const PROGRAM: &str = "/proc/self/exe";

/// Pauses before a key process is started again: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// One that has run for this time was good: the pauses begin anew.
const GOOD: Duration = Duration::from_secs(10);

/// Keeps a key process until the gateway is gone.
pub(super) fn run(arguments: &KeyProcess, control: &Control) -> anyhow::Result<()> {
    limits::keep_memory_private();
    rights::end_with(arguments.parent)?;
    let _signals = rights::outlive_signals()?;
    let mut pause = PAUSES[0];
    loop {
        let started = Instant::now();
        match start(arguments, control).and_then(|mut child| child.wait()) {
            // What was wrong with its beginning it has said itself, and will not be otherwise.
            Ok(status) if status.code() == Some(rights::REFUSED) => exit(rights::REFUSED),
            Ok(status) if !control.is_closed() => {
                rights::say(format_args!("the key process ended ({status}); it is started again"));
            }
            Ok(_) => return Ok(()),
            Err(error) => rights::say(format_args!("the key process cannot be started: {error}")),
        }
        if control.is_closed() {
            return Ok(());
        }
        if started.elapsed() >= GOOD {
            pause = PAUSES[0];
        }
        sleep(pause);
        pause = (pause * 2).min(PAUSES[1]);
    }
}

fn start(arguments: &KeyProcess, control: &Control) -> io::Result<std::process::Child> {
    let mut command = Command::new(PROGRAM);
    command.arg0("brisk").args(["key-process", "--holds-keys", "--log", &arguments.log, "--parent"]);
    command.arg(std::process::id().to_string());
    if let Some(user) = &arguments.user {
        command.args(["--user", user]);
    }
    command.stdin(Stdio::from(control.try_clone()?)).stdout(Stdio::null()).spawn()
}
