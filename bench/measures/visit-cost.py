#!/usr/bin/env python3
"""Measures the cost of measuring visitors for the gateway.

24 visits run at a time, each on its own connection: a page, its resources, and with `visits` the beacon of the page, which
joins. One brisk with `[visits]`, beacons and an open dashboard, and one without them, alternate on the same core; the client
is on another core. The result is the processor time of the server per visit. Writes a table (Markdown). Needs a quiet
machine; takes three minutes. The client is built first, unless VISITORS_PROGRAM names it.

usage: visit-cost [--visits N] [--rounds N] [--output FILE]
"""
import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
from browsing import certificates
from browsing.servers import BRISK, PATH
from processes import end, free_port, listens

NAME, START, SERVER, CLIENT = "www.page.test", 20, 0, 1
# The page: text of some 20 KB. Its resources: 1 KiB each.
PARAGRAPH = "<p>" + "A page has words, and words have letters. " * 24 + "</p>\n"
PAGE = f"<!doctype html><html><head><meta charset=utf-8><title>page</title></head><body>{PARAGRAPH * 20}</body></html>"
# Each row: name, resources of a page, whether the sessions of visits are resumed, and how resources are asked for.
ROWS = {
    "HTTP/1.1, 60 resources, full handshake": (60, "full", "http1"),
    "HTTP/1.1, 60 resources, resumed": (60, "resumed", "http1"),
    "HTTP/2, 60 resources, full handshake": (60, "full", "http2"),
    "HTTP/2, 60 resources, resumed": (60, "resumed", "http2"),
    "HTTP/2, 20 resources, resumed": (20, "resumed", "http2"),
    "HTTP/2, three pages of 20 resources, resumed": (20, "resumed", "three-pages"),
    "pipelined, 60 resources, resumed": (60, "resumed", "pipelined"),
    "the page alone, full handshake": (0, "full", "http2"),
    "the page alone, resumed": (0, "resumed", "http2"),
}
# All visits come from one address, which limits would hold back: as a proxy before the gateway it stands for many.
BRISK_TOML = """
[server]
https = ["127.0.0.1:{port}"]
workers = 1
state_dir = "{folder}"
trusted_proxies = ["127.0.0.1"]

[access_log]
format = "off"

{visits}

[[host]]
names = ["{name}"]
certificates = [{{ chain = "{keys}/{name}.pem", key = "{keys}/{name}.key" }}]
{measured}

[[host.route]]
path = "/assets"
respond = {{ body = "{asset}", content_type = "text/css" }}

[[host.route]]
path = "/"
static = "{files}"
"""
VISITS = """
[visits]
enabled = true

[dashboard]
listen = "127.0.0.1:{dashboard}"
"""


def used(process):
    """Seconds of processor time, all threads."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def watch(port, ends):
    """A dashboard that is looked at: its events, as they come."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/events", timeout=10) as events:
        while not ends.is_set() and events.readline():
            pass


class Gateway:
    def __init__(self, folder, keys, files, visitors, measured):
        self.port, self.dashboard, self.ends = free_port(), free_port() if measured else None, threading.Event()
        folder.mkdir()
        text = BRISK_TOML.format(port=self.port, folder=folder, keys=keys, files=files, name=NAME, asset="x" * 1024,
                                 visits=VISITS.format(dashboard=self.dashboard) if measured else "", measured="visits = true" if measured else "")
        (folder / "brisk.toml").write_text(text)
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(["taskset", "-c", str(SERVER), BRISK, "serve", "--config", folder / "brisk.toml"],
                                        stdout=self.log, stderr=self.log, env={**os.environ, "PATH": PATH})
        if not listens(self.process, self.port, START):
            sys.exit(f"visit-cost: brisk does not serve:\n{(folder / 'log').read_text(errors='replace')}")
        if measured:
            threading.Thread(target=watch, args=(self.dashboard, self.ends), daemon=True).start()
        self.visitors, self.root, self.measured = visitors, keys / "root.pem", measured

    def round(self, visits, resources, session, protocol):
        """Processor time of a visit, in microseconds."""
        words = [self.visitors, str(self.port), self.root, NAME, str(visits), str(resources), session, protocol]
        before = used(self.process)
        count = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        if count != (visits if self.measured else 0):
            sys.exit(f"visit-cost: {count} of {visits} visits were measured")
        return (used(self.process) - before) / visits * 1e6

    def end(self):
        self.ends.set()
        end(self.process, signal.SIGTERM, 15)


def built():
    """The program that visits."""
    build = ["cargo", "build", "--quiet", "--locked", "--release", "--package", "brisk-testkit", "--example", "visitors", "--message-format", "json"]
    done = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True)
    artifacts = map(json.loads, done.stdout.splitlines())
    return next(one["executable"] for one in artifacts if one.get("target", {}).get("name") == "visitors")


def compared(row, arguments, gateways):
    resources = ROWS[row][0]
    # The first of a kind finds everything cold.
    for gateway in gateways:
        gateway.round(arguments.visits, *ROWS[row])
    rounds = [[gateway.round(arguments.visits, *ROWS[row]) for gateway in gateways] for _ in range(arguments.rounds)]
    ratios = sorted(on / off for off, on in rounds)
    off, on = (statistics.median(side) for side in zip(*rounds))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    # The beacon is a request as well.
    rate = f"{(resources + 2) / (resources + 1) / statistics.median(ratios):.3f}" if resources else ""
    return f"| {row} | {off:.0f} | {on:.0f} | {on - off:.0f} | {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}) | {rate} |"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].strip())
    parser.add_argument("--visits", type=int, default=800, help="number of visits in each round [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=15, help="number of rounds [default: %(default)s]")
    parser.add_argument("--output", help="file for the result [default: standard output]")
    arguments = parser.parse_args()
    visitors = os.environ.get("VISITORS_PROGRAM") or built()
    os.sched_setaffinity(0, {CLIENT})
    with tempfile.TemporaryDirectory(prefix="brisk-visit-cost-") as scratch:
        scratch = Path(scratch)
        keys, files = certificates.make(scratch / "keys", [NAME]), scratch / "files"
        files.mkdir()
        (files / "page.html").write_text(PAGE)
        gateways = []
        try:
            for measured in (False, True):
                gateways.append(Gateway(scratch / str(measured), keys, files, visitors, measured))
            rows = [compared(row, arguments, gateways) for row in ROWS]
        finally:
            for gateway in gateways:
                gateway.end()
    text = "\n".join([
        "# What measuring visitors costs", "",
        "Processor time of the server for a visit, in microseconds: a connection, a page of 20 KB, its resources of 1 KiB, over HTTP/1.1 one",
        "after another and over HTTP/2 in one go, and with beacons the beacon of the page; 24 visits at a time. *Pipelined*: in one go over",
        "HTTP/1.1, as no browser does. *Three pages*: a visitor follows two links on the same connection, and the beacon of a page comes "
        "with the requests for the resources of the next. On: `[visits]`, the script inserted, one dashboard open. Medians; the ratio is the median of those",
        f"within one round, with quartiles. {arguments.rounds} rounds of {arguments.visits} visits, in turns. {platform.machine()}, {os.cpu_count()} cores.", "",
        "| visit | off | on | more | ratio | requests per CPU second, ratio |", "|---|---:|---:|---:|---:|---:|", *rows, ""])
    if arguments.output:
        Path(arguments.output).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
