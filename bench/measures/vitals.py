#!/usr/bin/env python3
"""Compares the Web Vitals of beacons with the performance entries of the same browser.

Visits of Chromium, Firefox and WebKitGTK (if installed) to a page that shifts its content, blocks during clicks, changes its
URL, and is left and returned to. The page has an observer of its own (PerformanceObserver), which reports its raw entries; this
program computes the metrics from them as web-vitals defines them. The difference to the beacon of the same view should be at most
5 ms. Writes a section (Markdown) into the file, whose other sections remain. Needs no quiet machine; takes eight minutes.

usage: vitals [--visits N] [--browser NAME] [--output FILE]
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.dont_write_bytecode = True
from browsing import certificates, chromium, sections
from browsing.chromium import Chromium, Failed
from browsing.servers import BRISK, PATH
from browsing.webdriver import Firefox, WebKit
from processes import free_port

NAME, BOUND, LIMIT = "localhost", 5.0, 30
TITLE = "## Web Vitals, beside the browser's own entries"
METRICS = {"ttfb": "TTFB", "fcp": "FCP", "lcp": "LCP", "inp": "INP", "load": "load", "cls": "CLS", "frame": "next frame after a return"}

BRISK_TOML = """
[server]
https = ["127.0.0.1:{port}"]
workers = 1
state_dir = "{folder}/state"

[access_log]
format = "off"

[[host]]
names = ["{name}"]
certificates = [{{ chain = "{keys}/{name}.pem", key = "{keys}/{name}.key" }}]
visits = true

[[host.route]]
path = "/"
upstream = "pages"

[upstream.pages]
servers = ["http://127.0.0.1:{upstream}"]
"""

# The page. Clicks block for a time that depends on the visit.
PAGE = """<!doctype html><html><head><meta charset=utf-8><title>new</title>
<style>body{margin:0;font:20px sans-serif}button{position:fixed;left:10px;height:40px;width:200px}#click{top:10px}#go{top:60px}
main{padding-top:120px}</style></head><body><button id=click>block</button><button id=go>go</button><main id=main><h1>a page with words</h1></main>
<script src=/page.js></script></body></html>"""

SCRIPT = """
const entries = [], shown = document.getElementById('main'), number = +new URLSearchParams(location.search).get('visit');
let views = [['load', 0]], paint = null;
const take = list => entries.push(...list.map(e => [e.entryType, e.name, e.startTime, e.duration, e.interactionId || 0, e.value || 0, e.hadRecentInput ? 1 : 0]));
const types = ['paint', 'largest-contentful-paint', 'layout-shift', 'first-input', 'event'].filter(type => PerformanceObserver.supportedEntryTypes.includes(type));
const observers = types.map(type => {
  const observer = new PerformanceObserver(list => take(list.getEntries()));
  observer.observe({ type, buffered: true, ...(type == 'event' ? { durationThreshold: 40 } : {}) });
  return observer;
});
const frames = done => requestAnimationFrame(() => requestAnimationFrame(done));
const pause = ms => new Promise(done => setTimeout(done, ms));
const block = ms => { const until = performance.now() + ms; while (performance.now() < until); };
const shift = height => {
  const box = document.createElement('div');
  box.style.height = `${height}px`;
  shown.prepend(box);
};
addEventListener('pageshow', async event => {
  if (!event.persisted) return;
  views = [['back_forward_cache', event.timeStamp]];
  entries.length = 0;
  frames(() => { paint = performance.now() - event.timeStamp; document.title = 'returned'; });
});
addEventListener('load', async () => {
  await pause(50);
  const words = document.createElement('p');
  words.style.font = '60px sans-serif';
  words.textContent = 'the largest text of the page comes late';
  shown.append(words);
  frames(async () => {
    await pause(50);
    shift(20 + number % 50);
    frames(() => setTimeout(() => { document.title = 'ready'; }, 50));
  });
});
document.getElementById('click').addEventListener('click', () => {
  block(50 + number * 7 % 90);
  frames(() => setTimeout(() => { document.title = 'clicked'; }, 100));
});
document.getElementById('go').addEventListener('click', () => {
  block(20);
  history.pushState({}, '', `/next?visit=${number}`);
  views.push(['soft', performance.now()]);
  frames(async () => {
    await pause(700);
    shift(10 + number % 40);
    frames(() => setTimeout(() => { document.title = 'gone'; }, 50));
  });
});
addEventListener('visibilitychange', () => {
  if (document.visibilityState != 'hidden') return;
  observers.forEach(observer => take(observer.takeRecords()));
  const { responseStart, finalResponseHeadersStart, loadEventEnd } = performance.getEntriesByType('navigation')[0];
  const own = { number, types, views, entries, paint, ttfb: finalResponseHeadersStart || responseStart, load: loadEventEnd };
  navigator.sendBeacon('/own', JSON.stringify(own));
  views = [];
  entries.length = 0;
});
"""


class Pages(BaseHTTPRequestHandler):
    """The page, its script, and the receiver of its own observer."""
    protocol_version, reports = "HTTP/1.1", []

    def do_GET(self):
        kind, body = ("text/javascript", SCRIPT) if self.path == "/page.js" else ("text/plain", "away") if self.path == "/away" else ("text/html", PAGE)
        self.answer(200, kind, body.encode())

    def do_POST(self):
        self.reports.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.answer(204, "text/plain", b"")

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        # The gateway closes its connections when it ends.
        pass


class OurChromium(Chromium):
    def __init__(self, pins):
        super().__init__(lambda *command: list(command), "MAP * ~NOTFOUND, EXCLUDE localhost", pins)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", self.session, type=kind, x=x, y=y, button="left", clickCount=1)

    def back(self):
        self.call("Runtime.evaluate", self.session, expression="history.back()")


def until(what, wanted):
    """The first true result."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if found := wanted():
            return found
        time.sleep(0.02)
    raise Failed(f"{what}: not within {LIMIT} s")


