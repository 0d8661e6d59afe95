#!/usr/bin/env python3
"""Measures whether an urgent response overtakes others on slow and fast links: brisk beside nginx, HAProxy and h2o.

Over a link with a rate (crates/base/link), pictures of low urgency are requested over HTTP/2 or HTTP/3, and a style sheet of the highest
urgency behind them. Each server forwards the requests to the same nginx. Writes tables (Markdown). `make priorities` calls this
script; it takes a quarter of an hour.

usage: priorities [--rounds N] [--server NAME]... [--rate MBITS]... [--http 2|3] [--samples FILE] [--output FILE]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from browsing import certificates, proxies
from browsing.link import LINK, SERVER, Link
from browsing.proxies import KINDS, Proxy
from browsing.samples import Note, cpu, middle, number
from browsing.servers import BRISK, PAGE, Server

HERE = Path(__file__).resolve().parent
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


class Files:
    """The files of each rate."""

    def __init__(self, folder):
        self.folder = folder

    def of(self, rate):
        files = self.folder / f"{rate:g}"
        if not files.exists():
            files.mkdir(parents=True)
            for index in range(PICTURES):
                (files / f"{1 + 2 * index}.png").write_bytes(os.urandom(picture(rate)))
            (files / "style.css").write_bytes(os.urandom(STYLE))
        return files


def sample(kind, http, rate, share, scratch, issued, files):
    """One load of the page."""
    client = HERE / "browsing" / CLIENTS[http][0]
    with Link(ROUND_TRIP, int(rate * 1e6), queue=queue(rate)) as link:
        at_server = lambda *command: link.at("server", *command)
        with Server(scratch / "upstream", at_server, kind="nginx", port=UPSTREAM, files=files.of(rate)), \
                Proxy(scratch / "proxy", at_server, kind=kind, address=SERVER, certificates=issued, upstream=UPSTREAM):
            words = [SERVER, 443, PAGE, issued / "root.pem", PICTURES, picture(rate), STYLE, share]
            done = subprocess.run(link.at("client", sys.executable, client, *words), capture_output=True, text=True)
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
                if rate <= CLIENTS[http][1] and (http == 2 or proxies.has_http3(kind)):
                    yield http, rate, kind


def table(note, kinds, http, rate):
    head = "| | " + " | ".join(f"style sheet, {when} | all, {when}" for when in SHARES) + " | pictures before a later style sheet, KB |"
    lines = [head, f"|---|{'---:|' * (2 * len(SHARES) + 1)}"]
    urgent, whole = map(number, least(rate))
    lines.append(f"| possible | {' | '.join([urgent, whole] * len(SHARES))} | 0 |")
    for kind in kinds:
        cells = []
        for when in SHARES:
            cells += [middle(note.values(f"{kind} {http} {rate:g} {when}", key)) for key in ("urgent", "total")]
        before = note.values(f"{kind} {http} {rate:g} later", "before")
        cells.append(number(statistics.median(before) / 1e3) if before else "")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def document(note, rows):
    kinds = list(dict.fromkeys(kind for _, _, kind in rows))
    http, rate, kind = rows[0]
    rounds = len(note.values(f"{kind} {http} {rate:g} later", "urgent"))
    versions = ", ".join(map(proxies.version, kinds))
    text = [
        "# Urgent responses first", "",
        f"{PICTURES} pictures are requested on one connection, and a style sheet of {STYLE // 1000} KB behind them: in one write with the requests for the "
        f"pictures (at once), or after a quarter of their bytes has arrived (later). The pictures have the urgency 5, the style sheet 0 (RFC 9218), and "
        "over HTTP/2 the client sends the dependencies of RFC 7540 too, as Chromium does. The pictures together take two seconds on each link. The links have a "
        f"round trip of {ROUND_TRIP} ms and queues of 100 ms (20 KB at least). All servers forward the requests to the same nginx, have one worker "
        "and otherwise their defaults. `make priorities` repeats it.", "",
        f"- Machine: {cpu()}", f"- Servers: {versions}", "",
        f"Milliseconds from the request for the style sheet to its end, and from the first request to the end of all responses: medians of {rounds} "
        "loads, and the least and the most. Possible are a round trip and the bytes at the rate of the link, without headers of packets."]
    for http, rate in dict.fromkeys((http, rate) for http, rate, _ in rows):
        own = [kind for row, at, kind in rows if (row, at) == (http, rate)]
        text += ["", f"## HTTP/{http} at {rate:g} Mbit/s", "", *table(note, own, http, rate)]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds [default: %(default)s]")
    parser.add_argument("--server", action="append", choices=KINDS, help="restriction to servers [default: all that are installed]")
    parser.add_argument("--rate", action="append", type=float, help="rates in Mbit/s [default: 1.6, 10 and 100]")
    parser.add_argument("--http", type=int, action="append", choices=CLIENTS, help="versions of HTTP [default: 2 and 3]")
    parser.add_argument("--samples", type=Path, help="file for samples, with which an interrupted run continues")
    parser.add_argument("--output", type=Path, help="file for the result [default: standard output]")
    arguments = parser.parse_args()
    for program in (BRISK, LINK):
        if not Path(program).exists():
            sys.exit(f"priorities: no {program}; `make priorities` makes it")
    kinds = [kind for kind in arguments.server or KINDS if proxies.program(kind)]
    rows = list(cases(kinds, arguments.rate or RATES, arguments.http or CLIENTS))
    note = Note(arguments.samples)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        # Workers of servers that root starts have another user.
        scratch.chmod(0o755)
        issued, files = certificates.make(scratch / "certificates", [PAGE]), Files(scratch / "files")
        for note.turn in range(arguments.rounds):
            # Every other round backwards, so that none always comes after the same one.
            for http, rate, kind in rows[:: 1 if note.turn % 2 == 0 else -1]:
                for when, share in SHARES.items():
                    note.says(f"{kind}, HTTP/{http}, {rate:g} Mbit/s, {when}")
                    note.down(f"{kind} {http} {rate:g} {when}", sample(kind, http, rate, share, scratch, issued, files))
        print("\r\033[K", end="", file=sys.stderr)
    text = document(note, rows)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
