"""brisk as a process whose memory and metrics are sampled, and its configuration."""
import os
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from string import Template

from .processes import Process, free_port, pinned
from .programs import BENCH, BRISK, NAME

# Parts of every configuration. A measurement adds keys and tables below `[server]` and `[[host]]`, other sections, and routes.
CONFIGURATION = """
[server]
https = ["127.0.0.1:$port"$second]
workers = $workers
state_dir = "$folder/state"
$server

[access_log]
$access

[admin]
listen = "127.0.0.1:$admin"

$sections

[[host]]
names = ["$name"]
certificates = [$pairs]
$host
"""
PAIR = '{ chain = "$certificates/$kind.pem", key = "$certificates/$kind.key" }'


def certificates():
    """The folder of certificates of bench/peers."""
    prepared = subprocess.run([BENCH / "peers/prepare"], capture_output=True, text=True, check=True).stdout
    return Path(dict(line.split("=", 1) for line in prepared.splitlines())["ca"]).parent


def route(path, *lines):
    return "\n".join(["\n[[host.route]]", f'path = "{path}"', *lines, ""])


def upstream(name, *servers, more=""):
    return f"\n[upstream.{name}]\nservers = [{', '.join(servers)}]\n{more}\n"


class Brisk(Process):
    """brisk with this configuration on `cores`. With `first` it precedes all others on its cores, if the system permits it. A
    thread samples memory and metrics each `interval` seconds. `pairs` are the certificates. Further values replace variables of
    the configuration, `server`, `sections` and `host` among them."""

    def __init__(self, routes, folder, cores="0", first=False, interval=None, pairs=("ecdsa",), **values):
        self.folder, self.admin, self.interval, port = Path(folder), free_port(), interval, free_port()
        self.folder.mkdir(exist_ok=True, parents=True)
        made = values.pop("certificates", None) or certificates()
        values = {"server": "", "sections": "", "host": "", "access": 'format = "off"', "second": "", "workers": 1, "name": NAME,
                  "files": made.parent / "www", **values, "port": port, "admin": self.admin, "folder": folder,
                  "certificates": made, "pairs": ", ".join(PAIR.replace("$kind", kind) for kind in pairs)}
        # Parts of the configuration contain variables too.
        text = CONFIGURATION + routes
        for _ in range(2):
            text = Template(text).safe_substitute(values)
        (self.folder / "brisk.toml").write_text(text)
        precedence = ["nice", "-n", "-15"] if first and os.geteuid() == 0 else []
        command = [*precedence, *pinned(cores, BRISK, "serve", "--config", self.folder / "brisk.toml")]
        super().__init__(command, self.folder / "log", port)
        self.samples, self.stopped = [], threading.Event()

    def __enter__(self):
        super().__enter__()
        if self.interval:
            threading.Thread(target=self.sample, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        super().__exit__()

    def metrics(self):
        """Values by name and labels, and sums over all labels by name alone."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        found = {}
        for line in lines:
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                name = series.split("{")[0]
                found[name] = found.get(name, 0) + float(value)
                found[series] = float(value)
        return found

    def sample(self):
        """Time, memory and metrics; the latter are None if there was no response."""
        while not self.stopped.wait(self.interval):
            try:
                self.samples.append((time.monotonic(), self.resident(), self.metrics()))
            except OSError:
                self.samples.append((time.monotonic(), None, None))