def titled(browser, title):
    def is_titled():
        try:
            return browser.evaluate("document.title") == title
        except Failed:
            # While a page gives way to the next, it cannot be asked.
            return False
    until(f"the page is {title}", is_titled)


def visit(browser, url, number):
    """A load, a soft navigation, and a return from another page."""
    browser.open(f"{url}/?visit={number}")
    titled(browser, "ready")
    browser.click(60, 30)
    titled(browser, "clicked")
    browser.click(60, 80)
    titled(browser, "gone")
    browser.evaluate("(document.title = 'soft', 0)")
    browser.click(60, 30)
    titled(browser, "clicked")
    browser.open(f"{url}/away")
    browser.back()
    titled(browser, "returned")
    browser.open("about:blank")


def shift_of(entries):
    """The greatest sum of shifts within a second of each other and five seconds together."""
    greatest = total = first = last = 0
    for at, value in ((entry[2], entry[5]) for entry in entries if entry[0] == "layout-shift" and not entry[6]):
        if not total or at - last > 1000 or at - first > 5000:
            total, first = 0, at
        total, last = total + value, at
        greatest = max(greatest, total)
    return greatest


def own_views(report):
    """Views with their metrics from raw entries."""
    views = report["views"]
    for place, (kind, start) in enumerate(views):
        stop = views[place + 1][1] if place + 1 < len(views) else float("inf")
        within = [entry for entry in report["entries"] if start <= entry[2] < stop]
        of = lambda kind, name=None: [entry for entry in within if entry[0] == kind and name in (None, entry[1])]
        found = {}
        if kind == "load":
            found = {"ttfb": report["ttfb"], "load": report["load"]}
            for metric, paints in (("fcp", of("paint", "first-contentful-paint")), ("lcp", of("largest-contentful-paint"))):
                if paints:
                    found[metric] = paints[-1][2]
        elif kind == "back_forward_cache":
            found = {"ttfb": 0, "fcp": report["paint"], "lcp": report["paint"]}
        if "layout-shift" in report["types"]:
            found["cls"] = shift_of(within)
        # Fewer than 50 interactions: the longest counts.
        if acts := [entry[3] for entry in within if entry[4] or entry[0] == "first-input"]:
            found["inp"] = max(acts)
        yield ("navigate" if kind == "load" else kind), found


def beacons(log):
    """Views with their metrics as the gateway has joined them."""
    for line in log.read_text(errors="replace").splitlines():
        if "a beacon joined" in line:
            kind = re.search(r'navigation="([^"]+)"', line).group(1)
            yield kind, {metric: float(value) for metric, value in re.findall(r" (ttfb|fcp|lcp|inp|load|cls)=([\d.e-]+)", line)}


def compared(ours, theirs, differences, missing):
    for (kind, beacon), (own_kind, own) in zip(ours, theirs, strict=True):
        if kind != own_kind:
            raise Failed(f"a view of kind {kind} in place of {own_kind}")
        if set(beacon) != set(own):
            missing.append(f"{kind}: {sorted(set(beacon) ^ set(own))}")
        if kind == "back_forward_cache":
            # Browsers have no entry for it: two scripts have looked at the clock in the same frame. TTFB is 0, and FCP is LCP.
            beacon, own = ({"frame": view.pop("lcp"), **{key: view[key] for key in ("cls", "inp") if key in view}} for view in (beacon, own))
        for metric in beacon.keys() & own.keys():
            differences.setdefault(metric, []).append(abs(beacon[metric] - own[metric]))


