//! Provider that runs a program of the operator.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::task::spawn_blocking;

use super::{DnsError, HookSettings, Txt};

/// Poll interval for the end of the program.
const POLL: Duration = Duration::from_millis(50);

/// Maximum number of reported bytes of standard error.
const STDERR_LIMIT: usize = 2000;

/// Time to wait for the end of standard error after the program has ended. A background process that the program
/// started may keep the pipe open.
const STDERR_GRACE: Duration = Duration::from_secs(1);

pub(super) async fn put(settings: &HookSettings, record: &Txt) -> Result<(), DnsError> {
    run(&settings.program, settings.limit, "present", record).await
}

pub(super) async fn remove(settings: &HookSettings, record: &Txt) -> Result<(), DnsError> {
    run(settings.cleanup.as_ref().unwrap_or(&settings.program), settings.limit, "cleanup", record).await
}

/// Runs `program` with the arguments of lego (`present NAME. VALUE`) and the environment of certbot's hooks.
async fn run(program: &Path, limit: Duration, action: &'static str, record: &Txt) -> Result<(), DnsError> {
    let by = format!("{} {action}", program.display());
    let mut command = Command::new(program);
    command.arg(action).arg(format!("{}.", record.name)).arg(&record.value);
    command.env("CERTBOT_DOMAIN", record.domain()).env("CERTBOT_IDENTIFIER", record.domain());
    command.env("CERTBOT_VALIDATION", &record.value);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = spawn_blocking(move || finish(command, limit)).await;
    match ended.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => Ok(()),
        Err(reason) => Err(DnsError { by, reason }),
    }
}

/// Runs `command`; kills it at `limit`. Blocks.
fn finish(mut command: Command, limit: Duration) -> Result<(), String> {
    // A process group of its own, so that the timeout kills its children too.
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let stderr = child.stderr.take().map(StderrReader::of);
    let status = wait(&mut child, limit)?;
    if status.success() {
        return Ok(());
    }
    let message = stderr.map(StderrReader::text).unwrap_or_default();
    Err(format!("{status}{}{message}", if message.is_empty() { "" } else { ": " }))
}

/// Standard error of a program, read on a thread. Without a reader the program would block on a full pipe, or be killed
/// by SIGPIPE if the pipe were closed.
struct StderrReader {
    begun: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl StderrReader {
    fn of(mut stderr: ChildStderr) -> Self {
        let (end, ended) = channel();
        let begun: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = Arc::clone(&begun);
        thread::spawn(move || {
            // Dropped at end of file, which wakes the receiver.
            let _end = end;
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = STDERR_LIMIT - kept.len();
                kept.extend_from_slice(&buffer[..length.min(room)]);
            }
        });
        Self { begun, ended }
    }

    fn text(self) -> String {
        // Both outcomes end the wait: end of file or timeout.
        let _ = self.ended.recv_timeout(STDERR_GRACE);
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&begun).trim().to_owned()
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<std::process::ExitStatus, String> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    // An error means that the program has ended in the meantime.
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return Err(format!("not done after {} s", limit.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use brisk_testkit::process::{command, wait_until};

    use super::*;

    fn script(folder: &Path, text: &str) -> HookSettings {
        let program = folder.join("hook");
        // Written by another process: programs that other tests start meanwhile would inherit a descriptor of this one, and a file
        // that is open for writing cannot be executed.
        let mut writer = command("sh");
        writer.args(["-c", "cat > \"$0\" && chmod 700 \"$0\""]).arg(&program).stdin(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        HookSettings { program, cleanup: None, limit: Duration::from_mins(10) }
    }

    fn record() -> Txt {
        Txt::proving("*.a.test", "value".to_owned())
    }

    #[tokio::test]
    async fn a_program_is_called_as_lego_and_certbot_call_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text = format!("echo \"$1 $2 $3 $CERTBOT_DOMAIN $CERTBOT_VALIDATION\" >> {}", log.display());
        let settings = script(folder.path(), &text);
        put(&settings, &record()).await.unwrap();
        remove(&settings, &record()).await.unwrap();
        let lines = fs::read_to_string(log).unwrap();
        let line = |action| format!("{action} _acme-challenge.a.test. value a.test value\n");
        assert_eq!(lines, line("present") + &line("cleanup"));
    }

    #[tokio::test]
    async fn what_it_leaves_running_and_what_it_says_at_length_do_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        // The background process keeps the pipe open for longer than the test runs.
        let settings = script(folder.path(), "echo no >&2; sleep 1000 & echo $! > \"$0.pid\"; exit 3");
        let error = put(&settings, &record()).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no"), "{error}");
        let pid = fs::read_to_string(folder.path().join("hook.pid")).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        let talks =
            "i=0; while [ $i -lt 20000 ]; do echo some words of no interest >&2 || exit 4; i=$((i+1)); done";
        put(&script(folder.path(), talks), &record()).await.unwrap();
    }

    #[tokio::test]
    async fn at_the_limit_all_that_it_started_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let text = "sleep 1000 & echo $! > \"$0.pid\"; wait";
        let mut pid = None;
        // On a busy machine, the limit may come before the program has written its file.
        for seconds in [1, 4, 16, 64] {
            let settings =
                HookSettings { limit: Duration::from_secs(seconds), ..script(folder.path(), text) };
            let error = put(&settings, &record()).await.unwrap_err().to_string();
            assert!(error.contains("not done"), "{error}");
            let written = fs::read_to_string(folder.path().join("hook.pid")).unwrap_or_default();
            pid = written.trim().parse::<i32>().ok();
            if pid.is_some() {
                break;
            }
        }
        let pid = pid.expect("a program that has written its file");
        // A zombie counts as ended; its new parent may not have waited for it yet.
        wait_until("the end of its child", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            (!stat.is_ok_and(|stat| !stat.contains(") Z "))).then_some(())
        });
    }

    #[tokio::test]
    async fn its_complaint_is_reported_and_a_slow_one_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let settings = script(folder.path(), "echo no such zone >&2; exit 3");
        let error = put(&settings, &record()).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no such zone"), "{error}");
        let settings =
            HookSettings { limit: Duration::from_millis(200), ..script(folder.path(), "exec sleep 60") };
        let error = put(&settings, &record()).await.unwrap_err().to_string();
        assert!(error.contains("not done"), "{error}");
    }
}
