//! The limits of a confined process, tried from inside: the test program executes itself and confines the new process.

#![expect(unsafe_code, reason = "refused system calls have no safe wrappers")]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::thread;

use brisk_sandbox::{Calls, Confinement, Folders, confine, drop_privileges};
use libc::c_long;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, getpid, getppid};
use rustix::io::Errno;
use rustix::process::Resource;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

/// Variable with the folder of the test, in the process to be confined.
const FOLDER: &str = "BRISK_SANDBOX_TEST";

/// Executes the test `name` of this program in a process of its own.
fn child(name: &str, folder: &Path) -> Output {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    command.env(FOLDER, folder).output().expect("a process")
}

fn assert_succeeds(name: &str) {
    let folder = folder();
    let output = child(name, folder.path());
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

/// A folder with the folders `conf`, `state`, `log` and `other`.
fn folder() -> TempDir {
    let folder = TempDir::with_prefix("brisk-test-sandbox-").expect("a folder");
    for name in ["conf", "state", "log", "other"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
        fs::write(folder.path().join(name).join("file"), "text").expect("a file");
    }
    folder
}

fn folders(root: &Path) -> Folders {
    let mut folders = Folders::default();
    folders.read_file(&root.join("conf/file"));
    folders.write_folder(&root.join("state"));
    folders.append_to(&root.join("log/file"));
    folders
}

fn is_denied<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// A field of `/proc/thread-self/status`.
fn status(name: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").expect("the file of this thread");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// Tries the file access that [`folders`] permits and excludes.
fn try_files(root: &Path) {
    let append = |name: &str| OpenOptions::new().append(true).create(true).open(root.join(name));
    fs::read(root.join("conf/file")).expect("a file of the configuration");
    fs::read("/etc/hosts").expect("a file of the system");
    fs::read_dir("/proc/self/task").expect("the threads of this process");
    fs::write(root.join("state/new"), "text").expect("a new file");
    fs::rename(root.join("state/new"), root.join("state/file")).expect("another name");
    fs::create_dir(root.join("state/sub")).expect("a folder");
    append("log/file").expect("a log");
    fs::rename(root.join("log/file"), root.join("log/file.1"))
        .expect_err("only another program renames a log");
    append("log/later").expect("another log");
    OpenOptions::new().write(true).open("/dev/null").expect("a device of the system");
    for refused in ["other/file", "log/file"] {
        assert!(is_denied(fs::read(root.join(refused))), "{refused} was read");
    }
    assert!(is_denied(File::open(root)), "the folder around was listed");
    assert!(is_denied(append("conf/file")), "a file of the configuration was opened to write");
    assert!(is_denied(fs::write(root.join("other/new"), "")), "a file was created");
    assert!(is_denied(fs::remove_file(root.join("conf/file"))), "a file was removed");
}

/// Tries system calls that no filter permits.
fn try_calls() {
    for command in [&mut Command::new("/bin/true"), Command::new("/bin/true").uid(0)] {
        let error = command.spawn().expect_err("a program was executed");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    assert!(is_denied(Err::<(), _>(Command::new("/bin/true").exec())), "the program was replaced");
    assert_eq!(ptrace::attach(getppid()), Err(nix::Error::EPERM), "another process was traced");
    assert_eq!(ptrace::traceme(), Err(nix::Error::EPERM), "ptrace is known");
    let target = [7; 8];
    let read = |process: Pid| {
        let remote = RemoteIoVec { base: target.as_ptr().addr(), len: target.len() };
        process_vm_readv(process, &mut [IoSliceMut::new(&mut [0; 8])], &[remote])
    };
    assert_eq!(read(getpid()), Ok(8), "a profile reads stacks");
    assert_eq!(read(getppid()), Err(nix::Error::EPERM), "the memory of another process was read");
    let signal = rustix::process::test_kill_process(
        rustix::process::Pid::from_raw(getppid().as_raw()).expect("a process"),
    );
    assert_eq!(signal, Err(Errno::PERM), "another process was signalled");
    let parent = rustix::process::Pid::from_raw(getppid().as_raw());
    // The limit that both processes have already.
    let own = rustix::process::getrlimit(Resource::Cpu);
    let limited = rustix::process::prlimit(parent, Resource::Cpu, own);
    assert_eq!(limited.err(), Some(Errno::PERM), "another process was limited");
    rustix::process::prlimit(None, Resource::Cpu, own).expect("a limit of this process");
    try_signals();
    let flags = nix::sched::CloneFlags::CLONE_NEWUSER;
    assert_eq!(nix::sched::unshare(flags), Err(nix::Error::EPERM), "a namespace was created");
}

/// Tries calls that signal the parent, or make the kernel signal it.
fn try_signals() {
    let parent: c_long = getppid().as_raw().into();
    // FIOSETOWN and SIOCSPGRP, which read the process from memory.
    let commands = [0x8901, 0x8902].map(|command: c_long| (libc::SYS_ioctl, [0, command, 0]));
    // F_SETOWN, F_SETSIG and F_SETOWN_EX.
    let owners = [[8, parent], [10, libc::SIGKILL.into()], [15, 0]];
    let owners = owners.map(|[command, argument]| (libc::SYS_fcntl, [0, command, argument]));
    let direct = [
        (libc::SYS_tkill, [parent, 0, 0]),
        (libc::SYS_rt_sigqueueinfo, [parent, 0, 0]),
        (libc::SYS_rt_tgsigqueueinfo, [parent, parent, 0]),
    ];
    for (number, arguments) in owners.into_iter().chain(commands).chain(direct) {
        assert!(is_denied(call(number, arguments)), "call {number} with {arguments:?}");
    }
    // F_GETOWN.
    call(libc::SYS_fcntl, [0, 9, 0]).expect("another command of the same call");
}

/// A system call by its number.
fn call(number: c_long, [first, second, third]: [c_long; 3]) -> io::Result<c_long> {
    let fourth: c_long = 0;
    // SAFETY: the callers pass numbers, and null in the place of pointers.
    let result = unsafe { libc::syscall(number, first, second, third, fourth) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Tries calls that a server needs.
fn try_service() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    thread::spawn(|| ()).join().expect("a thread");
    let process = rustix::process::Pid::from_raw(getpid().as_raw()).expect("a process");
    rustix::process::test_kill_process(process).expect("a signal to this process");
}

#[test]
fn a_confined_process_reaches_its_folders_and_calls_alone() {
    assert_succeeds("confined_as_a_server");
}

#[test]
fn confined_as_a_server() {
    let Some(root) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let privileges = drop_privileges(None, true).expect("fewer rights");
    assert_eq!(privileges.missing, [""; 0]);
    // A thread from before: it must have no more rights than the others.
    let (begin, begun) = channel();
    let other = {
        let root = root.clone();
        thread::spawn(move || {
            begun.recv().expect("a sign");
            (fs::read(root.join("other/file")), Command::new("/bin/true").spawn().map(drop))
        })
    };
    let Confinement { granted, limits_calls, missing } = confine(Some(&folders(&root)), Calls::Server);
    begin.send(()).expect("a thread");
    let (read, executed) = other.join().expect("a thread");
    if limits_calls {
        assert_eq!((status("Seccomp"), status("NoNewPrivs")), ("2".to_owned(), "1".to_owned()));
        if rustix::process::geteuid().is_root() {
            assert_eq!((status("CapBnd"), status("CapInh")), ("0".repeat(16), "0".repeat(16)));
        }
        assert!(is_denied(executed), "a thread from before executed a program");
        try_calls();
        let mode = fs::Permissions::from_mode(0o777);
        assert!(is_denied(fs::set_permissions(root.join("conf/file"), mode)), "a mode was changed");
        let cores = sched_getaffinity(None).expect("the cores of this thread");
        sched_setaffinity(None, &cores).expect("cores of this thread");
        let parent = rustix::process::Pid::from_raw(getppid().as_raw());
        assert_eq!(sched_setaffinity(parent, &cores), Err(Errno::PERM), "another process was moved");
        let packets = Socket::new(Domain::from(libc::AF_PACKET), Type::DGRAM, None);
        assert!(is_denied(packets), "a socket for packets was opened");
    } else {
        eprintln!("skipped: {missing:?}");
    }
    if granted.is_some() {
        assert!(is_denied(read), "a thread from before read a file");
        try_files(&root);
    } else {
        eprintln!("skipped: {missing:?}");
    }
    try_service();
}

#[test]
fn a_process_with_hardware_has_its_files_and_still_no_programs() {
    assert_succeeds("confined_with_hardware");
}

#[test]
fn confined_with_hardware() {
    let Some(root) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let Confinement { granted, limits_calls, missing } = confine(None, Calls::Hardware);
    assert!(granted.is_none());
    if limits_calls {
        assert_eq!(missing, [""; 0]);
        try_calls();
    } else {
        eprintln!("skipped: {missing:?}");
    }
    fs::read(root.join("other/file")).expect("files are not limited");
    try_service();
}
