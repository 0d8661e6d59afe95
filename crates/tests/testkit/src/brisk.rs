//! The program under test: started with a configuration in a temporary folder, queried, reloaded, stopped.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::ca::Leaf;
use crate::http1::Message;
use crate::process::{Finished, Process, TIMEOUT, command, run, wait_until};

const BASE: &str = r#"
server.https = ["127.0.0.1:0"]
server.http = ["127.0.0.1:0"]
server.workers = 2
server.state_dir = "state"
server.timeouts.hello = "25s"
server.timeouts.head = "25s"
admin.listen = "127.0.0.1:0"
access_log.format = "json"
access_log.file = "access.log"
"#;

/// Base configuration of tests: a free port each for HTTPS, plain HTTP and the admin listener, two workers, and an
/// access log in JSON in `access.log`. Timeouts of handshakes and heads are longer than a pause of the machine of 10 s, and shorter
/// than the idle timeout of QUIC clients. `keys` precede these and replace those with the same names. All keys are dotted, so
/// that tables can follow.
pub fn base(keys: &str) -> String {
    let is_free = |line: &&str| {
        let name = line.split(" = ").next().unwrap_or_default();
        // The outputs of an access log replace its file.
        let has_outputs = name == "access_log.file" && keys.contains("access_log.output = ");
        !keys.contains(&format!("{name} = ")) && !has_outputs
    };
    let kept: Vec<_> = BASE.lines().filter(|line| !line.is_empty()).filter(is_free).collect();
    format!("{keys}\n{}\n", kept.join("\n"))
}

/// A `[[host]]` with these certificates; routes may follow.
pub fn host(names: &[&str], leafs: &[&Leaf]) -> String {
    let file = |path: &Path| format!("{:?}", path.display().to_string());
    let certificate =
        |leaf: &&Leaf| format!("{{ chain = {}, key = {} }}", file(&leaf.chain), file(&leaf.key));
    let certificates: Vec<_> = leafs.iter().map(certificate).collect();
    format!("\n[[host]]\nnames = {names:?}\ncertificates = [{}]\n", certificates.join(", "))
}

/// Builder of a [`Brisk`].
#[derive(Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Setup {
    /// The program, preceded by a command that runs it elsewhere.
    words: Vec<OsString>,
    subcommand: &'static str,
    folder: TempDir,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    unread: bool,
    open_files: Option<u32>,
    inherited: Vec<(String, OwnedFd)>,
}

impl Setup {
    /// The program at this path, in a new temporary folder, without a configuration.
    pub fn new(program: &Path) -> Self {
        let folder = TempDir::with_prefix("brisk-test-").expect("a temporary folder");
        Self {
            words: vec![program.into()],
            subcommand: "serve",
            folder,
            options: Vec::new(),
            environment: Vec::new(),
            unread: false,
            open_files: None,
            inherited: Vec::new(),
        }
    }

    /// Starts a key server instead of a gateway.
    pub fn keyserver(mut self) -> Self {
        self.subcommand = "keyserver";
        self
    }

    /// Starts a supervisor of a gateway. Its own options come before those of the gateway.
    pub fn supervised(mut self) -> Self {
        self.subcommand = "supervise";
        self
    }

    /// Adds this configuration as `brisk.toml`.
    pub fn config(self, toml: &str) -> Self {
        self.file("brisk.toml", toml).option("--config").option("brisk.toml")
    }

    /// Adds a file to the folder; its name may contain folders.
    pub fn file(self, name: &str, contents: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a temporary folder");
        fs::write(path, contents).expect("a temporary file");
        self
    }

    /// Adds an argument to the command line.
    pub fn option(mut self, word: &str) -> Self {
        self.options.push(word.to_owned());
        self
    }

    /// Sets an environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the program as an argument of `command`, for example of `nsenter` with its options.
    pub fn behind(mut self, command: &[OsString]) -> Self {
        self.words.splice(..0, command.iter().cloned());
        self
    }

