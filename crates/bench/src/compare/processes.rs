//! The servers of a comparison: started, waited for, stopped.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use thiserror::Error;

use crate::interrupt::Interrupt;
use crate::plan::{Plan, ProcessSource, Target, Variables};

/// How long a server may take until it accepts connections.
const START: Duration = Duration::from_secs(20);

/// How long it may take to end after SIGTERM; then it is killed.
const STOP: Duration = Duration::from_secs(3);

/// How often a condition is looked at that nobody tells us of.
const POLL: Duration = Duration::from_millis(20);

/// How long one attempt to connect may take: servers are near, and signals are looked at between attempts.
const ATTEMPT: Duration = Duration::from_millis(250);

/// Exit code of a start command whose server is not installed (`EX_UNAVAILABLE`).
const MISSING: i32 = 69;

/// Tells commands of a plan which program runs them, so that they can start it as a server.
const PROGRAM: &str = "BRISK_PROGRAM";

/// Why there is no server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A command or an option of the plan is wrong.
    #[error("{name}: {problem}")]
    Plan {
        /// Of what.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A command cannot be started.
    #[error("{name}: cannot run {command:?}: {reason}")]
    Command {
        /// Of what.
        name: String,
        /// Its words.
        command: String,
        /// What the system said.
        reason: io::Error,
    },
    /// It ended instead of serving.
    #[error("{name}: ended with {status}: {last}")]
    Ended {
        /// Of what.
        name: String,
        /// How.
        status: ExitStatus,
        /// The last line that it wrote to standard error.
        last: String,
    },
    /// It does not accept connections.
    #[error("{name}: no connection to {address} after {} s", START.as_secs())]
    Silent {
        /// Of what.
        name: String,
        /// Where connections were tried.
        address: String,
    },
    /// A signal came.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// A free port or a temporary file could not be had.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl ServerError {
    fn plan(name: &str, problem: String) -> Self {
        Self::Plan { name: name.to_owned(), problem }
    }

    /// Whether the server is not installed, and what its start command says about that.
    fn missing(&self) -> Option<&str> {
        match self {
            Self::Ended { status, last, .. } if status.code() == Some(MISSING) => Some(last),
            _ => None,
        }
    }
}

/// Everything that a plan runs, ready. Dropping it stops what it started.
#[derive(Debug)]
pub struct Stage {
    /// In the order of [`Plan::targets`].
    pub servers: Vec<Server>,
    /// Kept for their processes alone.
    _services: Vec<Process>,
}

/// A target that runs, or does not.
#[derive(Debug)]
pub struct Server {
    /// What its commands and options are filled in with.
    pub variables: Variables,
    /// Its process.
    pub pid: Option<u32>,
    /// What it says of its version; empty if the plan does not ask.
    pub version: String,
    /// Why it is not there.
    pub missing: Option<String>,
    /// Kept to be stopped.
    process: Option<Process>,
}

impl Stage {
    /// Prepares, and starts services and servers one after the other. A server that is optional and not installed is
    /// marked as missing; any other problem is an error. So is a signal, which stops what was started.
    pub fn start(plan: &Plan, interrupt: &Interrupt) -> Result<Self, ServerError> {
        let mut variables = Variables::default();
        let surroundings = Surroundings { folder: &plan.folder, interrupt };
        if let Some(command) = &plan.prepare {
            let lines = surroundings.output("prepare", command, &variables)?;
            for (name, value) in lines.lines().filter_map(|line| line.split_once('=')) {
                variables.set(name, value);
            }
        }
        let mut services = Vec::new();
        for service in &plan.services {
            set_ports(&mut variables, &service.ports)?;
            let fill =
                |text| variables.fill(text).map_err(|problem| ServerError::plan(&service.name, problem));
            let ready = fill(&service.ready)?;
            services.push(surroundings.start(&service.name, &service.start, &variables, &ready)?);
        }
        let start = |target| Server::start(target, variables.clone(), &surroundings);
        let servers = plan.targets.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { servers, _services: services })
    }
}

