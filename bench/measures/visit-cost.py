"""Measures the cost of measuring visitors for the gateway.

24 visits run at a time, each on its own connection: a page, its resources, and with `visits` the beacon of the page, which
joins. One brisk with `[visits]`, beacons and an open dashboard, and one without them, alternate on the same core; the client
is on another core. The result is the processor time of the server per visit. Needs a quiet machine; takes three minutes. The
client is built first, unless VISITORS_PROGRAM names it: `brisk bench compare` has no load of visits with beacons.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

from shared import certificates, programs
from shared.figures import page, ratio, table
from shared.gateway import Brisk, route
from shared.processes import free_port
from shared.programs import BRISK

OPTIONS = [("--visits", 800, "number of visits in each round"), ("--rounds", 15, "number of rounds")]
NAME, SERVER, CLIENT = "www.page.test", 0, 1
# The page: text of some 20 KB. Its resources: 1 KiB each.
PARAGRAPH = "<p>" + "A page has words, and words have letters. " * 24 + "</p>\n"
DOCUMENT = f"<!doctype html><html><head><meta charset=utf-8><title>page</title></head><body>{PARAGRAPH * 20}</body></html>"
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
TRUSTED = 'trusted_proxies = ["127.0.0.1"]'
ROUTES = route("/assets", 'respond = { body = "$asset", content_type = "text/css" }') + route("/", 'static = "$files"')
VISITS = """
[visits]
enabled = true
[dashboard]
listen = "127.0.0.1:$dashboard"
"""


def watch(port, ends):
    """An open dashboard: its events, as they come."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/events", timeout=10) as events:
        while not ends.is_set() and events.readline():
            pass


class Gateway(Brisk):
    def __init__(self, folder, keys, files, visitors, measured):
        self.visitors, self.root, self.measured = visitors, keys / "root.pem", measured
        self.dashboard, self.ends = free_port(), threading.Event()
        super().__init__(ROUTES, folder, SERVER, pairs=(NAME,), name=NAME, certificates=keys, files=files, asset="x" * 1024,
                         server=TRUSTED,
                         sections=VISITS if measured else "", host="visits = true" if measured else "", dashboard=self.dashboard)

    def __enter__(self):
        super().__enter__()
        if self.measured:
            threading.Thread(target=watch, args=(self.dashboard, self.ends), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        super().__exit__()

    def round(self, visits, resources, session, protocol):
        """Processor time of a visit, in microseconds."""
        words = [self.visitors, str(self.port), self.root, NAME, str(visits), str(resources), session, protocol]
        before = self.exact_cpu()
        count = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        if count != (visits if self.measured else 0):
            sys.exit(f"visit-cost: {count} of {visits} visits were measured")
        return (self.exact_cpu() - before) / visits * 1e6


def compared(row, arguments, gateways):
    resources = ROWS[row][0]
    # The first of a kind finds everything cold.
    for gateway in gateways:
        gateway.round(arguments.visits, *ROWS[row])
    off, on = zip(*([gateway.round(arguments.visits, *ROWS[row]) for gateway in gateways] for _ in range(arguments.rounds)))
    before, after = statistics.median(off), statistics.median(on)
    # The beacon is a request as well.
    rate = (resources + 2) / (resources + 1) / statistics.median(b / a for a, b in zip(off, on))
    return [row, f"{before:.0f}", f"{after:.0f}", f"{after - before:.0f}", ratio(on, off, 3, "quartiles"), f"{rate:.3f}"
            if resources else ""]


def run(arguments):
    programs.require(BRISK)
    visitors = os.environ.get("VISITORS_PROGRAM") or programs.example(["--release", "--package", "brisk-testkit"], "visitors")
    os.sched_setaffinity(0, {CLIENT})
    with tempfile.TemporaryDirectory(prefix="brisk-visit-cost-") as scratch:
        scratch = Path(scratch)
        keys, files = certificates.make(scratch / "keys", [NAME]), scratch / "files"
        files.mkdir()
        (files / "page.html").write_text(DOCUMENT)
        with Gateway(scratch / "off", keys, files, visitors, False) as off, Gateway(scratch / "on", keys, files, visitors,
                                                                                    True) as on:
            rows = [compared(row, arguments, (off, on)) for row in ROWS]
    return page("visit-cost", arguments=arguments,
                rows=table(["visit", "off", "on", "more", "ratio", "requests per CPU second, ratio"], rows))