    /// Leaves standard error unread.
    pub fn unread_stderr(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Limits the number of open files.
    pub fn open_files(mut self, limit: u32) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// Passes this socket to the program, like a supervisor that calls it `name`. It stays open here too.
    pub fn inherit(mut self, name: &str, socket: &impl AsFd) -> Self {
        let socket = socket.as_fd().try_clone_to_owned().expect("a copy of a socket");
        self.inherited.push((name.to_owned(), socket));
        self
    }

    /// The folder in which it will run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the program and waits until it listens.
    #[track_caller]
    pub fn start(self) -> Brisk {
        let start = if self.unread { Process::start_unread } else { Process::start };
        let mut process = start(self.command(self.subcommand).args(&self.options));
        let listeners = wait_until("brisk that serves", || {
            // Otherwise a program that ended at its start would be reported as a timeout, without its
            // message.
            let ended = process.ended();
            assert!(ended.is_none(), "brisk ended: {}{}", process.stdout(), process.stderr());
            // On standard error if standard output is an access log in JSON.
            Listeners::read(&process.stdout()).or_else(|| Listeners::read(&process.stderr()))
        });
        Brisk { process, listeners, folder: self.folder }
    }

    /// Runs the server, expecting it to end by itself.
    pub fn fail(&self) -> Finished {
        run(self.command(self.subcommand).args(&self.options), b"", TIMEOUT)
    }

    /// Runs another subcommand with these arguments to its end.
    pub fn run(&self, subcommand: &str, words: &[&str]) -> Finished {
        run(self.command(subcommand).args(words), b"", TIMEOUT)
    }

    /// Runs `brisk check` on a file of the folder.
    pub fn check(&self, file: &str) -> Finished {
        run(self.command("check").arg(file), b"", TIMEOUT)
    }

    fn command(&self, subcommand: &str) -> Command {
        let limit = self.open_files.map(|limit| format!("ulimit -n {limit} && "));
        // The shell replaces itself by the program, which thus gets its process ID.
        let id = (!self.inherited.is_empty()).then_some("export LISTEN_PID=${LISTEN_PID:-$$} && ");
        let before = limit.unwrap_or_default() + id.unwrap_or_default();
        let mut command = if before.is_empty() {
            let mut command = Command::new(&self.words[0]);
            command.args(&self.words[1..]);
            command
        } else {
            let mut shell = command("sh");
            shell.arg("-c").arg(before + "exec \"$0\" \"$@\"").args(&self.words);
            shell
        };
        self.pass_sockets(&mut command);
        command.arg(subcommand).current_dir(self.folder.path()).stdin(Stdio::null());
        // The environment of a developer must not change the program, and the program must not write into the
        // home folder.
        command.env_remove("SSLKEYLOGFILE").env("HOME", self.folder.path()).env_remove("XDG_STATE_HOME");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn pass_sockets(&self, command: &mut Command) {
        if self.inherited.is_empty() {
            return;
        }
        let names: Vec<_> = self.inherited.iter().map(|(name, _)| name.as_str()).collect();
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let mapping = |(child_fd, (_, socket)): (i32, &(String, OwnedFd))| FdMapping {
            parent_fd: socket.try_clone().expect("a copy of a socket"),
            child_fd,
        };
        // sd_listen_fds(3): the first passed descriptor has the number 3.
        let mappings = (3..).zip(&self.inherited).map(mapping).collect();
        command.fd_mappings(mappings).expect("a number for each socket");
    }
}

/// The listeners that brisk printed at its start.
#[derive(Debug)]
struct Listeners(Vec<(String, SocketAddr)>);

impl Listeners {
    /// `None` while the last line is missing: all lines are written at once.
    fn read(stdout: &str) -> Option<Self> {
        let (_, after) = stdout.split_once(" serves\n")?;
        let listener = |line: &str| {
            let (kind, url) = line.trim().split_once(' ')?;
            let address = url.trim().split_once("://")?.1.replace("localhost", "127.0.0.1");
            Some((kind.to_owned(), address.parse().ok()?))
        };
        let listeners: Vec<_> = after.lines().map_while(listener).collect();
        (!listeners.is_empty() && after.ends_with('\n')).then_some(Self(listeners))
    }

    fn address(&self, kind: &str) -> SocketAddr {
        let found = self.0.iter().find(|(own, _)| own == kind);
        found.unwrap_or_else(|| panic!("brisk has no {kind} listener: {:?}", self.0)).1
    }
}

/// A running brisk. Dropping it kills it.
#[derive(Debug)]
pub struct Brisk {
    process: Process,
    listeners: Listeners,
    folder: TempDir,
}

impl Brisk {
    /// Address of the first HTTPS listener.
    pub fn https(&self) -> SocketAddr {
        self.listeners.address("https")
    }

    /// Address of the first plain HTTP listener.
    pub fn http(&self) -> SocketAddr {
        self.listeners.address("http")
    }

    /// Address of the listener of `[[tcp]]` with this index.
    pub fn tcp(&self, index: usize) -> SocketAddr {
        let all = self.listeners.0.iter().filter(|(kind, _)| kind == "tcp");
        all.map(|(_, address)| *address).nth(index).expect("a listener of [[tcp]]")
    }

    /// Address of the first listener of a key server.
    pub fn keys(&self) -> SocketAddr {
        self.listeners.address("keys")
    }

    /// Address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        self.listeners.address("admin")
    }

    /// Address of the dashboard.
    pub fn dashboard(&self) -> SocketAddr {
        self.listeners.address("dashboard")
    }

    /// The folder in which it runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until the log contains `text`, and returns the log: lines are written a moment after the event.
    #[track_caller]
    pub fn log_with(&self, text: &str) -> String {
        let log = || Some(self.process.stderr()).filter(|log| log.contains(text));
        wait_until(&format!("a line of the log with {text}"), log)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Replaces a file of the folder atomically, as editors and certificate tools do.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.folder.path().join(name);
        let new = path.with_extension("new");
        fs::write(&new, contents).expect("a temporary file");
        fs::rename(new, path).expect("a temporary file");
    }

    /// Sends SIGHUP, waits until the log contains the outcome of the reload, and returns that line.
    #[track_caller]
    pub fn reload(&self) -> String {
        // Lines of earlier reloads are in the log too, so the next one is found by its number, among those with this reason: a
        // changed file that the program notices meanwhile causes another line, which may be late.
        let lines =
            || self.reload_lines().into_iter().filter(|line| line.contains("SIGHUP")).collect::<Vec<_>>();
        let before = lines().len();
        self.process.signal(Signal::HUP);
        wait_until("a line about the reload", || lines().into_iter().nth(before))
    }

    /// Messages of the log about completed reloads, each with all of its lines.
    pub fn reload_lines(&self) -> Vec<String> {
        let mut messages: Vec<String> = Vec::new();
        for line in self.process.stderr().lines() {
            // A message begins with its time, and errors of a configuration have further lines.
            let begins = line.starts_with(|first: char| first.is_ascii_digit()) && line.contains("Z ");
            match messages.last_mut().filter(|_| !begins) {
                Some(message) => message.extend(["\n", line]),
                None => messages.push(line.to_owned()),
            }
        }
        messages.retain(|message| message.contains("reloaded"));
        messages
    }

    /// Process ids of the gateways that a supervisor has started and that have served, in order.
    pub fn generations(&self) -> Vec<u32> {
        let log = self.process.stderr();
        let serving = log.lines().filter(|line| line.contains("the gateway serves"));
        let ids =
            serving.filter_map(|line| line.split("process=").nth(1)?.split_whitespace().next()?.parse().ok());
        ids.collect()
    }

    /// Waits until a supervisor has started more than `count` gateways that have served, and returns the id of the last.
    #[track_caller]
    pub fn generation_after(&self, count: usize) -> u32 {
        wait_until("a gateway that serves", || self.generations().get(count..)?.last().copied())
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits until the process has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// GET request to the admin listener.
    pub fn ask_admin(&self, path: &str) -> Message {
        self.send_admin(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// POST request without a body to the admin listener.
    pub fn post_admin(&self, path: &str) -> Message {
        self.send_admin(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ))
    }

    /// Any request to the admin listener.
    pub fn send_admin(&self, request: &str) -> Message {
        let mut stream = TcpStream::connect(self.admin()).expect("an admin listener");
        // A gateway that hangs fails the test instead of blocking it.
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream.write_all(request.as_bytes()).expect("a listener that reads");
        Message::read_response(&mut stream).expect("a response")
    }

    /// The current metrics.
    pub fn metrics(&self) -> Metrics {
        let page = self.ask_admin("/metrics");
        assert_eq!(page.status(), 200);
        Metrics(page.text())
    }

    /// The lines of `access.log` so far.
    pub fn access_log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        // The program may be in the middle of the last line.
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().map(str::to_owned).collect()
    }

    /// Waits for a line of `access.log` that contains `text`, and returns the first.
    #[track_caller]
    pub fn logged(&self, text: &str) -> String {
        let what = format!("a line of the access log with {text}");
        wait_until(&what, || self.access_log().into_iter().find(|line| line.contains(text)))
    }
}

/// A page of metrics in the text format.
#[derive(Debug, Clone)]
pub struct Metrics(pub String);

impl Metrics {
    /// Sum of all series of `name` that have every one of `labels` (written as `version="TLS 1.3"`).
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let series =
            self.0.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        // By the whole name: many names are the beginning of others.
        let of_name = series.filter(|(series, _)| series.split('{').next() == Some(name));
        let fitting = of_name.filter(|(series, _)| labels.iter().all(|label| series.contains(label)));
        fitting.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_when_they_are_complete() {
        let whole = "brisk 0.1.0 serves\n  https  https://127.0.0.1:8443\n  admin  http://127.0.0.1:9\n  trust it: x\n";
        let listeners = Listeners::read(whole).unwrap();
        assert_eq!(listeners.address("https"), "127.0.0.1:8443".parse().unwrap());
        assert_eq!(listeners.address("admin"), "127.0.0.1:9".parse().unwrap());
        assert!(Listeners::read("brisk 0.1.0 serves\n").is_none());
        assert!(Listeners::read("brisk 0.1.0 serves\n  https  https://127.0.0.1:84").is_none());
    }

    #[test]
    fn keys_come_instead_of_those_of_the_same_name() {
        let config = base("server.workers = 1\n");
        assert!(config.starts_with("server.workers = 1\n") && config.contains("admin.listen"), "{config}");
        assert_eq!(config.matches("server.workers").count(), 1);
    }

    #[test]
    fn metrics_are_summed_by_name_and_labels() {
        let page = Metrics(
            "# HELP a b\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"1\",y=\"3\"} 4\nab_total 9\n".to_owned(),
        );
        assert!((page.sum("a_total", &["x=\"1\""]) - 7.0).abs() < 1e-9);
        assert!((page.sum("a_total", &["y=\"3\""]) - 4.0).abs() < 1e-9);
        assert!(page.sum("a_total", &["x=\"2\""]).abs() < 1e-9);
    }
}
