//! The keeper, a process between the gateway and its key process: starts the key process and restarts it whenever it
//! ends. It has the privileges for this, holds no keys, and reads no input of peers.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio, exit};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::IsolationError;
use crate::rights;
use crate::role::Role;

/// Path of the running program, valid even if its file was replaced.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

/// Pause before a restart of the key process: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// Run time after which the pause is reset to the first of [`PAUSES`].
const GOOD: Duration = Duration::from_secs(10);

/// Runs the keeper until the gateway has closed its connection, or the key process exits with [`rights::REFUSED`].
pub(crate) fn run(role: &Role, control: &Control) -> Result<(), IsolationError> {
    rights::keep_memory_private();
    rights::end_with(role.parent)?;
    let _signals = rights::outlive_signals()?;
    let mut pause = PAUSES[0];
    loop {
        let started = Instant::now();
        match start(role, control).and_then(|mut child| child.wait()) {
            // The process has logged the reason itself, and a restart would fail the same way.
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

fn start(role: &Role, control: &Control) -> io::Result<std::process::Child> {
    let holder = Role { holds_keys: true, parent: std::process::id(), ..role.clone() };
    let mut command = Command::new(PROGRAM);
    command.arg0("brisk").args(holder.words());
    command.stdin(Stdio::from(control.try_clone()?)).stdout(Stdio::null()).spawn()
}
