"""Measures the cost of HTTPS for a page, and the effect of each feature that reduces it.

A page of 60 resources is loaded in Chromium over a link with a delay and a rate (crates/base/link): without TLS, with TLS, and
with one feature after another. HTTP/2 and HTTP/3 are compared over a link that loses packets. Takes a quarter of an hour.
"""
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from browsing import chromium, site
from browsing.chromium import Chromium, Failed
from shared import certificates, programs
from shared.figures import alternating, middle, number, page, show, table
from shared.link import SERVER, Link
from shared.processes import wait
from shared.programs import BRISK, LINK
from shared.servers import Server

NEEDS, BUILDS = "page", "--package brisk-link"
# The page, its assets where they are on another domain, and the page before the click. All are of one site, as browsers
# keep the connections of sites apart.
NAME, ASSETS, START = "www.page.test", "static.page.test", "start.page.test"
ROUND_TRIPS, RATE = (50, 100), 10_000_000
# Of the link for HTTP/2 and HTTP/3: percent of the packets, in each direction.
LOSS_ROUND_TRIP, LOSS, LOSS_RATES = 50, 1, (10_000_000, 100_000_000)
H1 = '"http/1.1"'

# Each row: name, whether assets are on another domain, the settings of the server, what happens before the click, what the
# row is compared with, and what the account says of the same step.
ROWS = {
    "http": ("HTTP/1.1 without TLS, two domains", True, None, "plain", None, "1,795 ms"),
    "https": ("HTTPS over HTTP/1.1, two domains", True, {"PROTOCOLS": H1}, "plain", "http", "2,630 ms (+835)"),
    "h2": ("+ HTTP/2", True, {}, "plain", "https", "-370 ms (SPDY)"),
    "one": ("+ one domain", False, {}, "plain", "h2", "-200 ms"),
    "preconnect": ("+ preconnect", False, {}, "preconnect", "one", "-400 ms (75 % of clicks found a connection)"),
    "resumption": ("one domain, + resumption", False, {"IDLE": "1s"}, "session", "one", "handshakes 200 to 400 -> 100 ms"),
    "early": ("+ 0-RTT", False, {"IDLE": "1s", "EARLY": "safe"}, "session", "resumption", ""),
    "compression": ("+ compression", False, {"IDLE": "1s", "EARLY": "safe", "COMPRESSION": "true"}, "session", "early", ""),
    "all": ("one domain, preconnect and compression", False, {"COMPRESSION": "true"}, "preconnect", "preconnect", ""),
}
# Over the link with loss.
LOSSY = {
    "lossy-h2": ("HTTP/2", False, {}, "plain", None, ""),
    "lossy-h3": ("HTTP/3", False, {"HTTP3": "http3 = true"}, "plain", "lossy-h2", ""),
}


def is_of_page(line):
    """Whether a line of the access log is a request for the page or its assets with a response."""
    return line.get("status") == 200 and line["host"] in (NAME, ASSETS) and "/_" not in line["path"]


class Site(Server):
    """brisk with the page."""

    def __init__(self, folder, **settings):
        super().__init__("servers/page.toml", folder, **{
            "PROTOCOLS": '"h2", "http/1.1"', "LOG": "json", "COMPRESSION": "false", "EARLY": "no", "HTTP3": "",
            "IDLE": "1m", **settings})

    def requests(self, count):
        """The lines of the access log, as soon as it has this number of requests for the page and its assets."""
        def lines():
            text = (self.folder / "access.log").read_text()
            return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
        wait(lambda: sum(map(is_of_page, lines())) >= count, 10)
        return lines()


