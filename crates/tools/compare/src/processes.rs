//! [`Testbed`]: starts the processes of a [`Plan`], waits until they accept connections, and stops them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, waitid,
};
use thiserror::Error;

use crate::{Interrupt, Plan, ProcessSource, Target, Variables};

/// Timeout until a server accepts connections.
const START: Duration = Duration::from_secs(20);

/// Timeout from `SIGTERM` to `SIGKILL`.
const STOP: Duration = Duration::from_secs(3);

/// Interval at which conditions without notification are polled.
const POLL: Duration = Duration::from_millis(20);

/// Timeout of one attempt to connect. Servers are local, and [`Interrupt`] is checked between attempts.
const ATTEMPT: Duration = Duration::from_millis(250);

/// Exit code of a start command whose server is not installed (`EX_UNAVAILABLE`).
const MISSING: i32 = 69;

/// Environment variable with the path of the running program, so that commands of a plan can start it as a server.
const PROGRAM: &str = "BRISK_PROGRAM";

/// Why a process of a [`Plan`] could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A command or an option of the plan is wrong.
    #[error("{name}: {problem}")]
    Plan {
        /// Name of the target or service.
        name: String,
        /// The error.
        problem: String,
    },
    /// A command cannot be started.
    #[error("{name}: cannot run {command:?}: {reason}")]
    Command {
        /// Name of the target or service.
        name: String,
        /// The command.
        command: String,
        /// Error of the operating system.
        reason: io::Error,
    },
    /// The process ended instead of serving.
    #[error("{name}: ended with {status}: {last}")]
    Ended {
        /// Name of the target or service.
        name: String,
        /// Exit status.
        status: ExitStatus,
        /// The last line that the process wrote to standard error.
        last: String,
    },
    /// The process does not accept connections within 20 s.
    #[error("{name}: no connection to {address} after {} s", START.as_secs())]
    Silent {
        /// Name of the target or service.
        name: String,
        /// The address that was tried.
        address: String,
    },
    /// The user interrupted it.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// The system has no free port or temporary file.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl ServerError {
    fn plan(name: &str, problem: String) -> Self {
        Self::Plan { name: name.to_owned(), problem }
    }

    /// If the server is not installed: the message of its start command.
    fn missing(&self) -> Option<&str> {
        match self {
            Self::Ended { status, last, .. } if status.code() == Some(MISSING) => Some(last),
            _ => None,
        }
    }
}

/// All processes of a [`Plan`], ready to be measured. Dropping a `Testbed` stops the processes that it started, with
/// `SIGTERM` first and `SIGKILL` after three seconds.
#[derive(Debug)]
pub struct Testbed {
    /// The servers in the order of [`Plan::targets`].
    pub servers: Vec<Server>,
    /// Kept so that the processes are stopped on drop.
    _services: Vec<Process>,
}

/// A [`Target`] of the plan.
#[derive(Debug)]
pub struct Server {
    /// The variables of its commands and options.
    pub variables: Variables,
    /// Process ID; `None` for [`ProcessSource::Unknown`] and for a missing server.
    pub pid: Option<u32>,
    /// Version as the server reports it; empty without [`Target::version`].
    pub version: String,
    /// Why the server could not be started, if it is optional.
    pub missing: Option<String>,
    /// Kept so that the process is stopped on drop.
    process: Option<Process>,
}

impl Testbed {
    /// Runs [`Plan::prepare`], then starts services and servers one after the other. An optional server that is not
    /// installed is marked as missing. Any other problem is an error, and so is a signal; both stop the started
    /// processes.
    pub fn start(plan: &Plan, interrupt: &Interrupt) -> Result<Self, ServerError> {
        let mut variables = Variables::default();
        let commands = Commands { folder: &plan.folder, interrupt };
        if let Some(command) = &plan.prepare {
            let lines = commands.output("prepare", command, &variables)?;
            // Other lines are no error: programs that `prepare` starts may print them.
            for (name, value) in lines.lines().filter_map(|line| line.split_once('=')) {
                variables.set(name, value);
            }
        }
        let mut services = Vec::new();
        for service in &plan.services {
            // Into the variables of the plan: targets connect to their services by these ports.
            set_ports(&mut variables, &service.ports)?;
            let fill =
                |text| variables.fill(text).map_err(|problem| ServerError::plan(&service.name, problem));
            let ready = fill(&service.ready)?;
            services.push(commands.start(&service.name, &service.start, &variables, &ready)?);
        }
        let start = |target| Server::start(target, variables.clone(), &commands);
        let servers = plan.targets.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { servers, _services: services })
    }
}

