//! rsyslog as a receiver of messages, in a temporary folder on a free port and on a Unix socket.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, command, serve_on_free_port, wait_until};

/// A running rsyslog, which writes each message as a JSON object with its parts. UDP and TCP have the same port.
#[derive(Debug)]
pub struct Rsyslog {
    process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl Rsyslog {
    /// Starts it.
    pub fn start() -> Self {
        let folder = TempDir::with_prefix("brisk-rsyslog-").expect("a temporary folder");
        let (process, address) = serve_on_free_port(|port| Self::command(folder.path(), port));
        Self { process, address, folder }
    }

    fn command(folder: &Path, port: u16) -> Command {
        let text = format!(
            r#"
global(workDirectory="{0}" maxMessageSize="64k")
module(load="imudp")
module(load="imtcp")
module(load="imuxsock" SysSock.Use="off")
module(load="mmpstrucdata")
input(type="imudp" address="127.0.0.1" port="{port}")
input(type="imtcp" address="127.0.0.1" port="{port}")
input(type="imuxsock" Socket="{0}/log" UseSpecialParser="off" IgnoreTimestamp="off")
template(name="all" type="list" option.jsonf="on") {{
  property(outname="input" name="inputname" format="jsonf")
  property(outname="host" name="hostname" format="jsonf")
  property(outname="app" name="app-name" format="jsonf")
  property(outname="process" name="procid" format="jsonf")
  property(outname="id" name="msgid" format="jsonf")
  property(outname="time" name="timereported" dateFormat="rfc3339" format="jsonf")
  property(outname="priority" name="pri" format="jsonf")
  property(outname="data" name="$!data" format="jsonf")
  property(outname="message" name="msg" format="jsonf")
}}
action(type="mmpstrucdata" jsonRoot="!data")
action(type="omfile" file="{0}/messages" template="all")
"#,
            folder.display()
        );
        let file = folder.join("rsyslog.conf");
        fs::write(&file, text).expect("a temporary file");
        let mut command = command("rsyslogd");
        // `-i`: with the common PID file, a second rsyslog would refuse to start.
        command.args(["-n", "-f"]).arg(file).arg("-i").arg(folder.join("pid"));
        command
    }

    /// Stops it as an administrator does.
    pub fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        self.process.wait();
    }

    /// Starts it again on the same addresses.
    pub fn restart(&mut self) {
        self.process = Process::start(&mut Self::command(self.folder.path(), self.address.port()));
    }

    /// The address of UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The datagram socket, as `/dev/log` is one.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The messages of an input so far: `imudp`, `imtcp` or `imuxsock`.
    pub fn messages(&self, input: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("messages")).unwrap_or_default();
        // rsyslog may be in the middle of the last line.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("a JSON object");
        let messages = complete.lines().map(parse).filter(|message| message["input"] == input);
        let with_data = messages.map(|mut message| {
            // rsyslog writes structured data as text.
            let data = message["data"].as_str().filter(|data| !data.is_empty()).map(parse);
            message["data"] = data.unwrap_or_default();
            message
        });
        with_data.collect()
    }

    /// Waits for a message of an input that contains `text`.
    pub fn message(&self, input: &str, text: &str) -> Value {
        let has_text = |message: &Value| message["message"].as_str().is_some_and(|line| line.contains(text));
        let what = format!("{text} of {input}");
        wait_until(&what, || self.messages(input).into_iter().find(has_text))
    }
}