def visit(row, link, machine):
    """One click: milliseconds until the load event and what else the browser says, and what the server saw."""
    _, apart, settings, before, _, _ = {**ROWS, **LOSSY}[row]
    scheme, domains = ("http" if settings is None else "https"), ("two" if apart else "one")
    values = {"prefix": link.server, "ADDRESS": SERVER, "FILES": machine.files[scheme, domains], **(settings or {})}
    features = ["EnableTLS13EarlyData"] if "EARLY" in values else []
    options = [f"--origin-to-force-quic-on={NAME}:443"] if "HTTP3" in values else []
    with (machine.site(PORT=443, **values) if settings is not None else
          Server("servers/page.conf", machine.folder(), PORT=80, **values)) as server, \
            Chromium(link.client, f"MAP *.page.test {SERVER}, MAP * ~NOTFOUND", machine.pins, features,
                     options=options) as browser:
        if before == "session":
            browser.open(f"https://{NAME}/_session")
        browser.open(f"{scheme}://{START}/{'preconnect' if before == 'preconnect' else 'plain'}")
        if before == "preconnect":
            browser.evaluate("new Promise(done => { const look = () => document.title == 'connected' ? done(true) "
                             ": setTimeout(look, 20); look() })")
        # The last messages have arrived. Browsers open more connections than they need; to resume, none may be left.
        time.sleep(2.5 if before == "session" else 0.5)
        browser.open(f"{scheme}://{NAME}/")
        sample = browser.timing()
        if settings is not None:
            sample |= seen(server.requests(site.RESOURCES))
    complaint = wrong(row, sample)
    if complaint:
        raise Failed(complaint)
    return sample


def seen(log):
    """What the access log says of the page."""
    lines = [line for line in log if is_of_page(line)]
    before = {line["connection"] for line in log if not is_of_page(line)}
    document = next((line for line in lines if line["path"] == "/"), {})
    return {"connections": len({line["connection"] for line in lines}), "requests": len(lines),
            "bytes": sum(line["bytes_sent"] for line in lines), "handshake": document.get("resumption"),
            "early": document.get("early"), "kept": document.get("connection") in before, "alpn": document.get("alpn")}


def wrong(row, sample):
    """Why this was no sample of the row: what the row is about did not happen."""
    if sample["resources"] < site.RESOURCES:
        return f"{row}: only {sample['resources']} resources"
    if row == "http":
        return None if sample["protocol"] == "http/1.1" else f"http: over {sample['protocol']}"
    wanted = {"alpn": {"https": "http/1.1", "lossy-h3": "h3"}.get(row, "h2"), "kept": row in ("preconnect", "all"),
              "handshake": {"resumption": "psk", "early": "0-rtt", "compression": "0-rtt"}.get(row, "full")}
    if wanted["handshake"] == "0-rtt":
        wanted["early"] = "forwarded"
    found = {key: sample[key] for key in wanted}
    return None if found == wanted else f"{row}: {found} in place of {wanted}"


def visited(row, link, machine):
    """A sample of the row. What did not happen is tried again, and said."""
    for _ in range(4):
        try:
            return visit(row, link, machine)
        except Failed as error:
            show(f"page: {error}; again\n")
    sys.exit(f"page: {row}: not once in four attempts")


class Machine:
    """Certificates and the files of the page, as each row wants them."""

    def __init__(self, scratch):
        self.scratch, self.number = Path(scratch), 0
        self.certificates = certificates.make(self.scratch / "certificates", [NAME, ASSETS, START])
        self.pins = [chromium.pin(self.certificates / f"{name}.pem") for name in (NAME, ASSETS, START)]
        self.files = {}
        for scheme, domains in (("http", "two"), ("https", "two"), ("https", "one")):
            folder = self.scratch / f"files-{scheme}-{domains}"
            site.make(folder, f"{scheme}://{ASSETS}" if domains == "two" else "")
            self.files[scheme, domains] = folder

    def folder(self):
        """The folder of a server."""
        self.number += 1
        return self.scratch / f"server-{self.number}"

    def site(self, **settings):
        return Site(self.folder(), CERTIFICATES=self.certificates, **{"FILES": self.files["https", "one"], **settings})


def measure_page(machine, rounds, samples):
    rows = [(round_trip, row) for round_trip in ROUND_TRIPS for row in ROWS]
    for turn, (round_trip, row) in alternating(rounds, rows):
        show(f"round {turn + 1}: {row}, {round_trip} ms")
        # A new link has no packets of an earlier visit.
        with Link(round_trip, RATE) as link:
            samples[f"{row} {round_trip}"].append(visited(row, link, machine))


