"""Servers as processes: free ports, their start and end, and their processor time, memory and descriptors."""
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(process, port, seconds, prefix=None, address="127.0.0.1"):
    """Waits until the process listens. False if it does not within this time, or has ended. `prefix` runs the test elsewhere."""
    code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"

    def connects():
        if prefix:
            command = prefix(sys.executable, "-c", code, address, str(port))
            return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
        try:
            socket.create_connection((address, port), 1).close()
            return True
        except OSError:
            return False
    return wait(connects, seconds, process)


def wait(ready, seconds, process=None):
    """Waits until `ready()` is true, and returns its result. False after this time, or when the process has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (process is None or process.poll() is None):
        if found := ready():
            return found
        time.sleep(0.05)
    return False


def end(process, kind=signal.SIGTERM, seconds=10):
    """Sends this signal, and SIGKILL after this time."""
    process.send_signal(kind)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def pinned(cores, *command):
    """The command on these cores, or on all."""
    return [*(["taskset", "-c", str(cores)] if cores is not None else []), *map(str, command)]


def ticks(pid):
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def field(pid, file, name):
    """Bytes in a line of a file in /proc."""
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


class Process:
    """A server from `with` to the end of it. Its output goes to the file `log`. It has started when it listens at `port` of
    `address`, or when `ready()` is true. `prefix` makes the command that runs another in the place of the server. It ends by
    `ending`, or after `grace` seconds."""

    def __init__(self, command, log, port, address="127.0.0.1", ready=None, prefix=None, ending=signal.SIGTERM, grace=2, limit=30,
                 **options):
        self.command, self.file, self.port, self.address = command, Path(log), port, address
        self.ready, self.prefix = ready, prefix
        self.ending, self.grace, self.limit, self.options = ending, grace, limit, options

    def __enter__(self):
        command = [str(word) for word in self.command]
        with open(self.file, "wb") as log:
            self.process = subprocess.Popen(self.prefix(*command) if self.prefix else command, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, **self.options)
        is_ready = (wait(self.ready, self.limit, self.process) if self.ready else
                    listens(self.process, self.port, self.limit, self.prefix, self.address))
        if not is_ready:
            self.__exit__()
            sys.exit(f"{command[0]} does not serve:\n{self.log()[-3000:]}")
        return self

    def __exit__(self, *_):
        end(self.process, self.ending, self.grace)

    def log(self):
        return self.file.read_text(errors="replace")

    def pids(self):
        """The process and its descendants."""
        pids, at = [self.process.pid], 0
        while at < len(pids):
            try:
                for task in Path(f"/proc/{pids[at]}/task").iterdir():
                    pids += map(int, (task / "children").read_text().split())
            except OSError:
                pass
            at += 1
        return pids

    def cpu(self):
        """Seconds of processor time so far, of all its processes."""
        return sum(map(ticks, self.pids()))

    def resident(self, name="VmRSS"):
        """Resident bytes; with "VmHWM" the most of them so far."""
        return field(self.process.pid, "status", name)

    def shared(self):
        """Bytes: the proportional set size of all its processes."""
        return sum(field(pid, "smaps_rollup", "Pss") for pid in self.pids())

    def descriptors(self):
        """Targets of its descriptors, and their paths."""
        for pid in self.pids():
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    yield os.readlink(entry), entry
                except OSError:
                    pass

    def on_disk(self):
        """Bytes in temporary files, which have no names."""
        return sum(entry.stat().st_blocks * 512 for target, entry in self.descriptors()
                   if target.startswith("/") and target.endswith(" (deleted)"))

    def sockets(self):
        return sum(target.startswith("socket:") for target, _ in self.descriptors())
