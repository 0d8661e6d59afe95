"""Measures the memory of brisk while clients of HTTP/3 connect, resume, send early data, migrate, request and cancel.

Runs brisk with one worker and several processes of `http3-client` (quic-go), and samples the memory of brisk. Fails if the median
of the last third of the samples is more than a tenth above that of the second third, or if a client fails.
"""
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

from shared import programs
from shared.figures import MIB, growth, table
from shared.gateway import Brisk, certificates, route
from shared.processes import end
from shared.programs import BRISK, CACHE, NAME

NEEDS = "strangers"
OPTIONS = [("--minutes", 60.0, "duration in minutes"), ("--clients", 4, "number of clients")]


def run(arguments):
    programs.require(BRISK)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-http3-"))
        body = route("/", 'early_data = "safe"', 'respond = { body = "$body" }')
        server = stack.enter_context(Brisk(body, folder, server="http3 = true", access='format = "text"\nfile = "/dev/null"',
                                           body="x" * 10_000))
        clients = []
        for _ in range(arguments.clients):
            words = [CACHE / "bin/http3-client", certificates() / "root.pem", NAME, f"127.0.0.1:{server.port}", "soak"]
            clients.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            stack.callback(end, clients[-1], 9)
        samples, until = [], time.monotonic() + arguments.minutes * 60
        while time.monotonic() < until:
            time.sleep(min(5, arguments.minutes))
            for process in [*clients, server.process]:
                if process.poll() is not None:
                    sys.exit(f"soak-http3: a process ended: {process.stderr.read() if process.stderr else server.log()}")
            samples.append(server.resident() / MIB)
        metrics = server.metrics()
    if len(samples) < 9:
        sys.exit("soak-http3: too short: --minutes 1 is the least")
    rows = ([f"{number * arguments.minutes / len(samples):.1f}", f"{samples[number]:.1f}"]
            for number in range(0, len(samples), max(1, len(samples) // 20)))
    change = growth(samples)
    text = [*table(["minute", "MiB"], rows, left=0), "",
            f"{metrics['brisk_handshakes_total']:.0f} handshakes, {metrics['brisk_requests_total']:.0f} requests; the median of "
            f"the last third is {change:.3f} of that of the second."]
    return "\n".join(text) + "\n", "memory grew by more than a tenth" if change > 1.1 else None
