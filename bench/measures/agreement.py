"""Compares the results of `brisk bench` with those of other load generators.

Runs wrk, h2load, oha, openssl s_time, hsload and `brisk bench` in turn against one nginx, with the server on core 0 and the
client on core 1. A program that is not installed is skipped with a message. `brisk bench compare` cannot do this: it has one load
generator, its own.
"""
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shared import programs
from shared.figures import alternating, number, page, ratio, show, table
from shared.processes import Process, free_port, pinned
from shared.programs import BENCH, BRISK, NAME

NEEDS = "agreement"
OPTIONS = [("--rounds", 9, "number of rounds"), ("--seconds", 2, "duration of each measurement in seconds"),
           ("--only", "", "restriction to cells with this word in their name")]
HSLOAD = os.environ.get("HSLOAD", "hsload")
PATH = "/static"
# A configuration file sets the suites and groups of OpenSSL's clients; the other programs have options.
OPENSSL_CONF = "openssl_conf=a\n[a]\nssl_conf=b\n[b]\nsystem_default=c\n[c]\nCiphersuites=TLS_AES_128_GCM_SHA256\nGroups=X25519\n"
# Sources of programs that Debian does not have.
HINTS = {"oha": " (cargo install oha)", "hsload": " (HSLOAD names its program)"}
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def microseconds(text):
    """`1.25ms` in microseconds."""
    number, unit = re.fullmatch(r"([0-9.]+)(ns|us|ms|s)", text.strip()).groups()
    return float(number) * UNITS[unit]


def found(pattern, text):
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"no {pattern!r} in:\n{text}")
    return match.group(1)


def client_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Runner:
    """The server, the duration, and the files of all measurements."""

    def __init__(self, server, seconds, scratch):
        self.port, self.server, self.seconds = server.port, server, seconds
        self.url = f"https://localhost:{self.port}{PATH}"
        self.openssl_conf = scratch / "openssl.cnf"
        self.openssl_conf.write_text(OPENSSL_CONF)

    def run(self, *command, **environment):
        """The output, after remembering how long it took and what processor time server and client spent meanwhile."""
        before = time.monotonic(), self.server.cpu(), client_cpu()
        result = subprocess.run(
            pinned(1, *command), env=os.environ | environment, capture_output=True, text=True, timeout=60 + 5 * self.seconds)
        after = time.monotonic(), self.server.cpu(), client_cpu()
        self.elapsed, self.server_spent, self.client_spent = (b - a for a, b in zip(before, after))
        if result.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {result.returncode}: {result.stderr.strip()[-500:]}")
        return result.stdout

    def measure(self, program, options):
        """Figures by the names of MEASURES, from what the program printed and from what the processes spent."""
        figures = getattr(self, program)(*options)
        figures["server"] = self.server_spent / self.elapsed * 100
        figures["client"] = self.client_spent / self.elapsed * 100
        # The warm-up of brisk and hsload is in what was spent but not in what they count; they measure the server themselves.
        figures.setdefault("cpu", self.server_spent / (figures["rate"] * self.elapsed) * 1e6)
        return figures

    # Each of the following gives a dictionary of: rate (per second), mean, p50, p99 (latency, us), cpu (server, us).

    def brisk(self, *options):
        latency = "total"
        if options[0].startswith("latency="):
            latency, options = options[0].removeprefix("latency="), options[1:]
        output = json.loads(self.run(
            BRISK, "bench", f"https://127.0.0.1:{self.port}{PATH}", "--sni", NAME, "--insecure", "--json",
            "-d", f"{self.seconds}s", "--server-pid", self.server.process.pid, *options))
        if output["errors"]:
            raise RuntimeError(f"brisk bench met errors: {output['errors']}")
        figures = output["latency_us"][latency]
        result = {"rate": output["rate_per_s"], "mean": figures["mean"], "p50": figures["p50"], "p99": figures["p99"]}
        result["cpu"] = output["server"]["cpu_s"] / output["operations"] * 1e6
        return result

    def hsload(self, *options):
        output = self.run(HSLOAD, "--addr", f"127.0.0.1:{self.port}", "--sni", NAME, "-d", self.seconds,
                          "--server-pid", self.server.process.pid, *options)
        return {"rate": float(found(r"= ([0-9.]+)/s", output)),
                "p50": float(found(r"p50 ([0-9.]+) us", output)),
                "p99": float(found(r"p99 ([0-9.]+) us", output)),
                "cpu": float(found(r"server CPU +([0-9.]+) us", output))}

    def wrk(self, *options):
        output = self.run("wrk", "-t1", f"-d{self.seconds}s", "--latency", "-H", f"Host: {NAME}", *options, self.url,
                          OPENSSL_CONF=str(self.openssl_conf))
        return {"rate": float(found(r"Requests/sec: +([0-9.]+)", output)),
                "mean": microseconds(found(r"Latency +([0-9.]+[mun]?s)", output)),
                "p50": microseconds(found(r"50% +([0-9.]+[mun]?s)", output)),
                "p99": microseconds(found(r"99% +([0-9.]+[mun]?s)", output))}

    def h2load(self, *options):
        output = self.run("h2load", "-t1", f"-D{self.seconds}", "--tls13-ciphers=TLS_AES_128_GCM_SHA256",
                          "--groups=X25519", *options, self.url)
        times = found(r"time for request: +(.*)", output).split()
        return {"rate": float(found(r"finished in [^,]+, ([0-9.]+) req/s", output)), "mean": microseconds(times[2])}

    def oha(self, *options):
        output = json.loads(self.run("oha", "--no-tui", "--insecure", "--output-format", "json", "-z",
                                     f"{self.seconds}s", "--wait-ongoing-requests-after-deadline",
                                     *options, self.url))
        summary, percentiles = output["summary"], output["latencyPercentiles"]
        return {"rate": summary["requestsPerSec"], "mean": summary["average"] * 1e6,
                "p50": percentiles["p50"] * 1e6, "p99": percentiles["p99"] * 1e6}

    def s_time(self, *options):
        # It counts in whole seconds and goes on until the clock has shown enough of them, so the clock is read here.
        began = time.monotonic()
        output = self.run("openssl", "s_time", "-connect", f"127.0.0.1:{self.port}", "-time", self.seconds, *options)
        elapsed = time.monotonic() - began
        connections = int(found(r"\n([0-9]+) connections in [0-9]+ real seconds", output))
        rate = connections / elapsed
        return {"rate": rate, "mean": 1e6 / rate}