def measure_loss(machine, rounds, samples):
    rows = [(rate, row) for rate in LOSS_RATES for row in LOSSY]
    for turn, (rate, row) in alternating(rounds, rows):
        show(f"round {turn + 1}: {row}, {LOSS} % loss, {rate / 1e6:.0f} Mbit/s")
        with Link(LOSS_ROUND_TRIP, rate, faults=f"loss={LOSS}%") as link:
            # A link loses the same packets by number each time, so that each round has to begin at another number.
            link.advance(50 * turn)
            samples[f"{row} {rate}"].append(visited(row, link, machine))


def column(samples, what, key):
    return [sample[key] for sample in samples[what]]


def shown(values):
    return middle(values, lambda value: number(value, 10))


def rows_of_page(samples):
    for row, (name, *_, base, account) in ROWS.items():
        cells = []
        for round_trip in ROUND_TRIPS:
            own = column(samples, f"{row} {round_trip}", "load")
            before = column(samples, f"{base} {round_trip}", "load")
            cells += [shown(own), f"{statistics.median(own) - statistics.median(before):+,.0f}" if base else ""]
        for key, unit in (("connections", 1), ("bytes", 1e3)):
            seen = column(samples, f"{row} {ROUND_TRIPS[0]}", key) if row != "http" else None
            cells.append(f"{statistics.median(seen) / unit:,.0f}" if seen else "")
        beside = f" (beside: {ROWS[base][0].removeprefix('+ ')})" if row in ("resumption", "all") else ""
        yield [name + beside, *cells, account]


def rows_of_paints(samples):
    for row, (name, *_) in ROWS.items():
        paints = (column(samples, f"{row} {round_trip}", "paint") for round_trip in ROUND_TRIPS)
        yield [name, *(shown(filter(None, values)) for values in paints)]


def rows_of_loss(samples):
    for rate in LOSS_RATES:
        for row, (name, *_) in LOSSY.items():
            cells = []
            for key in ("load", "paint"):
                own, base = column(samples, f"{row} {rate}", key), column(samples, f"lossy-h2 {rate}", key)
                cells += [shown(own), f"{statistics.median(own) / statistics.median(base):.2f}"]
            yield [f"{rate / 1e6:.0f}", name, *cells]


def written(samples, arguments):
    trips = [cell for round_trip in ROUND_TRIPS for cell in (f"{round_trip} ms", "change")]
    return page(
        "page", resources=site.RESOURCES, pictures=site.PICTURES, chromium=chromium.version(),
        rate=RATE / 1e6,
        trips=" or ".join(map(str, ROUND_TRIPS)), visits=len(column(samples, f"http {ROUND_TRIPS[0]}", "load")), loss=LOSS,
        loss_trip=LOSS_ROUND_TRIP, lossy_visits=len(column(samples, f"lossy-h2 {RATE}", "load")),
        page=table(["", *trips, "connections", "KB", "the account"], rows_of_page(samples)),
        paints=table(["", *(f"{round_trip} ms" for round_trip in ROUND_TRIPS)], rows_of_paints(samples)),
        losses=table(["Mbit/s", "", "load event, ms", "ratio", "first paint, ms", "ratio"], rows_of_loss(samples), left=2))


MEASURES = {"page": measure_page, "loss": measure_loss}
OPTIONS = [("--rounds", 9, "number of rounds"),
           ("--only", None, "restriction to one measurement, whose samples are printed", {"choices": MEASURES})]


def run(arguments):
    programs.require(BRISK, LINK)
    samples = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        machine = Machine(scratch)
        for name, measure in MEASURES.items():
            if arguments.only in (None, name):
                measure(machine, arguments.rounds, samples)
    show()
    if arguments.only:
        return print(json.dumps(samples, indent=1))
    return written(samples, arguments)
