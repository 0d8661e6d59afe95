"""nginx, HAProxy, Envoy and brisk with the settings in servers/, one worker each."""
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager

from shared.gateway import certificates
from shared.processes import Process, free_port, pinned
from shared.programs import BENCH, NAME
from shared.servers import Server

FILES = {"brisk": "brisk.toml", "nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}


@contextmanager
def upstream(core):
    """The port of the nginx of bench/peers that responds to brisk, on this core, from `with` to the end of it."""
    port = free_port()
    with tempfile.NamedTemporaryFile() as log, Process([BENCH / "peers/run", "upstream", port], log.name, port,
                                                       env={**os.environ, "UPSTREAM_CORE": str(core)}):
        yield port


class Hardened(Server):
    """A server of this name, with its usual hardening. Keyword arguments fill its template."""

    def __init__(self, name, **settings):
        self.name = name
        super().__init__(f"hostile/servers/{FILES[name]}", tempfile.mkdtemp(prefix=f"hostile-{name}-"), **{
            "NAME": NAME, "CERTIFICATES": certificates(), "CLIENT_TIMEOUT": 5, "UPSTREAM_TIMEOUT": 60, "STREAM_TIMEOUT": 5,
            "REQUEST_TIMEOUT": 15, "MULTIPLEXED": 1, **settings})

    def __exit__(self, *_):
        super().__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        files = [self.folder / name for name in ("log", "error.log", "access.log")]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())


class Helper:
    """A module of this folder as a process on `cores`, which ends with its standard input. `gives_way`: it runs only while no
    other process wants its core."""

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
