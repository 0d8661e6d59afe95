#!/usr/bin/env python3
"""Compares the waiting times that pages measure with the gateway's own data.

Pages with `visits = true` are loaded in Chromium over a link (crates/base/link) with a round trip of 50 ms. For each visit, the wait
for the response in its beacon is compared with the gateway's time for the response plus the kernel's round-trip time. The
difference should be at most 5 ms. Each visit has its own connection. Writes a table (Markdown). Needs a quiet machine; takes
four minutes.

usage: beacons [--visits N] [--output FILE]
"""
import argparse
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from browsing import certificates, chromium, sections
from browsing.chromium import Chromium, Failed
from browsing.link import SERVER, Link
from browsing.servers import BRISK, PATH
import os

NAME, ROUND_TRIP, RATE, BOUND = "www.page.test", 50, 20_000_000, 5.0
BOTH, ONE = '"h2", "http/1.1"', '"http/1.1"'
# Each row: name, ALPN protocols, the session of the measured visit, and whether Chromium opens connections by its predictor, which
# begins before it makes the request.
ROWS = {
    "HTTP/2, full handshake": (BOTH, "full-new-visitor", False),
    "HTTP/1.1, full handshake": (ONE, "full-new-visitor", False),
    "HTTP/2, resumed": (BOTH, "resumed-psk", False),
    "HTTP/2, 0-RTT": (BOTH, "resumed-0-rtt", False),
    "HTTP/2, resumed, by the predictor": (BOTH, "resumed-psk", True),
}

BRISK_TOML = """
[server]
https = ["{server}:443"]
workers = 1
state_dir = "{folder}/state"

[server.timeouts]
idle = "1s"

[tls]
protocols = [{protocols}]

[[host]]
names = ["{name}"]
certificates = [{{ chain = "{certificates}/{name}.pem", key = "{certificates}/{name}.key" }}]
visits = true
early_data = "{early}"

[[host.route]]
path = "/"
respond = {{ body = "<!doctype html><head><link rel=icon href='data:,'><title>x</title></head><body><p>x", content_type = "text/html" }}
"""
JOINED = re.compile(r'a beacon joined the visit of its page .*?session="([^"]+)" connection="([^"]+)".*?wait=([\d.]+) answered_in=([\d.]+) ttfb=([\d.]+).*?rtt=([\d.]+)')


def joined(log, count):
    """The lines of the beacons that have joined, as soon as there are this many."""
    until = time.monotonic() + 20
    while True:
        found = JOINED.findall(log.read_text(errors="replace"))
        if len(found) >= count or time.monotonic() > until:
            return found
        time.sleep(0.05)


def leave(browser):
    """Goes elsewhere, so that the visit ends and its beacon is sent."""
    browser.open("about:blank")


def visit(link, session, connects_ahead, pins, log):
    """One visit: its wait, the gateway's own time, and the round trip, in milliseconds."""
    before = len(JOINED.findall(log.read_text(errors="replace")))
    features = ["EnableTLS13EarlyData"] if session == "resumed-0-rtt" else []
    at_client = lambda *command: link.at("client", *command)
    with Chromium(at_client, f"MAP {NAME} {SERVER}, MAP * ~NOTFOUND", pins, features, connects_ahead) as browser:
        visits = 2 if session.startswith("resumed") else 1
        for number in range(1, visits + 1):
            browser.open(f"https://{NAME}/")
            leave(browser)
            found = joined(log, before + number)
            if len(found) < before + number:
                raise Failed("no beacon came")
            # brisk closes all connections, and the next visit resumes the session on a new one.
            time.sleep(2.5 if number < visits else 0)
    kind, connection, wait, own, _, rtt = found[-1]
    if (kind, connection) != (session, "new"):
        raise Failed(f"{kind} on a {connection} connection in place of {session} on a new one")
    return float(wait), float(own), float(rtt)


def measured(row, arguments, scratch):
    protocols, session, connects_ahead = ROWS[row]
    folder = Path(scratch) / re.sub(r"\W+", "-", row)
    folder.mkdir()
    keys = certificates.make(folder / "certificates", [NAME])
    early = "safe" if session == "resumed-0-rtt" else "no"
    (folder / "brisk.toml").write_text(BRISK_TOML.format(server=SERVER, folder=folder, protocols=protocols, name=NAME, certificates=keys, early=early))
    pins, log, samples, failures = [chromium.pin(keys / f"{NAME}.pem")], folder / "log", [], 0
    with Link(ROUND_TRIP, RATE) as link, open(log, "wb") as output:
        command = link.at("server", BRISK, "serve", "--config", folder / "brisk.toml", "--log", "info,brisk_beacon=debug")
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "PATH": PATH})
        try:
            while b"serves" not in log.read_bytes():
                if process.poll() is not None:
                    sys.exit(f"beacons: brisk does not serve:\n{log.read_text(errors='replace')}")
                time.sleep(0.05)
            while len(samples) < arguments.visits:
                try:
                    samples.append(visit(link, session, connects_ahead, pins, log))
                except Failed as error:
                    failures += 1
                    print(f"beacons: {row}: {error}; again", file=sys.stderr)
                    if failures > arguments.visits:
                        sys.exit(f"beacons: {row}: too many visits failed")
        finally:
            process.kill()
            process.wait()
    return samples


def line(row, samples):
    apart = [wait - own - rtt for wait, own, rtt in samples]
    within = sum(abs(value) <= BOUND for value in apart)
    middle = lambda values: f"{statistics.median(values):.1f}"
    waits, owns, rtts = zip(*samples)
    return (f"| {row} | {middle(waits)} | {middle(owns)} | {middle(rtts)} | {middle(apart)} "
            f"({min(apart):.1f} to {max(apart):.1f}) | {within} of {len(samples)} |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].strip())
    parser.add_argument("--visits", type=int, default=10, help="number of visits of each row [default: %(default)s]")
    parser.add_argument("--output", help="file for the result [default: standard output]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brisk-beacons-") as scratch:
        rows = [line(row, measured(row, arguments, scratch)) for row in ROWS]
    text = "\n".join([
        "# What pages measure, beside what the gateway knows",
        "",
        f"`bench/beacons`, {arguments.visits} visits each, {chromium.version()}, over a link with a round trip of {ROUND_TRIP} ms; "
        f"Linux {platform.release().split('-')[0]}. Milliseconds, medians. *Wait*: from the request to the first byte of the answer, as "
        "the page's beacon reported it. *Gateway*: from the head of the request to that of the answer. *Round trip*: as the kernel measured "
        "it by the end of the handshake. *Apart*: wait without the other two, with the least and the greatest.",
        "",
        "Each visit is the first request of its connection and waited for it. With 0-RTT the request goes with the ClientHello, and to "
        "Chromium the handshake is over when it begins: the wait is one round trip there too. Chromium opens nothing ahead of its requests, "
        "but in the last row its predictor does, at the start of the navigation. There the page has no times of the connection, and the "
        "gateway takes from how long the request was held that the visit waited for it.",
        "",
        f"| visit | wait | gateway | round trip | apart | within {BOUND:.0f} ms |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        ""])
    if arguments.output:
        # bench/vitals writes the rest of the file.
        sections.keep(Path(arguments.output), "## Web Vitals", text)
    print(text)


if __name__ == "__main__":
    main()
