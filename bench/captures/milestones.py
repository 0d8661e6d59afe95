"""Milestones of the same connections by `brisk serve`, `brisk bench` and the packets between them.

All three run on the loopback device of a network namespace, so they have one clock. `brisk capture --join` places the records of
both programs beside the packets; this module summarises the differences.
"""
import collections
import json
import os
import statistics
import subprocess
import time

from shared.figures import page, table
from shared.link import Namespace
from shared.processes import pinned
from shared.programs import BRISK
from shared.servers import Server

from .recording import NAME, recorder

PORT = 8443
# Name, options of brisk bench, and connections; 1,000 in all.
RUNS = [
    ("TLS 1.3, HTTP/1.1", ["--tls", "1.3"], 400),
    ("TLS 1.3, HTTP/2", ["--tls", "1.3", "--h2", "1"], 200),
    ("TLS 1.3, resumed", ["--tls", "1.3", "--mix", "psk"], 200),
    ("TLS 1.2", ["--tls", "1.2"], 200),
]
# Connections per second: queues would be part of the differences.
RATE = 100
# Before other programs of the machine, whose time would be part of the differences. Needs root.
PRIORITY = [] if os.getuid() else ["chrt", "--rr", "10"]
MILESTONES = ["tcp-established", "client-hello", "handshake-finished", "first-request", "first-response"]
ACCESS = 'access_log = { format = "json", file = "$FOLDER/access.log", milestones = true }'


def record(folder):
    """Runs the load, and returns the lines of `brisk capture --json` of each run."""
    keys, log = folder / "keys", folder / "access.log"
    url = f"https://127.0.0.1:{PORT}/"
    with Namespace() as inside:
        probe = ["curl", "--silent", "--insecure", "--output", "/dev/null", url]
        prefix = lambda *command: inside.at("env", f"SSLKEYLOGFILE={keys}", *PRIORITY, *pinned(0, *command), "--keylog")
        with Server("servers/capture.toml", folder, prefix=prefix,
                    ready=lambda: subprocess.run(inside.at(*probe)).returncode == 0, PORT=PORT,
                    NAME=NAME, CERTIFICATE=folder / NAME, ACCESS=ACCESS, ROUTE=""), \
                recorder(lambda *words: inside.at(*PRIORITY, *words), "lo", folder / "loopback.pcap") as capture:
            for index, (_, options, number) in enumerate(RUNS):
                words = [*PRIORITY, *pinned(os.cpu_count() - 1, BRISK, "bench", url, "--sni", NAME, "--insecure", "-r", 1,
                                            "--rate", RATE, "-n", number, "--records", folder / f"bench-{index}", *options)]
                subprocess.run(inside.at(*words), check=True, stdout=subprocess.DEVNULL)
            time.sleep(1)
    joined = [word for index in range(len(RUNS)) for word in ("--join", folder / f"bench-{index}")]
    words = [BRISK, "capture", capture, "--json", "--keylog", keys, "--join", log, *joined]
    lines = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == "connection"]


def differences(connections):
    """Microseconds between two of the three, by run, pair and milestone; and the number of connections that all three have."""
    found, complete = collections.defaultdict(list), collections.Counter()
    for connection in connections:
        after = {record["source"]: record.get("after_packets_us", {}) for record in connection.get("records", [])}
        run = next((index for index in range(len(RUNS)) if f"bench-{index}" in after), None)
        if run is None:
            continue
        bench, serve = after[f"bench-{run}"], after.get("access.log", {})
        complete[run] += all(name in bench and name in serve for name in MILESTONES)
        for name in MILESTONES:
            if name in serve:
                found[run, "serve – packets", name].append(serve[name])
            if name in bench:
                found[run, "bench – packets", name].append(bench[name])
            if name in serve and name in bench:
                found[run, "serve – bench", name].append(serve[name] - bench[name])
    return found, complete


def section(folder):
    """Markdown: the agreement of the three."""
    folder.mkdir(exist_ok=True)
    found, complete = differences(record(folder))
    total, every = sum(number for *_, number in RUNS), [abs(value) for values in found.values() for value in values]
    within = sum(value <= 1000 for value in every)
    rows = []
    for (run, pair, name), values in sorted(found.items(), key=lambda item: (*item[0][:2], MILESTONES.index(item[0][2]))):
        cuts = statistics.quantiles(values, n=100) if len(values) > 1 else values * 99
        near = sum(abs(value) <= 1000 for value in values)
        rows.append([RUNS[run][0], pair, name, len(values),
                     *(f"{value:.0f}" for value in (statistics.median(values), cuts[0], cuts[-1])),
                     max(values, key=abs), f"{near / len(values):.1%}"])
    head = ["connections", "difference", "milestone", "number", "median", "1 %", "99 %", "largest", "within 1 ms"]
    return page("capture-milestones", total=total, rate=RATE, priority=", with real-time priority" if PRIORITY else "",
                complete=sum(complete.values()), milestones=len(MILESTONES), within=within, differences=len(every),
                share=within / len(every), largest=max(every) / 1000, rows=table(head, rows, left=3))
