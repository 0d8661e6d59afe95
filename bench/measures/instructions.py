"""Counts the instructions of brisk for an operation, with valgrind's callgrind.

Counts have no noise: they differ by less than 1 % between runs and machines, so that they show changes which are lost in
processor time. They say nothing of the kernel, of caches, nor of instructions that valgrind does not know: SHA, VAES and AVX-512.
Each count is the difference between two loads, of which one has three times as many operations, so that starts and connections
cancel out. Takes two minutes. `brisk bench compare` cannot do this: it has no tool between the target and the load.
"""
import ctypes
import os
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from hostile.servers import upstream as nginx
from shared import programs
from shared.figures import page
from shared.gateway import Brisk, route, upstream
from shared.load import bench, report
from shared.programs import BRISK

NEEDS = "peers instructions"
OPTIONS = [("--operations", 3000, "number of operations of the shorter load"), ("--only", None, "part of the names of rows")]
# Each row: path, and options of the load.
ROWS = {
    "HTTP/1.1, local": ("/static", ["-c", "32"]),
    "HTTP/1.1, proxied": ("/1k", ["-c", "32"]),
    "HTTP/2, local": ("/static", ["-c", "16", "--h2", "8"]),
    "HTTP/2, proxied": ("/1k", ["-c", "16", "--h2", "8"]),
    "HTTP/2, proxied, 100 streams": ("/1k", ["-c", "2", "--h2", "100"]),
    "HTTP/3, local": ("/static", ["-c", "8", "--h3", "8"]),
    "HTTP/3, full handshake with GET": ("/static", ["-c", "8", "--h3", "1", "-r", "1"]),
    "TLS 1.3, full handshake": ("/static", ["-c", "8", "--handshake-only"]),
    "TLS 1.2, full handshake": ("/static", ["-c", "8", "--handshake-only", "--tls", "1.2"]),
    "TLS 1.3, resumed": ("/static", ["-c", "8", "--handshake-only", "--tls", "1.3", "--mix", "psk"]),
}
# Operations of a handshake cost a hundred times as many instructions as requests.
DEAR = 20
# Clients of TLS 1.2 name the curve of the certificate among their groups too.
LOAD = ["--group", "X25519", "--group", "P-256", "--cert", "ecdsa", "--suite", "TLS_AES_128_GCM_SHA256", "--suite",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]
PR_GET_AUXV = 0x41555856


def hide_vectors():
    """Lets `prctl(PR_GET_AUXV)` fail in this process: it names memory of the kernel's vDSO, which valgrind does not map."""
    words = [(0x20, 0, 0, 0), (0x15, 0, 3, 157), (0x20, 0, 0, 16), (0x15, 0, 1, PR_GET_AUXV), (0x06, 0, 0, 0x00050016),
             (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in words))
    program = struct.pack("HxxxxxxP", len(words), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program)):
        raise OSError(ctypes.get_errno(), "seccomp")


class Counted(Brisk):
    """brisk under callgrind, which counts between `control` on and off."""

    def __init__(self, routes, folder, **values):
        super().__init__(routes, folder, None, **values)
        self.counts = self.folder / "counts"
        self.command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={self.counts}",
                        *self.command]
        # brisk would start itself anew with a setting of glibc, outside of valgrind.
        self.options = {"preexec_fn": hide_vectors, "env": {**os.environ, "BRISK_STARTED_ANEW": "1"}}
        self.ending, self.grace, self.dumps = signal.SIGKILL, 1, 0

    def control(self, *words):
        subprocess.run(["callgrind_control", *words, str(self.process.pid)], check=True, capture_output=True)

    def count(self, path, load, operations):
        """Instructions during this number of operations."""
        self.control("-i", "on")
        send(self.port, path, load, operations)
        self.control("-i", "off")
        self.control("-d")
        self.dumps += 1
        file = Path(f"{self.counts}.{self.dumps}")
        while not (file.exists() and "totals:" in (text := file.read_text())):
            time.sleep(0.1)
        return int(text.rsplit("totals:", 1)[1].split()[0])


def send(port, path, load, operations):
    report(bench(port, None, path, 600, "--timeout", "60s", "-n", operations, *LOAD, *load, warmup="0"), strict=True)


def per_operation(brisk, name, arguments):
    path, load = ROWS[name]
    operations = arguments.operations // (DEAR if "handshake" in name or "resumed" in name else 1)
    send(brisk.port, path, load, operations)
    short, long = (brisk.count(path, load, number * operations) for number in (1, 3))
    return (long - short) / (2 * operations)


def run(arguments):
    programs.require(BRISK)
    routes = route("/static", 'respond = { body = "$body" }') + route("/", 'upstream = "app"') + upstream(
        "app", '"http://127.0.0.1:$app"')
    with tempfile.TemporaryDirectory(prefix="brisk-instructions-") as scratch, nginx(0) as app:
        with Counted(routes, scratch, server="http3 = true", body="x" * 1024, app=app) as brisk:
            names = [name for name in ROWS if not arguments.only or arguments.only in name]
            rows = [[name, f"{per_operation(brisk, name, arguments):,.0f}"] for name in names]
    return page("instructions", arguments=arguments, rows=rows)
