"""Measures whether an urgent response overtakes others on slow and fast links: brisk beside nginx, HAProxy and h2o.

Over a link with a rate (crates/base/link), pictures of low urgency are requested over HTTP/2 or HTTP/3, and a style sheet of the
highest urgency behind them. Each server forwards the requests to the same nginx. Takes a quarter of an hour.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from browsing import servers
from browsing.servers import PAGE as NAME, PROXIES, proxy
from shared import certificates, programs
from shared.figures import Samples, alternating, middle, number, page, show, table
from shared.link import SERVER, Link
from shared.programs import BENCH, BRISK, LINK
from shared.servers import Server

NEEDS, BUILDS = "page", "--package brisk-link"
ROUND_TRIP = 40
RATES = (1.6, 10, 100)
# The pictures together take this long on each link.
SECONDS = 2
PICTURES, STYLE = 24, 20_000
# When the style sheet is requested: after this part of the pictures' bytes.
SHARES = {"at once": 0, "later": 0.25}
UPSTREAM = 8000
# The client of each version of HTTP, and its highest rate in Mbit/s: aioquic is not fast enough for more.
CLIENTS = {2: ("urgent.py", 100), 3: ("urgent_h3.py", 10)}


def picture(rate):
    """Bytes of a picture."""
    return int(rate * 1e6 / 8 * SECONDS / PICTURES)


def queue(rate):
    """Bytes that wait at the link: what it carries in 100 ms, but at least some packets."""
    return max(20_000, int(rate * 1e6 / 8 / 10))


def files_of(rate, folder):
    """The files of a rate."""
    files = folder / f"{rate:g}"
    if not files.exists():
        files.mkdir(parents=True)
        for index in range(PICTURES):
            (files / f"{1 + 2 * index}.png").write_bytes(os.urandom(picture(rate)))
        (files / "style.css").write_bytes(os.urandom(STYLE))
    return files


def sample(kind, http, rate, share, scratch, issued):
    """One load of the page."""
    with Link(ROUND_TRIP, int(rate * 1e6), queue=queue(rate)) as link:
        files = files_of(rate, scratch / "files")
        with Server("servers/page.conf", scratch / "upstream", prefix=link.server, PORT=UPSTREAM, FILES=files), \
                proxy(kind, scratch / "proxy", issued, prefix=link.server, ADDRESS=SERVER, PORT=443, UPSTREAM=UPSTREAM):
            client = [sys.executable, BENCH / "browsing" / CLIENTS[http][0], SERVER, 443, NAME, issued / "root.pem"]
            done = subprocess.run(link.client(*client, PICTURES, picture(rate), STYLE, share), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"priorities: {kind}, HTTP/{http}, {rate:g} Mbit/s: {done.stderr}")
    return json.loads(done.stdout)


def least(rate):
    """Milliseconds that no server can go below: of the style sheet, and of everything."""
    time = lambda size: 8e-3 * size / rate
    return time(STYLE) + ROUND_TRIP, time(STYLE + PICTURES * picture(rate)) + ROUND_TRIP


def cases(kinds, rates, versions):
    """Version of HTTP, rate and server of each row."""
    for http in versions:
        for rate in rates:
            for kind in kinds:
                if rate <= CLIENTS[http][1] and (http == 2 or servers.has_http3(kind)):
                    yield http, rate, kind


def section(samples, kinds, http, rate):
    head = ["", *(f"{what}, {when}" for when in SHARES for what in ("style sheet", "all")),
            "pictures before a later style sheet, KB"]
    form = lambda value: number(value, 10)
    rows = [["possible", *map(form, least(rate)), *map(form, least(rate)), "0"]]
    for kind in kinds:
        before = samples.values(f"{kind} {http} {rate:g} later", "before")
        rows.append([kind, *(middle(samples.values(f"{kind} {http} {rate:g} {when}", key), form) for when in SHARES
                             for key in ("urgent", "total")), form(statistics.median(before) / 1e3) if before else ""])
    return ["", f"## HTTP/{http} at {rate:g} Mbit/s", "", *table(head, rows)]


def written(samples, rows):
    http, rate, kind = rows[0]
    sections = []
    for http, rate in dict.fromkeys((http, rate) for http, rate, _ in rows):
        sections += section(samples, [kind for row, at, kind in rows if (row, at) == (http, rate)], http, rate)
    return page("priorities", pictures=PICTURES, style=STYLE // 1000, trip=ROUND_TRIP, sections=sections,
                servers=", ".join(map(servers.version, dict.fromkeys(kind for _, _, kind in rows))),
                rounds=len(samples.values(f"{kind} {http} {rate:g} later", "urgent")))


OPTIONS = [("--rounds", 7, "number of rounds"), ("--server", [], "restriction to this server", {"choices": PROXIES}),
           ("--rate", [], "rate in Mbit/s, by default 1.6, 10 and 100", {"type": float}),
           ("--http", [], "version of HTTP, by default 2 and 3", {"type": int, "choices": CLIENTS}),
           ("--samples", None, "file for samples, with which an interrupted run continues", {"type": Path})]


def run(arguments):
    programs.require(BRISK, LINK)
    kinds = [kind for kind in arguments.server or PROXIES if servers.program_of(kind)]
    rows = list(cases(kinds, arguments.rate or RATES, arguments.http or CLIENTS))
    samples = Samples(arguments.samples)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        # Workers of servers that root starts have another user.
        scratch.chmod(0o755)
        issued = certificates.make(scratch / "certificates", [NAME])
        for turn, (http, rate, kind) in alternating(arguments.rounds, rows):
            for when, share in SHARES.items():
                show(f"round {turn + 1}: {kind}, HTTP/{http}, {rate:g} Mbit/s, {when}")
                samples.add(f"{kind} {http} {rate:g} {when}", sample(kind, http, rate, share, scratch, issued))
    show()
    return written(samples, rows)