impl Server {
    fn start(
        target: &Target,
        mut variables: Variables,
        commands: &Commands<'_>,
    ) -> Result<Self, ServerError> {
        let fill = |variables: &Variables, text: &str| {
            variables.fill(text).map_err(|problem| ServerError::plan(&target.name, problem))
        };
        set_ports(&mut variables, &target.ports)?;
        for (name, value) in &target.variables {
            let value = fill(&variables, value)?;
            variables.set(name, value);
        }
        let mut server = Self { variables, pid: None, version: String::new(), missing: None, process: None };
        match &target.process {
            ProcessSource::Unknown => {}
            ProcessSource::Pid(pid) => server.pid = Some(*pid),
            ProcessSource::PidFile(file) => server.pid = Some(read_pid(&target.name, file)?),
            ProcessSource::Start { command, optional } => {
                let ready = fill(&server.variables, target.ready.as_deref().unwrap_or_default())?;
                match commands.start(&target.name, command, &server.variables, &ready) {
                    Ok(process) => {
                        server.pid = Some(process.child.id());
                        server.process = Some(process);
                    }
                    Err(error) if *optional && error.missing().is_some() => {
                        server.missing = error.missing().map(str::to_owned);
                        return Ok(server);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if let Some(command) = &target.version {
            let lines = commands.output(&target.name, command, &server.variables)?;
            server.version = first_line(&lines);
        }
        Ok(server)
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn read_pid(name: &str, file: &Path) -> Result<u32, ServerError> {
    let text = fs::read_to_string(file)?;
    let hint =
        || ServerError::plan(name, format!("{} holds no process id: {:?}", file.display(), text.trim()));
    text.trim().parse().map_err(|_| hint())
}

/// Sets each of `names` to a free port. All ports stay bound until the last one is known, so that they are different.
fn set_ports(variables: &mut Variables, names: &[String]) -> io::Result<()> {
    // Another process may take a port after the listeners are closed; the server then ends with an error.
    let listeners =
        names.iter().map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<Vec<_>>>()?;
    for (name, listener) in names.iter().zip(&listeners) {
        variables.set(name, listener.local_addr()?.port().to_string());
    }
    Ok(())
}

/// Runs the commands of a [`Plan`].
struct Commands<'a> {
    /// Working directory.
    folder: &'a Path,
    interrupt: &'a Interrupt,
}

impl Commands<'_> {
    /// Starts a server and waits until the address `ready` accepts connections.
    fn start(
        &self,
        name: &str,
        text: &str,
        variables: &Variables,
        ready: &str,
    ) -> Result<Process, ServerError> {
        let mut command = self.command(name, text, variables)?;
        let mut process = Process::spawn(name, command.stdout(Stdio::null()), text)?;
        // After an error, `process` is dropped and thus stopped.
        process.wait_until_ready(ready, self.interrupt)?;
        Ok(process)
    }

    /// Runs a command to its end and returns its standard output. A failure is an error.
    fn output(&self, name: &str, text: &str, variables: &Variables) -> Result<String, ServerError> {
        // A file rather than a pipe, which would block the command when it is full.
        let mut written = tempfile::tempfile()?;
        let mut command = self.command(name, text, variables)?;
        let mut process = Process::spawn(name, command.stdout(written.try_clone()?), text)?;
        process.wait_until_done(self.interrupt)?;
        Ok(read_all(&mut written)?)
    }

    fn command(&self, name: &str, text: &str, variables: &Variables) -> Result<Command, ServerError> {
        let words = variables.words(text).map_err(|problem| ServerError::plan(name, problem))?;
        let mut words: VecDeque<_> = words.into();
        let program =
            words.pop_front().ok_or_else(|| ServerError::plan(name, "a command is empty".to_owned()))?;
        // `Command` does not specify whether a relative program is resolved before or after the change of directory.
        let program =
            if program.contains('/') { fs::canonicalize(self.folder)?.join(program) } else { program.into() };
        let mut command = Command::new(program);
        command.args(words).current_dir(self.folder).stdin(Stdio::null());
        // A value in the environment selects another build.
        if let (Ok(own), None) = (env::current_exe(), env::var_os(PROGRAM)) {
            command.env(PROGRAM, own);
        }
        Ok(command)
    }
}

/// A child in its own process group, so that signals of the terminal do not reach it.
#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    stderr: File,
    /// Whether the exit status was collected; the ID may then be reused and must get no signal.
    done: bool,
}

impl Process {
    fn spawn(name: &str, command: &mut Command, text: &str) -> Result<Self, ServerError> {
        // An unnamed file rather than a pipe: it need not be read while the process runs.
        let stderr = tempfile::tempfile()?;
        command.stderr(stderr.try_clone()?).process_group(0);
        let child = command.spawn().map_err(|reason| cannot_run(name, text, reason))?;
        Ok(Self { name: name.to_owned(), child, stderr, done: false })
    }

    fn wait_until_ready(&mut self, address: &str, interrupt: &Interrupt) -> Result<(), ServerError> {
        let started = Instant::now();
        while started.elapsed() < START {
            if self.has_exited()? {
                let status = self.stop()?;
                return Err(self.ended(status));
            }
            let addresses = address.to_socket_addrs().map_err(|reason| {
                ServerError::plan(&self.name, format!("ready = {address:?} is no address: {reason}"))
            })?;
            if addresses.into_iter().any(|address| TcpStream::connect_timeout(&address, ATTEMPT).is_ok()) {
                return Ok(());
            }
            rest(interrupt)?;
        }
        Err(ServerError::Silent { name: self.name.clone(), address: address.to_owned() })
    }

    /// Waits until the process has exited with success. Processes that it has left behind may be wanted and get no signal; after
    /// a failure, they are stopped.
    fn wait_until_done(&mut self, interrupt: &Interrupt) -> Result<(), ServerError> {
        let exit = loop {
            match self.exit()? {
                Some(exit) => break exit,
                None => rest(interrupt)?,
            }
        };
        if exit.exit_status() == Some(0) {
            self.collect()?;
            return Ok(());
        }
        let status = self.stop()?;
        Err(self.ended(status))
    }

    fn has_exited(&self) -> io::Result<bool> {
        Ok(self.exit()?.is_some())
    }

    /// How the process has exited, if it has. Its status is not collected, so until then no other process or group has the ID.
    fn exit(&self) -> io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?)
    }

    fn collect(&mut self) -> io::Result<ExitStatus> {
        self.done = true;
        self.child.wait()
    }

    /// Stops the process, unless it has exited, and its remaining children.
    fn stop(&mut self) -> io::Result<ExitStatus> {
        debug_assert!(
            self.exit().is_ok(),
            "after its status was collected, its ID may be that of another process"
        );
        let pid = Pid::from_child(&self.child);
        // Errors mean that it has ended already.
        // Only to the server, which stops its children itself.
        let _ = kill_process(pid, Signal::TERM);
        let started = Instant::now();
        while started.elapsed() < STOP && matches!(self.has_exited(), Ok(false)) {
            thread::sleep(POLL);
        }
        // Its remaining children, and the process itself if it did not end.
        let _ = kill_process_group(pid, Signal::KILL);
        self.collect()
    }

    fn ended(&mut self, status: ExitStatus) -> ServerError {
        ServerError::Ended { name: self.name.clone(), status, last: self.last_error_line() }
    }

    fn last_error_line(&mut self) -> String {
        // An unreadable file counts as empty.
        let text = read_all(&mut self.stderr).unwrap_or_default();
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.map_or_else(|| "without a message on standard error".to_owned(), |line| line.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.done {
            let _ = self.stop();
        }
    }
}

/// The whole content of a file.
fn read_all(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn cannot_run(name: &str, command: &str, reason: io::Error) -> ServerError {
    ServerError::Command { name: name.to_owned(), command: command.to_owned(), reason }
}

/// Sleeps for [`POLL`]; [`ServerError::Interrupted`] after a signal.
fn rest(interrupt: &Interrupt) -> Result<(), ServerError> {
    if interrupt.is_noted() {
        return Err(ServerError::Interrupted);
    }
    thread::sleep(POLL);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVE: &str = "python3 -m http.server --bind 127.0.0.1 {port}";

    fn plan(target: &str) -> Plan {
        let text = format!("title = \"t\"\n{target}\n[[mode]]\nname = \"m\"\n");
        Plan::parse(&text, Path::new("plan.toml")).unwrap()
    }

    fn target(start: &str, more: &str) -> String {
        let ready = "ports = [\"port\"]\nready = \"127.0.0.1:{port}\"";
        format!("[[target]]\nname = \"one\"\nstart = \"\"\"{start}\"\"\"\n{ready}\n{more}")
    }

    fn started(plan: &Plan) -> Result<Testbed, ServerError> {
        Testbed::start(plan, &Interrupt::default())
    }

    fn is_running(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_server_is_waited_for_and_stopped() {
        let plan = plan(&target(SERVE, "version = \"echo one {port}\""));
        let testbed = started(&plan).unwrap();
        let server = &testbed.servers[0];
        let (pid, port) = (server.pid.unwrap(), server.variables.fill("{port}").unwrap());
        assert_eq!(server.version, format!("one {port}"));
        assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
        drop(testbed);
        assert!(!is_running(pid));
        assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
    }

    #[test]
    fn what_was_started_is_stopped_when_something_else_fails() {
        let text = target(SERVE, "") + &target("false", "").replace("\"one\"", "\"two\"");
        let error = started(&plan(&text)).unwrap_err().to_string();
        assert_eq!(error, "two: ended with exit status: 1: without a message on standard error");
    }

    #[test]
    fn a_server_that_has_ended_gets_no_signal() {
        let ended = "false";
        let mut process = Process::spawn("one", &mut Command::new(ended), ended).unwrap();
        while !process.has_exited().unwrap() {
            thread::sleep(POLL);
        }
        assert!(
            is_running(process.child.id()),
            "its status is collected, so its ID may be that of another process"
        );
        // `stop` asserts the same before the signals.
        let error = process.wait_until_ready("127.0.0.1:1", &Interrupt::default()).unwrap_err();
        assert!(matches!(error, ServerError::Ended { .. }), "{error}");
        assert!(process.done, "its ID may belong to another process");
    }

    /// They occupied ports and processors during the next run.
    #[test]
    fn processes_of_a_failed_command_are_stopped() {
        let (mut left, stdout) = io::pipe().unwrap();
        let shell = "sh";
        let mut command = Command::new(shell);
        command.args(["-c", "(sleep 60; echo left) & exit 1"]).stdout(stdout);
        let mut process = Process::spawn("one", &mut command, shell).unwrap();
        // It has the writing end too.
        drop(command);
        let error = process.wait_until_done(&Interrupt::default()).unwrap_err();
        assert!(matches!(error, ServerError::Ended { .. }), "{error}");
        let mut text = String::new();
        left.read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }

    #[test]
    fn a_missing_server_is_left_out_only_where_the_plan_says_so() {
        let missing = "sh -c 'echo get it with: apt-get >&2; exit 69'";
        let testbed = started(&plan(&target(missing, "optional = true"))).unwrap();
        assert_eq!(testbed.servers[0].missing.as_deref(), Some("get it with: apt-get"));
        let error = started(&plan(&target(missing, ""))).unwrap_err().to_string();
        assert_eq!(error, "one: ended with exit status: 69: get it with: apt-get");
        let broken = target("sh -c 'exit 64'", "optional = true");
        assert!(started(&plan(&broken)).is_err());
    }

    #[test]
    fn what_prepare_writes_can_be_used() {
        let text = "prepare = \"echo ca=/root.pem\"\n[[target]]\nname = \"one\"\nversion = \"echo {ca}\"";
        let testbed = started(&plan(text)).unwrap();
        assert_eq!(testbed.servers[0].version, "/root.pem");
        assert_eq!(testbed.servers[0].pid, None);
    }

    #[test]
    fn a_wrong_command_says_what_is_wrong() {
        for (start, hint) in [
            ("/nonexistent/server", "one: cannot run \"/nonexistent/server\": "),
            ("nginx {prot}", "one: {prot} in \"{prot}\" stands for nothing: there are {port}"),
            ("", "one: a command is empty"),
        ] {
            let error = started(&plan(&target(start, ""))).unwrap_err().to_string();
            assert!(error.starts_with(hint), "{error}");
        }
    }
}
