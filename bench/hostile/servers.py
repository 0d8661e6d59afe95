"""Starts nginx, HAProxy, Envoy and brisk with the settings in servers/, and observes their processes from outside."""
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from string import Template

from processes import end, free_port, listens

from .client import NAME

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))
PATH = f"{CACHE}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
NAMES = ["brisk", "nginx", "haproxy", "envoy"]
TITLES = {"brisk": "brisk", "nginx": "nginx", "haproxy": "HAProxy", "envoy": "Envoy"}
FILES = {"brisk": "brisk.toml", "nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}


def installed(name):
    return shutil.which(BRISK if name == "brisk" else name, path=PATH) is not None


def chosen(wanted, script):
    """The servers that are there. Without brisk there is nothing to measure."""
    names = wanted or NAMES
    for name in names:
        if name not in NAMES:
            sys.exit(f"{script}: no server is called {name}: {' '.join(NAMES)}")
    missing = [name for name in names if not installed(name)]
    if "brisk" in missing:
        sys.exit(f"{script}: no {BRISK}; `make build` makes it")
    for name in missing:
        print(f"{script}: {name} is not installed and left out; get it with: tools/setup strangers", file=sys.stderr)
    return [name for name in names if name not in missing]


def version(name):
    run = subprocess.run([HERE.parent / "peers/run", name, "version"], capture_output=True, text=True,
                         env={**os.environ, "BRISK_PROGRAM": BRISK})
    return run.stdout.strip() or f"{name}, version unknown"


def machine():
    """The machine and the day, for a page."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} cores {cpu}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def certificates():
    """The folder of certificates that bench/peers/prepare makes."""
    prepared = subprocess.run([HERE.parent / "peers/prepare"], capture_output=True, text=True, check=True,
                              env={**os.environ, "PATH": PATH}).stdout
    return Path(dict(line.split("=", 1) for line in prepared.splitlines())["ca"]).parent


@contextmanager
def upstream(core):
    """The port of the nginx of bench/peers that responds to brisk, on this core, from `with` to the end of it."""
    port = free_port()
    nginx = subprocess.Popen([HERE.parent / "peers/run", "upstream", str(port)], env={**os.environ, "PATH": PATH, "UPSTREAM_CORE": core})
    try:
        if not listens(nginx, port, 10):
            sys.exit("the upstream does not serve")
        yield port
    finally:
        nginx.terminate()
        nginx.wait()


class Server:
    """A server of this name, from `with` to the end of it. Keyword arguments fill its template."""

    def __init__(self, name, cores=None, **settings):
        self.name, self.port = name, free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"hostile-{name}-"))
        template = Template((HERE / "servers" / FILES[name]).read_text())
        values = {"PORT": self.port, "FOLDER": self.folder, "NAME": NAME, "CERTIFICATES": certificates(),
                  "ROOT_USER": "user root;" if os.getuid() == 0 else "",
                  "CLIENT_TIMEOUT": 5, "UPSTREAM_TIMEOUT": 60, "STREAM_TIMEOUT": 5, "REQUEST_TIMEOUT": 15,
                  "MULTIPLEXED": 1, **settings}
        # What is left over is nginx's own.
        self.file = self.folder / FILES[name]
        self.file.write_text(template.safe_substitute(values))
        self.start(name, ["taskset", "-c", cores] if cores else [])

    def start(self, name, pinned):
        file = str(self.file)
        command = {
            "nginx": ["nginx", "-p", str(self.folder), "-e", str(self.folder / "error.log"), "-c", file],
            "haproxy": ["haproxy", "-db", "-f", file],
            "envoy": ["envoy", "-c", file, "--concurrency", "1", "-l", "error", "--base-id", str(self.port),
                      "--file-flush-interval-msec", "50"],
            "brisk": [BRISK, "serve", "--config", file],
        }[name]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(pinned + command, stdout=log, stderr=log, env={**os.environ, "PATH": PATH})

    def __enter__(self):
        if listens(self.process, self.port, 20):
            return self
        log = self.log()
        self.__exit__()
        sys.exit(f"{self.name} does not serve with {FILES[self.name]}:\n{log}")

    def __exit__(self, *_):
        # None of them is to drain.
        end(self.process, signal.SIGTERM if self.name == "nginx" else signal.SIGINT, 1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        return "".join((self.folder / file).read_text(errors="replace") for file in ("log", "error.log", "access.log")
                       if (self.folder / file).exists())

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

    def memory(self):
        """Bytes: the proportional set size of all its processes."""
        total = 0
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total

    def descriptors(self):
        """What its descriptors lead to, and their paths."""
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
        """Sockets that it holds."""
        return sum(target.startswith("socket:") for target, _ in self.descriptors())

    def cpu(self):
        """Seconds of processor time so far."""
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")
