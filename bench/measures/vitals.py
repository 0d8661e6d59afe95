"""Compares the Web Vitals of beacons with the performance entries of the same browser.

Visits of Chromium, Firefox and WebKitGTK (if installed) to a page that shifts its content, blocks during clicks, changes its
URL, and is left and returned to. The page has an observer of its own (PerformanceObserver), which reports its raw entries; this
program computes the metrics from them as web-vitals defines them. The difference to the beacon of the same view should be at most
5 ms. Writes a section of the page of beacons. Needs no quiet machine; takes eight minutes.
"""
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from browsing import chromium
from browsing.chromium import Chromium, Failed
from browsing.webdriver import Firefox, WebKit
from shared import certificates, programs
from shared.figures import page, renew, table
from shared.gateway import Brisk, route, upstream
from shared.processes import wait
from shared.programs import BENCH, BRISK

NEEDS, PAGE = "vitals", "beacons"
OPTIONS = [("--visits", 200, "number of visits of all browsers"),
           ("--browser", [], "restriction to this browser", {"choices": ["Chromium", "Firefox", "WebKit"]})]
NAME, BOUND, LIMIT = "localhost", 5.0, 30
TITLE = "## Web Vitals, beside the browser's own entries"
METRICS = {"ttfb": "TTFB", "fcp": "FCP", "lcp": "LCP", "inp": "INP", "load": "load", "cls": "CLS",
           "frame": "next frame after a return"}
FILES = {"/page.js": ("text/javascript", (BENCH / "browsing/vitals.js").read_text()), "/away": ("text/plain", "away")}
DOCUMENT = ("text/html", (BENCH / "browsing/vitals.html").read_text())


class Pages(BaseHTTPRequestHandler):
    """The page, its script, and the receiver of its own observer."""
    protocol_version, reports = "HTTP/1.1", []

    def do_GET(self):
        kind, body = FILES.get(self.path, DOCUMENT)
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
    if found := wait(wanted, LIMIT):
        return found
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


def beacons(server):
    """Views with their metrics as the gateway has joined them."""
    for line in server.log().splitlines():
        if "a beacon joined" in line:
            kind = re.search(r'navigation="([^"]+)"', line).group(1)
            found = re.findall(r" (ttfb|fcp|lcp|inp|load|cls)=([\d.e-]+)", line)
            yield kind, {metric: float(value) for metric, value in found}


def compared(ours, theirs, differences, missing):
    for (kind, beacon), (own_kind, own) in zip(ours, theirs, strict=True):
        if kind != own_kind:
            raise Failed(f"a view of kind {kind} in place of {own_kind}")
        if set(beacon) != set(own):
            missing.append(f"{kind}: {sorted(set(beacon) ^ set(own))}")
        if kind == "back_forward_cache":
            # Browsers have no entry for it: two scripts have looked at the clock in the same frame. TTFB is 0, and FCP is LCP.
            beacon, own = ({"frame": view.pop("lcp"), **{key: view[key] for key in ("cls", "inp") if key in view}}
                           for view in (beacon, own))
        for metric in beacon.keys() & own.keys():
            differences.setdefault(metric, []).append(abs(beacon[metric] - own[metric]))


def measured(name, start, server, visits):
    """Differences by metric, kinds of views, and metrics that only one side has."""
    url, differences, missing, kinds, failures, number = f"https://{NAME}:{server.port}", {}, [], {}, 0, 0
    with start() as browser:
        while number < visits:
            before, received = len(list(beacons(server))), len(Pages.reports)
            try:
                visit(browser, url, number)
                until("the page's own report", lambda: len(Pages.reports) >= received + 2)
                theirs = [view for report in Pages.reports[received:] for view in own_views(report)]
                until("beacons", lambda: len(list(beacons(server))) >= before + len(theirs))
                ours = list(beacons(server))[before:]
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


def rows(name, differences):
    for metric, title in METRICS.items():
        values = differences.get(metric)
        if not values:
            yield [name, title, "", "not measured by this browser", "", ""]
        elif metric == "cls":
            yield [name, "CLS (no unit)", len(values), f"{statistics.median(values):.5f}", f"{max(values):.5f}", ""]
        else:
            within = sum(value <= BOUND for value in values)
            yield [name, title, len(values), f"{statistics.median(values):.2f} ms", f"{max(values):.2f} ms", within]


def run(arguments):
    programs.require(BRISK)
    lines, says, worst = [], [], 0.0
    pages = Server(("127.0.0.1", 0), Pages)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="brisk-vitals-") as scratch:
        folder = Path(scratch)
        keys = certificates.make(folder / "keys", [NAME])
        pins = [chromium.pin(keys / f"{NAME}.pem")]
        browsers = {"Chromium": (lambda: OurChromium(pins), chromium.version), "Firefox": (Firefox, Firefox.version)}
        if WebKit.browser():
            browsers["WebKit"] = (WebKit, WebKit.version)
        browsers = {name: browser for name, browser in browsers.items() if name in (arguments.browser or browsers)}
        routes = route("/", 'upstream = "pages"') + upstream("pages", f'"http://127.0.0.1:{pages.server_port}"')
        with Brisk(routes, folder / "brisk", None, certificates=keys, pairs=(NAME,), name=NAME, host="visits = true",
                   words=["--log", "info,brisk_beacon=debug"]) as server:
            for place, (name, (start, version)) in enumerate(browsers.items()):
                share = (arguments.visits - place + len(browsers) - 1) // len(browsers)
                differences, missing, kinds = measured(name, start, server, share)
                lines += rows(name, differences)
                views = ", ".join(f"{count} of kind `{kind}`" for kind, count in sorted(kinds.items()))
                says.append(f"{version()}: {share} visits, {views}.")
                says += [f"Only one side has a metric: {text}." for text in sorted(set(missing))]
                of_browser = (value for metric, values in differences.items() if metric not in ("cls", "frame")
                              for value in values)
                worst = max([worst, *of_browser])
    head = ["browser", "metric", "views", "difference, median", "greatest", f"within {BOUND:.0f} ms"]
    text = page("vitals", title=TITLE, visits=arguments.visits, kernel=programs.kernel(), says=" ".join(says), worst=worst,
                rows=table(head, lines, left=2))
    return text, f"the greatest difference is {worst:.2f} ms" if worst > BOUND else None


def merge(before, text, _arguments):
    return renew(before, TITLE, text)
