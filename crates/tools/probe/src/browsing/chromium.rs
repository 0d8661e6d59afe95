//! Headless Chromium, controlled by the `DevTools` protocol over a pipe.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Settings;
use crate::error::ProbeError;

/// Names of the program, in the order in which they are tried.
const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// The shell that gives the pipes their numbers.
const SHELL: &str = "/bin/sh";

/// Longest message of the browser; longer ones end the load.
const LONGEST: u64 = 64 << 20;

/// Capacity of the channel of messages; the browser waits while it is full.
const WAITING: usize = 1000;

/// Maximum time of a call. The first one includes the start of the browser, which takes long on a busy machine.
const CALL: Duration = Duration::from_mins(1);

/// A running browser with one page. Dropping it ends the browser and removes its profile.
pub(super) struct Chromium {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Events that arrived while a call waited.
    early: Vec<Value>,
    session: Option<String>,
    last: u64,
    _profile: TempDir,
}

impl Chromium {
    /// Starts the browser. It connects as `settings` say, and accepts certificates with one of these `keys` (SHA-256 of the
    /// public key, in base64).
    pub(super) fn start(settings: &Settings, keys: &[String]) -> Result<Self, ProbeError> {
        let failed = |error: &dyn std::fmt::Display| {
            ProbeError::System(format!("Chromium cannot be started: {error}"))
        };
        let profile = TempDir::new().map_err(|error| failed(&error))?;
        // The shell gives the pipes the numbers that Chromium expects: it reads from 3 and writes to 4.
        let mut command = Command::new(SHELL);
        // `exec` makes the browser the child itself; without it, `kill` would end the shell and leave the
        // browser.
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"]);
        command.arg(program()?).arg("--remote-debugging-pipe").arg("--headless");
        command.args([
            "--no-first-run",
            "--no-default-browser-check",
            "--disable-background-networking",
            "--disable-gpu",
        ]);
        command.args(["--disable-extensions", "--disable-dev-shm-usage", "--window-size=1280,900"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        // Chromium on Linux also uses `$HOME/.pki`, whose authorities and keys are not part of the probed
        // setup.
        command.env("HOME", profile.path());
        if rustix::process::geteuid().is_root() {
            // Chromium refuses to run as root with its sandbox.
            command.arg("--no-sandbox");
        }
        if let Some(address) = settings.connect {
            let host = &settings.url.host;
            let address = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
            // Only the probed host is mapped: other origins of the page are reached as by any browser.
            command.arg(format!("--host-resolver-rules=MAP {host} {address}"));
        }
        if !keys.is_empty() {
            command.arg(format!("--ignore-certificate-errors-spki-list={}", keys.join(",")));
        }
        command.arg("about:blank").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (commands, output) = (child.stdin.take(), child.stdout.take());
        let (commands, output) = commands.zip(output).expect("both are pipes");
        let (sender, messages) = sync_channel(WAITING);
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut message = Vec::new();
                let read = (&mut output).take(LONGEST).read_until(0, &mut message);
                // A message of `LONGEST` bytes has no end here, and the next read would begin inside of it.
                if read.is_err() || message.pop() != Some(0) {
                    return;
                }
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { child, commands, messages, early: Vec::new(), session: None, last: 0, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attached)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        Ok(browser)
    }

    /// Calls a method of the `DevTools` protocol and waits for its result, at most [`CALL`].
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, ProbeError> {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = session.clone().into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        let lost = || ProbeError::System(format!("Chromium ended, or did not answer {method} in time"));
        self.commands.write_all(&bytes).and_then(|()| self.commands.flush()).map_err(|_| lost())?;
        let deadline = Instant::now() + CALL;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let mut message = self.messages.recv_timeout(rest).map_err(|_| lost())?;
            // Events of the first request may precede the result of `Page.navigate`; they are kept for
            // `events`.
            if message["id"] != self.last {
                self.early.push(message);
                continue;
            }
            if let Some(error) = message["error"]["message"].as_str() {
                return Err(ProbeError::System(format!("Chromium refused {method}: {error}")));
            }
            return Ok(message["result"].take());
        }
    }

    /// Passes events to `handle`, which returns whether the page is complete apart from late events, until it has been
    /// complete for the time `quiet`, or until `limit` is over.
    pub(super) fn events(
        &mut self,
        limit: Duration,
        quiet: Duration,
        handle: &mut dyn FnMut(&Value) -> bool,
    ) -> Result<(), ProbeError> {
        let deadline = Instant::now() + limit;
        let mut is_complete = false;
        for event in std::mem::take(&mut self.early) {
            is_complete = handle(&event);
        }
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            // Each event restarts the wait, because a late script may request more.
            let wait = if is_complete { rest.min(quiet) } else { rest };
            match self.messages.recv_timeout(wait) {
                Ok(event) => is_complete = handle(&event),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ProbeError::System("Chromium ended during the load of the page".to_owned()));
                }
            }
        }
    }

    /// The value of an expression in the page, which may be a promise.
    pub(super) fn script(&mut self, expression: &str) -> Result<Value, ProbeError> {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", &asked)?;
        Ok(result["result"]["value"].take())
    }

    /// Ends the browser.
    pub(super) fn close(mut self) {
        // `Browser.close` concerns the browser, not the page of the session.
        self.session = None;
        // A browser that does not answer is ended by drop.
        let _ = self.call("Browser.close", &json!({}));
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        // Without `wait` the process would remain as a zombie, and could still write into the profile while
        // it is removed.
        let _ = self.child.wait();
    }
}

/// The program: that of the variable `CHROMIUM`, or the first of [`NAMES`] in `PATH`.
fn program() -> Result<PathBuf, ProbeError> {
    if let Some(program) = env::var_os("CHROMIUM").filter(|program| !program.is_empty()) {
        return Ok(program.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let mut all = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.find(|program| program.is_file()).ok_or_else(|| {
        let text = "--page needs Chromium or Chrome: install the package chromium, or name the program in the variable CHROMIUM";
        ProbeError::System(text.to_owned())
    })
}
