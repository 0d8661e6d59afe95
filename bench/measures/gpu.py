"""Measures full RSA handshakes of the gateway with and without a GPU.

brisk with four workers and four key threads runs on the first half of the cores, the clients on the second half. First the
clients keep a number of handshakes in progress, then they begin handshakes at a fixed rate. Processor alone and processor with
GPU alternate: A, B, B, A. brisk needs the feature `cuda`; the machine needs an NVIDIA driver, NVRTC, openssl and at least four
cores.
"""
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from shared import programs
from shared.certificates import AUTHORITY, server as extensions, sign
from shared.figures import table
from shared.gateway import Brisk, route
from shared.load import bench, report
from shared.programs import BRISK, NAME

NEEDS, BUILDS, PAGE = "test", "--package brisk-cli --features brisk-cli/cuda", None
OPTIONS = [("--seconds", 3, "duration of each load, in seconds")]
# Size of the key; loads as numbers of handshakes in progress and as handshakes per second.
LOADS = [(2048, [("-c", 64), ("-c", 512), ("-c", 2048), ("--rate", 15_000), ("--rate", 30_000), ("--rate", 40_000)]),
         (4096, [("-c", 512), ("-c", 2048), ("--rate", 3_000), ("--rate", 20_000)])]
KEYS = """
[keys]
threads = 4
queue = 16384
cuda = $cuda
"""
HEAD = ["key", "load", "engines", "handshakes/s", "p50 ms", "p99 ms", "not begun in time", "server, cores", "share of the GPU"]


def operations(server):
    """Numbers of RSA operations by engine, and of results that failed their check."""
    metrics, found = server.metrics(), {}
    for series, value in metrics.items():
        if match := re.match(r'brisk_key_operations_total\{engine="([^"]+)",algorithm="rsa"', series):
            found[match[1]] = found.get(match[1], 0) + value
    return found, metrics["brisk_key_faults_total"]


def figures(result, before, after, used):
    """Figures of one load. Handshakes of the warm-up count among the operations only."""
    done, faults = {engine: count - before[0].get(engine, 0) for engine, count in after[0].items()}, after[1] - before[1]
    if result["errors"] or faults:
        print(f"gpu: {faults:.0f} faults; {result['errors']}", file=sys.stderr)
    if "total" not in result["latency_us"]:
        sys.exit("gpu: no handshake ended in time; try more --seconds")
    latency = result["latency_us"]["total"]
    return {"rate": result["rate_per_s"], "p50": latency["p50"] / 1e3, "p99": latency["p99"] / 1e3,
            "unstarted": result.get("unstarted") or 0, "cores": used, "gpu": done.get("cuda", 0) / sum(done.values())}


def measure(folder, bits, cuda, loads, seconds):
    """All loads once, with a server of their own."""
    half = os.cpu_count() // 2
    sign(folder, "ca", "bench CA", None, AUTHORITY)
    sign(folder, "leaf", NAME, "ca", extensions(NAME), bits)
    with Brisk(route("/", 'respond = { body = "x" }'), folder, f"0-{half - 1}", pairs=("leaf",), certificates=folder, workers=4,
               sections=KEYS, cuda=str(cuda).lower()) as server:
        if "keys.cuda:" in server.log():
            sys.exit(f"gpu: {server.log()}")
        for option, load in loads:
            options = ["-c", load] if option == "-c" else ["-c", 2048, option, load]
            before, used, began = operations(server), server.cpu(), time.monotonic()
            result = report(bench(server.port, f"{half}-{2 * half - 1}", "/", seconds, "--handshake-only", "--tls", "1.3",
                                  "--group", "X25519", "-t", half, *options, ca=folder / "ca.pem"))
            used = (server.cpu() - used) / (time.monotonic() - began)
            yield (option, load), figures(result, before, operations(server), used)


def row(bits, load, cuda, rounds):
    """The values of the rounds."""
    each = lambda key, form: " / ".join(format(found[key], form) for found in rounds)
    kind, number = load
    return [f"RSA-{bits}", f"{number:,} {'in progress' if kind == '-c' else '/s begun'}", "GPU" if cuda else "processor",
            each("rate", ",.0f"), each("p50", ",.1f"), each("p99", ",.1f"), each("unstarted", ","), each("cores", ".1f"),
            each("gpu", ".0%")]


def run(arguments):
    programs.require(BRISK)
    rows = []
    for bits, loads in LOADS:
        rounds = {(load, cuda): [] for load in loads for cuda in (False, True)}
        for cuda in (False, True, True, False):
            with tempfile.TemporaryDirectory() as folder:
                for load, found in measure(Path(folder), bits, cuda, loads, arguments.seconds):
                    rounds[load, cuda].append(found)
        rows += [row(bits, load, cuda, found) for (load, cuda), found in rounds.items()]
    return "\n".join(table(HEAD, rows, left=3)) + "\n"
