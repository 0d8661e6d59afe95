//! Records that a program of the operator changes.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use super::{DnsError, HookSettings, Txt};

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The most of its complaints that is reported.
const COMPLAINT: u64 = 2000;

pub(super) async fn put(settings: &HookSettings, record: &Txt) -> Result<(), DnsError> {
    run(&settings.program, settings.limit, "present", record).await
}

pub(super) async fn remove(settings: &HookSettings, record: &Txt) -> Result<(), DnsError> {
    run(settings.cleanup.as_ref().unwrap_or(&settings.program), settings.limit, "cleanup", record).await
}

/// Calls `program` as lego calls one (`present NAME. VALUE`), with the variables that certbot sets for its hooks.
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

/// Runs `command` to its end, which comes at the limit at the latest.
fn finish(mut command: Command, limit: Duration) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    // Read beside it, as it would wait for a reader otherwise.
    let complaints = child.stderr.take().map(|stderr| {
        thread::spawn(move || {
            let mut text = Vec::new();
            // What is left unread of one that complains without end is its own problem.
            let _ = stderr.take(COMPLAINT).read_to_end(&mut text);
            String::from_utf8_lossy(&text).trim().to_owned()
        })
    });
    let status = wait(&mut child, limit)?;
    if status.success() {
        return Ok(());
    }
    let complaint = complaints.and_then(|reader| reader.join().ok()).unwrap_or_default();
    Err(format!("{status}{}{complaint}", if complaint.is_empty() { "" } else { ": " }))
}

fn wait(child: &mut Child, limit: Duration) -> Result<std::process::ExitStatus, String> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill();
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(folder: &Path, text: &str) -> HookSettings {
        let program = folder.join("hook");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        HookSettings { program, cleanup: None, limit: Duration::from_secs(20) }
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