impl Server {
    fn start(
        target: &Target,
        mut variables: Variables,
        surroundings: &Surroundings<'_>,
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
                match surroundings.start(&target.name, command, &server.variables, &ready) {
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
            let lines = surroundings.output(&target.name, command, &server.variables)?;
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

/// Sets each name to a port that nobody listens on. All are held until all are known, so that no two are the same.
fn set_ports(variables: &mut Variables, names: &[String]) -> io::Result<()> {
    let listeners =
        names.iter().map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<Vec<_>>>()?;
    for (name, listener) in names.iter().zip(&listeners) {
        variables.set(name, listener.local_addr()?.port().to_string());
    }
    Ok(())
}

/// What all commands of a plan have in common.
struct Surroundings<'a> {
    /// Where they run.
    folder: &'a Path,
    interrupt: &'a Interrupt,
}

impl Surroundings<'_> {
    /// A server, when `ready` accepts connections.
    fn start(
        &self,
        name: &str,
        text: &str,
        variables: &Variables,
        ready: &str,
    ) -> Result<Process, ServerError> {
        let mut command = self.command(name, text, variables)?;
        let mut process = Process::spawn(name, command.stdout(Stdio::null()), text)?;
        process.wait_until_ready(ready, self.interrupt)?;
        Ok(process)
    }

    /// What a command writes to standard output; it must succeed.
    fn output(&self, name: &str, text: &str, variables: &Variables) -> Result<String, ServerError> {
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
        // Where a relative program is looked for, if the folder changes too, is not said anywhere.
        let program =
            if program.contains('/') { fs::canonicalize(self.folder)?.join(program) } else { program.into() };
        let mut command = Command::new(program);
        command.args(words).current_dir(self.folder).stdin(Stdio::null());
        if let (Ok(own), None) = (env::current_exe(), env::var_os(PROGRAM)) {
            command.env(PROGRAM, own);
        }
        Ok(command)
    }
}

/// A process of ours in a group of its own, so that a signal from the terminal does not stop it before its time.
#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    complaints: File,
    /// It has ended well, as it was to.
    done: bool,
}

impl Process {
    fn spawn(name: &str, command: &mut Command, text: &str) -> Result<Self, ServerError> {
        // An unnamed file rather than a pipe: nobody has to read it while the process runs.
        let complaints = tempfile::tempfile()?;
        command.stderr(complaints.try_clone()?).process_group(0);
        let child = command.spawn().map_err(|reason| cannot_run(name, text, reason))?;
        Ok(Self { name: name.to_owned(), child, complaints, done: false })
    }

    fn wait_until_ready(&mut self, address: &str, interrupt: &Interrupt) -> Result<(), ServerError> {
        let started = Instant::now();
        while started.elapsed() < START {
            if let Some(status) = self.child.try_wait()? {
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

    /// Returns when it has ended well.
    fn wait_until_done(&mut self, interrupt: &Interrupt) -> Result<(), ServerError> {
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => {
                    self.done = true;
                    return Ok(());
                }
                Some(status) => return Err(self.ended(status)),
                None => rest(interrupt)?,
            }
        }
    }

    fn ended(&mut self, status: ExitStatus) -> ServerError {
        ServerError::Ended { name: self.name.clone(), status, last: self.last_complaint() }
    }

    fn last_complaint(&mut self) -> String {
        // What cannot be read is as good as nothing.
        let text = read_all(&mut self.complaints).unwrap_or_default();
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.map_or_else(|| "it said nothing".to_owned(), |line| line.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        if self.done {
            return;
        }
        // Errors mean that it has ended already.
        let _ = kill_process(pid, Signal::TERM);
        let started = Instant::now();
        while started.elapsed() < STOP && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        // Whatever it has left behind, and itself if it did not end.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// All that was written to a file.
fn read_all(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn cannot_run(name: &str, command: &str, reason: io::Error) -> ServerError {
    ServerError::Command { name: name.to_owned(), command: command.to_owned(), reason }
}

/// A pause before the next look, unless a signal came.
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

    fn started(plan: &Plan) -> Result<Stage, ServerError> {
        Stage::start(plan, &Interrupt::default())
    }

    fn is_running(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_server_is_waited_for_and_stopped() {
        let plan = plan(&target(SERVE, "version = \"echo one {port}\""));
        let stage = started(&plan).unwrap();
        let server = &stage.servers[0];
        let (pid, port) = (server.pid.unwrap(), server.variables.fill("{port}").unwrap());
        assert_eq!(server.version, format!("one {port}"));
        assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
        drop(stage);
        assert!(!is_running(pid));
        assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
    }

    #[test]
    fn what_was_started_is_stopped_when_something_else_fails() {
        let text = target(SERVE, "") + &target("false", "").replace("\"one\"", "\"two\"");
        let error = started(&plan(&text)).unwrap_err().to_string();
        assert_eq!(error, "two: ended with exit status: 1: it said nothing");
    }

    #[test]
    fn a_missing_server_is_left_out_only_where_the_plan_says_so() {
        let missing = "sh -c 'echo get it with: apt-get >&2; exit 69'";
        let stage = started(&plan(&target(missing, "optional = true"))).unwrap();
        assert_eq!(stage.servers[0].missing.as_deref(), Some("get it with: apt-get"));
        let error = started(&plan(&target(missing, ""))).unwrap_err().to_string();
        assert_eq!(error, "one: ended with exit status: 69: get it with: apt-get");
        let broken = target("sh -c 'exit 64'", "optional = true");
        assert!(started(&plan(&broken)).is_err());
    }

    #[test]
    fn what_prepare_writes_can_be_used() {
        let text = "prepare = \"echo ca=/root.pem\"\n[[target]]\nname = \"one\"\nversion = \"echo {ca}\"";
        let stage = started(&plan(text)).unwrap();
        assert_eq!(stage.servers[0].version, "/root.pem");
        assert_eq!(stage.servers[0].pid, None);
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
