"""nginx, HAProxy, Envoy and brisk with the settings in servers/, one worker each."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from string import Template

from shared.gateway import certificates
from shared.processes import Process, free_port, pinned
from shared.programs import BENCH, BRISK, NAME

HERE = Path(__file__).resolve().parent
FILES = {"brisk": "brisk.toml", "nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}


@contextmanager
def upstream(core):
    """The port of the nginx of bench/peers that responds to brisk, on this core, from `with` to the end of it."""
    port = free_port()
    with tempfile.NamedTemporaryFile() as log, Process([BENCH / "peers/run", "upstream", port], log.name, port,
                                                       env={**os.environ, "UPSTREAM_CORE": str(core)}):
        yield port


class Server(Process):
    """A server of this name, from `with` to the end of it. Keyword arguments fill its template."""

    def __init__(self, name, **settings):
        self.name, self.folder = name, Path(tempfile.mkdtemp(prefix=f"hostile-{name}-"))
        port, file = free_port(), self.folder / FILES[name]
        values = {"PORT": port, "FOLDER": self.folder, "NAME": NAME, "CERTIFICATES": certificates(),
                  "ROOT_USER": "user root;" if os.getuid() == 0 else "", "CLIENT_TIMEOUT": 5, "UPSTREAM_TIMEOUT": 60, "STREAM_TIMEOUT": 5,
                  "REQUEST_TIMEOUT": 15, "MULTIPLEXED": 1, **settings}
        # Other variables are those of nginx.
        file.write_text(Template((HERE / "servers" / FILES[name]).read_text()).safe_substitute(values))
        command = {
            "nginx": ["nginx", "-p", self.folder, "-e", self.folder / "error.log", "-c", file],
            "haproxy": ["haproxy", "-db", "-f", file],
            "envoy": ["envoy", "-c", file, "--concurrency", "1", "-l", "error", "--base-id", port, "--file-flush-interval-msec", "50"],
            "brisk": [BRISK, "serve", "--config", file],
        }[name]
        # No server is to drain its connections.
        super().__init__(command, self.folder / "log", port, kind=signal.SIGTERM if name == "nginx" else signal.SIGINT, grace=1)

    def __exit__(self, *_):
        super().__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        files = [self.folder / name for name in ("log", "error.log", "access.log")]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())


class Helper:
    """A module of this folder as a process on `cores`, which ends with its standard input. `gives_way`: it runs only while no other
    process wants its core."""

    def __init__(self, module, *words, cores=None, gives_way=False, output=None):
        command = [sys.executable, "-m", f"hostile.{module}", *map(str, words), *(["gives-way"] if gives_way else [])]
        self.process = subprocess.Popen(pinned(cores, *command), cwd=BENCH, stdin=subprocess.PIPE,
                                        stdout=output or subprocess.PIPE, text=True)

    def __enter__(self):
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def running(self):
        return self.process.poll() is None
