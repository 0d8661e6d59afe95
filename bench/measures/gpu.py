#!/usr/bin/env python3
"""Measures full RSA handshakes of the gateway with and without a GPU.

brisk with four workers and four key threads runs on the first half of the cores, the clients on the second half. First the
clients keep a number of handshakes in progress, then they begin handshakes at a fixed rate. Processor alone and processor with
GPU alternate: A, B, B, A. Writes a table (Markdown). The brisk of BRISK_PROGRAM needs the feature `cuda`; the machine needs an
NVIDIA driver, NVRTC, openssl and at least four cores. `make gpu` calls this script.

usage: gpu [--seconds S] [--output FILE]
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from processes import end, free_port, listens

CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))
NAME = "bench.test"
# Size of the key; loads as numbers of handshakes in progress and as handshakes per second.
LOADS = [(2048, [("-c", 64), ("-c", 512), ("-c", 2048), ("--rate", 15_000), ("--rate", 30_000), ("--rate", 40_000)]),
         (4096, [("-c", 512), ("-c", 2048), ("--rate", 3_000), ("--rate", 20_000)])]
CONFIGURATION = """
[server]
https = ["127.0.0.1:{port}"]
workers = 4
state_dir = "{folder}/state"
[access_log]
format = "off"
[admin]
listen = "127.0.0.1:{admin}"
[keys]
threads = 4
queue = 16384
cuda = {cuda}
[[host]]
names = ["{name}"]
certificates = [{{ chain = "{folder}/leaf.pem", key = "{folder}/leaf.key" }}]
[[host.route]]
path = "/"
respond = {{ body = "x" }}
"""
HEAD = """| key | load | engines | handshakes/s | p50 ms | p99 ms | not begun in time | server, cores | share of the GPU |
|---|---|---|---:|---:|---:|---:|---:|---:|"""


def certificates(folder, bits):
    """A CA with P-256 and a certificate with an RSA key of this size."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=bench CA", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-newkey", f"rsa:{bits}", "-nodes", "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", f"/CN={NAME}",
            "-addext", f"subjectAltName=DNS:{NAME}")
    openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy",
            "-out", "leaf.pem")


def operations(admin):
    """Numbers of RSA operations by engine, and of results that failed their check."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics").read().decode()
    found = {}
    for engine, value in re.findall(r'^brisk_key_operations_total\{engine="([^"]+)",algorithm="rsa"[^}]*\} (\S+)$', text, re.M):
        found[engine] = found.get(engine, 0) + float(value)
    found["faults"] = float(re.search(r"^brisk_key_faults_total (\S+)$", text, re.M).group(1))
    return found


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(client, before, after, used):
    """Figures of one load. Handshakes of the warm-up count among the operations only."""
    if not client.stdout:
        sys.exit(f"gpu: brisk bench: {client.stderr.strip()}")
    result = json.loads(client.stdout)
    done = {engine: after[engine] - before.get(engine, 0) for engine in after}
    faults = done.pop("faults")
    if result["errors"] or faults:
        print(f"gpu: {faults:.0f} faults; {result['errors']}", file=sys.stderr)
    if "total" not in result["latency_us"]:
        sys.exit("gpu: no handshake ended in time; try more --seconds")
    latency = result["latency_us"]["total"]
    return {"rate": result["rate_per_s"], "p50": latency["p50"] / 1e3, "p99": latency["p99"] / 1e3,
            "unstarted": result.get("unstarted") or 0, "cores": used, "gpu": done.get("cuda", 0) / sum(done.values())}


def measure(folder, bits, cuda, loads, seconds):
    """All loads once, with a server of their own."""
    certificates(folder, bits)
    port, admin, half = free_port(), free_port(), os.cpu_count() // 2
    (folder / "brisk.toml").write_text(
        CONFIGURATION.format(port=port, admin=admin, folder=folder, name=NAME, cuda=str(cuda).lower()))
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(["taskset", "-c", f"0-{half - 1}", BRISK, "serve", "--config", folder / "brisk.toml"],
                                  stdout=log, stderr=log)
    try:
        if not listens(server, port, 30) or "keys.cuda:" in (folder / "log").read_text():
            sys.exit(f"gpu: {(folder / 'log').read_text()}")
        for option, load in loads:
            options = ["-c", load] if option == "-c" else ["-c", 2048, option, load]
            arguments = ["--connect", f"127.0.0.1:{port}", "--ca", folder / "ca.pem", "--json", "--handshake-only", "--tls", "1.3",
                         "--group", "X25519", "-t", half, "-d", f"{seconds}s", "--warmup", "1s", *options]
            before, used, began = operations(admin), processor_seconds(server.pid), time.monotonic()
            client = subprocess.run(["taskset", "-c", f"{half}-{2 * half - 1}", BRISK, "bench", f"https://{NAME}/",
                                     *map(str, arguments)], capture_output=True, text=True)
            used = (processor_seconds(server.pid) - used) / (time.monotonic() - began)
            yield (option, load), report(client, before, operations(admin), used)
    finally:
        end(server, signal.SIGTERM, 10)


def row(bits, load, cuda, rounds):
    """A line of the table: the values of the rounds."""
    each = lambda key, form: " / ".join(format(figures[key], form) for figures in rounds)
    kind, number = load
    return (f"| RSA-{bits} | {number:,} {'in progress' if kind == '-c' else '/s begun'} | {'GPU' if cuda else 'processor'} | "
            f"{each('rate', ',.0f')} | {each('p50', ',.1f')} | {each('p99', ',.1f')} | {each('unstarted', ',')} | "
            f"{each('cores', '.1f')} | {each('gpu', '.0%')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=3, help="duration of each load, in seconds [default: %(default)s]")
    parser.add_argument("--output", type=Path, help="file for the table")
    arguments = parser.parse_args()
    lines = [HEAD]
    for bits, loads in LOADS:
        rounds = {(load, cuda): [] for load in loads for cuda in (False, True)}
        for cuda in (False, True, True, False):
            with tempfile.TemporaryDirectory() as folder:
                for load, figures in measure(Path(folder), bits, cuda, loads, arguments.seconds):
                    rounds[load, cuda].append(figures)
        lines += [row(bits, load, cuda, figures) for (load, cuda), figures in rounds.items()]
    text = "\n".join(lines) + "\n"
    if arguments.output:
        arguments.output.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
