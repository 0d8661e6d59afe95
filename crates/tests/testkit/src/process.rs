//! Programs started by tests: their output is captured, and they are killed when dropped.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io::{Read, Write};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::programs::{self, program};

/// Timeout of a condition; generous, since it elapses only when a test fails.
pub const TIMEOUT: Duration = Duration::from_mins(3);

/// A command for an external program without standard input. Fails the test like [`program`].
pub fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    command.stdin(Stdio::null());
    command
}

/// Like [`command`], for a program that `tools/programs` marks as optional; `None` if it is not installed, so that the
/// test is to be skipped.
pub fn optional_command(name: &str) -> Option<Command> {
    let mut command = Command::new(programs::optional(name)?);
    command.stdin(Stdio::null());
    Some(command)
}

/// Waits until `condition` returns a value; fails the test with `what` after [`TIMEOUT`].
#[track_caller]
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < TIMEOUT, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Captured,
    stderr: Captured,
}

impl Process {
    /// Starts `command` with its output captured.
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stdout = Captured::of(child.stdout.take().expect("stdout is piped"));
        let stderr = Captured::of(child.stderr.take().expect("stderr is piped"));
        Self { name, child, stdout, stderr }
    }

    /// Starts `command` and never reads its standard error, like a supervisor that hangs.
    pub fn start_unread(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stdout = Captured::of(child.stdout.take().expect("stdout is piped"));
        // The pipe stays open in `child` and is not read.
        Self { name, child, stdout, stderr: Captured::default() }
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Standard output so far, with all that the program wrote before this call.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Standard error so far, with all that the program wrote before this call.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of this process")
    }

    /// Waits until it ends.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        wait_until(&what, || self.ended())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill_process(Pid::from_raw(id).expect("a process id"), signal).expect("a running process");
    }

    /// Waits until it listens on a Unix socket.
    #[track_caller]
    pub fn await_socket(&mut self, socket: &Path) {
        wait_until("a listening socket", || {
            assert!(self.ended().is_none(), "{}{}", self.stdout(), self.stderr());
            UnixStream::connect(socket).ok()
        });
    }

    /// Suspends it; `Signal::CONT` resumes it. Returns when all threads have stopped.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = PathBuf::from(format!("/proc/{}/task", self.id()));
        let is_stopped = |task: DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // `id (name) state`; a thread that has ended meanwhile does not run either.
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 'Z', 'X']))
        };
        wait_until("a process that has stopped", || {
            let mut tasks = fs::read_dir(&tasks).expect("a running process").filter_map(Result::ok);
            tasks.all(is_stopped).then_some(())
        });
    }

    /// Resident memory in bytes (`VmRSS`).
    pub fn resident_bytes(&self) -> u64 {
        let file = format!("/proc/{}/status", self.id());
        let status = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a VmRSS line");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kibibytes * 1024
    }

    /// Processor time so far, in clock ticks of 10 ms.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("a running process");
        // The last bracket, because a name may contain brackets and spaces.
        let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
        after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks")).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- {} wrote:\n{}{}", self.name, self.stdout(), self.stderr());
        }
    }
}

/// The output of a pipe so far. A thread reads it, so that the program never blocks on a full pipe.
#[derive(Debug, Clone, Default)]
struct Captured(Arc<Capture>);

#[derive(Debug, Default)]
struct Capture {
    /// `None` if nothing is captured.
    pipe: Option<OwnedFd>,
    bytes: Mutex<Vec<u8>>,
}

impl Captured {
    fn of(pipe: impl Into<OwnedFd>) -> Self {
        let capture = Arc::new(Capture { pipe: Some(pipe.into()), bytes: Mutex::default() });
        let own = Arc::clone(&capture);
        thread::spawn(move || {
            while own.has_more() {
                drop(own.read());
            }
        });
        Self(capture)
    }

    fn text(&self) -> String {
        // The thread may be late: a program that has ended, or has logged an event, must not seem silent.
        String::from_utf8_lossy(&self.0.read()).into_owned()
    }
}

