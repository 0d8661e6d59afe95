"""Compares the waiting times that pages measure with the gateway's own data.

Pages with `visits = true` are loaded in Chromium over a link (crates/base/link) with a round trip of 50 ms. For each visit, the
wait for the response in its beacon is compared with the gateway's time for the response plus the kernel's round-trip time. The
difference should be at most 5 ms. Each visit has its own connection. Needs a quiet machine; takes four minutes.
"""
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from browsing import chromium
from browsing.chromium import Chromium, Failed
from shared import certificates, programs
from shared.figures import page, table
from shared.gateway import Brisk, route
from shared.link import SERVER, Link
from shared.processes import wait
from shared.programs import BRISK, LINK

NEEDS, BUILDS = "page", "--package brisk-link"
OPTIONS = [("--visits", 10, "number of visits of each row")]
NAME, ROUND_TRIP, RATE, BOUND = "www.page.test", 50, 20_000_000, 5.0
BOTH, ONE = '"h2", "http/1.1"', '"http/1.1"'
# Each row: name, ALPN protocols, the session of the measured visit, and whether Chromium opens connections by its predictor,
# which begins before it makes the request.
ROWS = {
    "HTTP/2, full handshake": (BOTH, "full-new-visitor", False),
    "HTTP/1.1, full handshake": (ONE, "full-new-visitor", False),
    "HTTP/2, resumed": (BOTH, "resumed-psk", False),
    "HTTP/2, 0-RTT": (BOTH, "resumed-0-rtt", False),
    "HTTP/2, resumed, by the predictor": (BOTH, "resumed-psk", True),
}

SETTINGS = """
[server.timeouts]
idle = "1s"
[tls]
protocols = [$protocols]
"""
HOST = 'visits = true\nearly_data = "$early"'
DOCUMENT = "<!doctype html><head><link rel=icon href='data:,'><title>x</title></head><body><p>x"
JOINED = re.compile(r'a beacon joined the visit of its page .*?session="([^"]+)" connection="([^"]+)".*?wait=([\d.]+) '
                    r'answered_in=([\d.]+) ttfb=([\d.]+).*?rtt=([\d.]+)')


def joined(server, count):
    """The lines of the beacons that have joined, as soon as there is this number of them."""
    wait(lambda: len(JOINED.findall(server.log())) >= count, 20)
    return JOINED.findall(server.log())


def leave(browser):
    """Goes elsewhere, so that the visit ends and its beacon is sent."""
    browser.open("about:blank")


def visit(link, session, connects_ahead, pins, server):
    """One visit: its wait, the gateway's own time, and the round trip, in milliseconds."""
    before = len(JOINED.findall(server.log()))
    features = ["EnableTLS13EarlyData"] if session == "resumed-0-rtt" else []
    with Chromium(link.client, f"MAP {NAME} {SERVER}, MAP * ~NOTFOUND", pins, features, connects_ahead) as browser:
        visits = 2 if session.startswith("resumed") else 1
        for number in range(1, visits + 1):
            browser.open(f"https://{NAME}/")
            leave(browser)
            found = joined(server, before + number)
            if len(found) < before + number:
                raise Failed("no beacon came")
            # brisk closes all connections, and the next visit resumes the session on a new one.
            time.sleep(2.5 if number < visits else 0)
    kind, connection, waited, own, _, rtt = found[-1]
    if (kind, connection) != (session, "new"):
        raise Failed(f"{kind} on a {connection} connection in place of {session} on a new one")
    return float(waited), float(own), float(rtt)


def measured(row, arguments, scratch):
    protocols, session, connects_ahead = ROWS[row]
    folder = Path(scratch) / re.sub(r"\W+", "-", row)
    keys = certificates.make(folder / "certificates", [NAME])
    early, pins, samples, failures = "safe" if session == "resumed-0-rtt" else "no", [chromium.pin(keys / f"{NAME}.pem")], [], 0
    with Link(ROUND_TRIP, RATE) as link, Brisk(
            route("/", f'respond = {{ body = "{DOCUMENT}", content_type = "text/html" }}'), folder, prefix=link.server,
            address=SERVER, port=443, certificates=keys, pairs=(NAME,), name=NAME, sections=SETTINGS, host=HOST,
            protocols=protocols, early=early, access='format = "text"', words=["--log", "info,brisk_beacon=debug"]) as server:
        while len(samples) < arguments.visits:
            try:
                samples.append(visit(link, session, connects_ahead, pins, server))
            except Failed as error:
                failures += 1
                print(f"beacons: {row}: {error}; again", file=sys.stderr)
                if failures > arguments.visits:
                    sys.exit(f"beacons: {row}: too many visits failed")
    return samples


def cells(row, samples):
    apart = [wait - own - rtt for wait, own, rtt in samples]
    within = sum(abs(value) <= BOUND for value in apart)
    median = lambda values: f"{statistics.median(values):.1f}"
    return [row, *map(median, zip(*samples)), f"{median(apart)} ({min(apart):.1f} to {max(apart):.1f})",
            f"{within} of {len(samples)}"]


def run(arguments):
    programs.require(BRISK, LINK)
    with tempfile.TemporaryDirectory(prefix="brisk-beacons-") as scratch:
        rows = [cells(row, measured(row, arguments, scratch)) for row in ROWS]
    return page("beacons", visits=arguments.visits, chromium=chromium.version(), trip=ROUND_TRIP, kernel=programs.kernel(),
                rows=table(["visit", "wait", "gateway", "round trip", "apart", f"within {BOUND:.0f} ms"], rows))


def merge(before, text, _arguments):
    """The measurement vitals writes the last section of the page."""
    _, title, rest = before.partition("## Web Vitals")
    return text + (f"\n{title}{rest}" if title else "")