def measured(name, start, url, log, visits):
    """Differences by metric, kinds of views, and metrics that only one side has."""
    differences, missing, kinds, failures, number = {}, [], {}, 0, 0
    with start() as browser:
        while number < visits:
            before, received = len(list(beacons(log))), len(Pages.reports)
            try:
                visit(browser, url, number)
                theirs = until("the page's own report", lambda: [view for report in Pages.reports[received:] for view in own_views(report)]
                               if len(Pages.reports) >= received + 2 else None)
                ours = until("beacons", lambda: (list(beacons(log))[before:] if len(list(beacons(log))) >= before + len(theirs) else None))
                compared(ours, theirs, differences, missing)
            except Failed as error:
                failures += 1
                print(f"vitals: {name}, visit {number}: {error}; again", file=sys.stderr)
                if failures > 5:
                    sys.exit(f"vitals: {name}: too many visits failed")
                time.sleep(1)
                continue
            for kind, _ in ours:
                kinds[kind] = kinds.get(kind, 0) + 1
            number += 1
    return differences, missing, kinds


def lines(name, differences):
    for metric in METRICS:
        values = differences.get(metric)
        if not values:
            yield f"| {name} | {METRICS[metric]} | | not measured by this browser | | |"
        elif metric == "cls":
            yield f"| {name} | CLS (no unit) | {len(values)} | {statistics.median(values):.5f} | {max(values):.5f} | |"
        else:
            within = sum(value <= BOUND for value in values)
            yield f"| {name} | {METRICS[metric]} | {len(values)} | {statistics.median(values):.2f} ms | {max(values):.2f} ms | {within} |"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].strip())
    parser.add_argument("--visits", type=int, default=200, help="number of visits of all browsers [default: %(default)s]")
    parser.add_argument("--browser", action="append", help="Chromium, Firefox or WebKit; repeatable [default: all that are installed]")
    parser.add_argument("--output", help="file for the section [default: standard output]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brisk-vitals-") as scratch:
        folder = Path(scratch)
        keys = certificates.make(folder / "keys", [NAME])
        pins = [chromium.pin(keys / f"{NAME}.pem")]
        browsers = {"Chromium": (lambda: OurChromium(pins), chromium.version), "Firefox": (Firefox, Firefox.version)}
        if WebKit.browser():
            browsers["WebKit"] = (WebKit, WebKit.version)
        browsers = {name: browser for name, browser in browsers.items() if name in (arguments.browser or browsers)}
        pages = Server(("127.0.0.1", 0), Pages)
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        port, log = free_port(), folder / "log"
        (folder / "brisk.toml").write_text(BRISK_TOML.format(port=port, folder=folder, name=NAME, keys=keys, upstream=pages.server_port))
        with open(log, "wb") as output:
            command = [BRISK, "serve", "--config", folder / "brisk.toml", "--log", "info,brisk_beacon=debug"]
            process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "PATH": PATH})
        rows, says, worst = [], [], 0.0
        try:
            until("brisk serves", lambda: b"serves" in log.read_bytes())
            for place, (name, (start, version)) in enumerate(browsers.items()):
                share = (arguments.visits - place + len(browsers) - 1) // len(browsers)
                differences, missing, kinds = measured(name, start, f"https://{NAME}:{port}", log, share)
                rows += lines(name, differences)
                views = ", ".join(f"{count} of kind `{kind}`" for kind, count in sorted(kinds.items()))
                says.append(f"{version()}: {share} visits, {views}.")
                says += [f"Only one side has a metric: {text}." for text in sorted(set(missing))]
                worst = max([worst, *(value for metric, values in differences.items() if metric not in ("cls", "frame") for value in values)])
        finally:
            process.kill()
            process.wait()
    text = "\n".join([
        TITLE, "",
        f"`bench/vitals`, {arguments.visits} visits; Linux {platform.release().split('-')[0]}. {' '.join(says)} Each visit is a load, a soft navigation and "
        "a return from another page. The page has an observer of its own, which reports its raw entries; the metrics are computed from them "
        "separately. *Difference*: between the beacon of a view and the page's own entries.", "",
        f"| browser | metric | views | difference, median | greatest | within {BOUND:.0f} ms |", "|---|---|---:|---:|---:|---:|", *rows, "",
        f"The greatest difference to an entry of the browser is {worst:.2f} ms. For the next frame after a return from the back/forward cache, "
        "browsers have no entry: there, both scripts read the clock in the same frame, one after the other.", ""])
    if arguments.output:
        sections.replace(Path(arguments.output), TITLE, text)
    print(text)
    if worst > BOUND:
        sys.exit(1)


if __name__ == "__main__":
    main()
