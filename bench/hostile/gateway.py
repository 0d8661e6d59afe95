"""brisk as a process whose memory and metrics are sampled."""
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from processes import free_port

from .client import NAME
from .servers import BRISK, certificates


class Brisk:
    """brisk, from `with` to the end of it, and a thread that samples its memory and its metrics each `interval` seconds. With
    `first` it goes before all others on its cores, where the system allows it. `values` fill the configuration."""

    def __init__(self, configuration, cores, folder, first=False, interval=10, **values):
        self.port, self.admin, self.folder, self.interval = free_port(), free_port(), Path(folder), interval
        self.folder.mkdir(exist_ok=True)
        precedence = ["nice", "-n", "-15"] if first and os.geteuid() == 0 else []
        made = certificates()
        (self.folder / "brisk.toml").write_text(configuration.format(
            port=self.port, admin=self.admin, folder=folder, name=NAME, certificates=made, files=made.parent / "www", **values))
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen([*precedence, "taskset", "-c", cores, BRISK, "serve", "--config", self.folder / "brisk.toml"],
                                            stdout=log, stderr=log)
        self.samples, self.stopped = [], threading.Event()
        self.sampler = threading.Thread(target=self.sample, daemon=True)

    def __enter__(self):
        for _ in range(100):
            try:
                self.metrics()
                self.sampler.start()
                return self
            except OSError:
                time.sleep(0.1)
            if self.process.poll() is not None:
                break
        sys.exit(f"brisk does not serve:\n{self.log()}")

    def __exit__(self, *_):
        self.stopped.set()
        self.process.terminate()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def metrics(self):
        """Values by name and labels, and sums over all labels by name alone."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                name = series.split("{")[0]
                found[name] = found.get(name, 0) + float(value)
                found[series] = float(value)
        return found

    def memory(self, line="VmRSS"):
        """Resident bytes; with "VmHWM" the most of them so far."""
        for found in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if found.startswith(f"{line}:"):
                return int(found.split()[1]) * 1024
        return 0

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sample(self):
        """Time, memory and metrics; the latter are None if there was no response."""
        while not self.stopped.wait(self.interval):
            try:
                self.samples.append((time.monotonic(), self.memory(), self.metrics()))
            except OSError:
                self.samples.append((time.monotonic(), None, None))