impl Capture {
    /// Waits for bytes in the pipe. `false` at its end.
    fn has_more(&self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        loop {
            let mut pipes = [PollFd::new(pipe, PollFlags::IN)];
            match poll(&mut pipes, None) {
                Ok(_) => return pipes[0].revents().contains(PollFlags::IN),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Adds all bytes that are in the pipe.
    fn read(&self) -> MutexGuard<'_, Vec<u8>> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that no other thread takes these bytes, and the call does not wait.
        if let Some(pipe) = &self.pipe
            && let Ok(length @ 1..) = ioctl_fionread(pipe)
        {
            let mut piece = vec![0; usize::try_from(length).expect("the length of a pipe")];
            if let Ok(length) = read(pipe, &mut piece[..]) {
                bytes.extend_from_slice(&piece[..length]);
            }
        }
        bytes
    }
}

/// Exit status and output of a program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Standard output of a successful program; fails the test otherwise.
    #[track_caller]
    pub fn success(self) -> String {
        assert!(self.status.success(), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self.stdout
    }

    /// Standard output followed by standard error.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { status: output.status, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Runs `command` to its end, with `input` on its standard input. A program that exceeds `limit` is killed and fails
/// the test.
pub fn run(command: &mut Command, input: &[u8], limit: Duration) -> Finished {
    let line = describe(command);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    // A program that does not read all of its input is not an error.
    thread::spawn(move || stdin.write_all(&input));
    // Both pipes are read by threads: a full pipe would block the program, and this function waits for its
    // end.
    let stdout = reader(child.stdout.take().expect("stdout is piped"));
    let stderr = reader(child.stderr.take().expect("stderr is piped"));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of this process") {
            break status;
        }
        if started.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{line} did not end within {limit:?}");
        }
        thread::sleep(Duration::from_millis(2));
    };
    let join = |reader: thread::JoinHandle<Vec<u8>>| reader.join().expect("a reader does not panic");
    Output { status, stdout: join(stdout), stderr: join(stderr) }.into()
}

fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // On an error, the output read so far is kept.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Ports of a [block](block_of_ports).
const BLOCK: u16 = 500;

/// A port without a listener. It is below the range that the kernel uses for outgoing connections, and no other test gets it, in
/// another process either.
pub fn free_port() -> u16 {
    static LEFT: Mutex<Range<u16>> = Mutex::new(0..0);
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        if let Some(port) = left.find(is_free) {
            return port;
        }
        *left = wait_until("ports that no other test has", block_of_ports);
    }
}

/// Ports between 10,000 and 30,000 that belong to this process until its end: a port that is free for two processes at the same
/// time would lead the clients of one to the server of the other.
fn block_of_ports() -> Option<Range<u16>> {
    // Files of another user could not be locked.
    let folder = env::temp_dir().join(format!("brisk-test-ports-{}", getuid().as_raw()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let is_own = |first: &u16| {
        let path = folder.join(first.to_string());
        let file = File::options().create(true).append(true).open(path).expect("a temporary file");
        let is_locked = file.try_lock().is_ok();
        if is_locked {
            // The lock ends with the process.
            mem::forget(file);
        }
        is_locked
    };
    let first = (10_000..30_000).step_by(BLOCK.into()).find(is_own)?;
    Some(first..first + BLOCK)
}

/// Starts a server that takes its port as an argument: `command` creates the command for a port. Returns when it
/// listens.
pub fn serve_on_free_port(mut command: impl FnMut(u16) -> Command) -> (Process, SocketAddr) {
    // A free port may be taken before the server binds it.
    for _ in 0..5 {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut process = Process::start(&mut command(address.port()));
        let listens = wait_until("a server that listens", || match TcpStream::connect(address) {
            // Before a success: another program may have taken the port, and accept the connection.
            _ if process.ended().is_some() => Some(false),
            Ok(_) => Some(true),
            Err(_) => None,
        });
        if listens {
            return (process, address);
        }
        eprintln!("{}{}", process.stdout(), process.stderr());
    }
    panic!("a server ended five times before it listened")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn output_and_status_of_a_program_come_back() {
        let finished = run(command("sh").args(["-c", "cat; echo wrong >&2; exit 3"]), b"input", TIMEOUT);
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("input", "wrong\n"));
    }

    #[test]
    #[should_panic(expected = "did not end within")]
    fn a_program_that_does_not_end_fails_the_test() {
        run(command("sleep").arg("60"), b"", Duration::from_millis(20));
    }

    #[test]
    fn output_is_complete_when_a_process_has_ended() {
        for _ in 0..20 {
            let mut process = Process::start(command("sh").args(["-c", "echo out; echo error >&2"]));
            assert!(process.wait().success());
            assert_eq!((process.stdout().as_str(), process.stderr().as_str()), ("out\n", "error\n"));
        }
    }

    #[test]
    fn ports_are_given_once() {
        let ports: HashSet<_> = (0..1200).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 1200);
    }

    #[test]
    fn a_process_is_gone_when_dropped() {
        let process = Process::start(command("sleep").arg("60"));
        let folder = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(folder.exists());
        drop(process);
        assert!(!folder.exists());
    }
}