TLS13 = ["--tls", "1.3", "--group", "X25519", "--suite", "TLS_AES_128_GCM_SHA256"]
RSA12 = ["--tls", "1.2", "--cert", "rsa", "--group", "X25519", "--suite", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
HANDSHAKES = ["-c", "16", "--handshake-only"]
KEPT = ["-c", "24", "--cert", "ecdsa", *TLS13]

# For each thing that is measured: the programs that can, with their options, the one under test last.
CELLS = [
    ("HTTP/1.1, 24 kept connections", [
        ("wrk", ["-c24"]), ("oha", ["-c", "24"]), ("brisk", KEPT)]),
    ("HTTP/2, 16 connections of 8 streams", [
        ("h2load", ["-c16", "-m8"]), ("oha", ["--http2", "-c", "16", "-p", "8"]),
        ("brisk", ["-c", "16", "--h2", "8", "--cert", "ecdsa", *TLS13])]),
    # wrk keeps its OpenSSL objects, and these resume a TLS 1.3 session that a server gave them; nginx' log shows it.
    # What it calls latency is the time of the request, without the handshake.
    ("ticket, TLS 1.3, ECDSA, and one request, 24 at a time", [
        ("wrk", ["-c24", "-H", "Connection: close"]),
        ("brisk", ["latency=request", "--mix", "psk", "--per-connection", "1", *KEPT])]),
    ("full handshake, TLS 1.3, ECDSA", [
        ("hsload", ["--cert", "ecdsa"]), ("brisk", ["--cert", "ecdsa", *HANDSHAKES, *TLS13])]),
    ("full handshake, TLS 1.3, RSA", [
        ("hsload", ["--cert", "rsa"]), ("brisk", ["--cert", "rsa", *HANDSHAKES, *TLS13])]),
    ("session ID, TLS 1.2, RSA", [
        ("hsload", ["--mode", "session-id", "--tls", "1.2", "--cert", "rsa"]),
        ("brisk", ["--mix", "session-id", *HANDSHAKES, *RSA12])]),
    ("ticket, TLS 1.2, RSA", [
        ("hsload", ["--mode", "ticket", "--tls", "1.2", "--cert", "rsa"]),
        ("brisk", ["--mix", "ticket", *HANDSHAKES, *RSA12])]),
    ("ticket, TLS 1.3, ECDSA", [
        ("hsload", ["--mode", "ticket", "--cert", "ecdsa"]),
        ("brisk", ["--mix", "psk", "--cert", "ecdsa", *HANDSHAKES, *TLS13])]),
    ("full handshake, TLS 1.2, RSA, one at a time", [
        ("s_time", ["-new", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256", "-tls1_2"]),
        ("brisk", ["-c", "1", "--handshake-only", *RSA12])]),
    ("ticket, TLS 1.2, RSA, one at a time", [
        ("s_time", ["-reuse", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256", "-tls1_2"]),
        ("brisk", ["-c", "1", "--mix", "ticket", "--handshake-only", *RSA12])]),
]
MEASURES = [("rate", "per second"), ("mean", "mean"), ("p50", "p50"), ("p99", "p99"), ("cpu", "server CPU"),
            ("server", "server busy"), ("client", "client busy")]


def installed(program):
    return shutil.which({"brisk": BRISK, "hsload": HSLOAD, "s_time": "openssl"}.get(program, program)) is not None


def version(program):
    """Name and version; the name alone if the program does not tell its version, as hsload does not."""
    commands = {"wrk": ["wrk", "-v"], "oha": ["oha", "--version"], "h2load": ["h2load", "--version"],
                "s_time": ["openssl", "version"], "brisk": [BRISK, "--version"]}
    if program not in commands:
        return program
    result = subprocess.run(commands[program], capture_output=True, text=True, check=False)
    # "wrk debian/4.1.0-3+b2 [epoll]", "h2load nghttp2/1.52.0", "OpenSSL 3.0.19 27 Jan 2026": the first number
    # with a dot.
    told = re.search(r"[0-9]+\.[0-9]\S*", result.stdout or result.stderr)
    name = {"s_time": "s_time of OpenSSL"}.get(program, program)
    return f"{name} {told.group(0)}" if told else name


def rows(samples):
    for cell, found in samples.items():
        ours = found.get("brisk", [])
        for index, (program, rounds) in enumerate(found.items()):
            figures = [number(statistics.median(r[m] for r in rounds), 1000) if rounds and rounds[0].get(m) else ""
                       for m, _ in MEASURES]
            ratios = [""] * 3
            if program != "brisk" and ours and rounds:
                latency = "p50" if "p50" in rounds[0] else "mean"
                ratios = [ratio([r[m] for r in ours], [r[m] for r in rounds], spread="quartiles")
                          for m in ("rate", latency, "cpu")]
            yield [cell if index == 0 else "", program, *figures, *ratios]


def run(arguments):
    programs.require(BRISK)
    missing = sorted({program for _, cells in CELLS for program, _ in cells if not installed(program)})
    for program in missing:
        print(f"agreement: {program} is not installed and is skipped{HINTS.get(program, str())}", file=sys.stderr)
    cells = [(cell, [one for one in generators if one[0] not in missing]) for cell, generators in CELLS if arguments.only in cell]
    tasks = [(cell, *generator) for cell, generators in cells if len(generators) > 1 for generator in generators]
    samples = {cell: {} for cell, _, _ in tasks}
    with tempfile.TemporaryDirectory() as scratch:
        scratch, port = Path(scratch), free_port()
        with Process([BENCH / "peers/run", "nginx", port], scratch / "log", port) as server:
            runner = Runner(server, arguments.seconds, scratch)
            for turn, (cell, program, options) in alternating(arguments.rounds, tasks):
                show(f"round {turn + 1} of {arguments.rounds}: {cell}: {program}")
                samples[cell].setdefault(program, []).append(runner.measure(program, options))
    show()
    head = ["", "program", *(title for _, title in MEASURES), "rate", "latency", "CPU"]
    versions = ", ".join(map(version, dict.fromkeys(program for _, program, _ in tasks)))
    return page("agreement", arguments=arguments, versions=versions, rows=table(head, rows(samples), left=2))
