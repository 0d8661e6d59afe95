#!/usr/bin/env python3
"""Measures the cost of HTTPS for a page, and the effect of each feature that reduces it.

A page of 60 resources is loaded in Chromium over a link with a delay and a rate (crates/base/link): without TLS, with TLS, and with
one feature after another. HTTP/2 and HTTP/3 are compared over a link that loses packets. Then the size of TLS records is varied: the time until the first bytes of a script can be used over
a slow link, and the cost of growing records for a download. Writes tables (Markdown). `make page` calls this script; it takes
a quarter of an hour.

usage: page [--rounds N] [--only page|loss|records|bulk] [--samples FILE] [--output FILE]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from browsing import certificates, chromium, servers, site
from browsing.chromium import Chromium, Failed
from browsing.link import LINK, SERVER, Link
from browsing.samples import Note, cpu, middle, number
from browsing.servers import ASSETS, BRISK, PAGE, START, Server
from processes import free_port

HERE = Path(__file__).resolve().parent
ROUND_TRIPS, RATE = (50, 100), 10_000_000
# Of the link for the size of records, and the script that is asked for.
SLOW_ROUND_TRIP, SLOW_RATE, SCRIPT = 100, 1_000_000, "/js/head.v1.js"
# Of the link for HTTP/2 and HTTP/3: percent of the packets, in each direction.
LOSS_ROUND_TRIP, LOSS, LOSS_RATES = 50, 1, (10_000_000, 100_000_000)
RECORDS = {"growing": "true", "full": "false"}
BULK = {"1 MiB on kept connections": [], "1 MiB on a new connection each": ["-r", 1]}
H1, H2 = '"http/1.1"', '"h2", "http/1.1"'

# Each row: name, whether assets are on another domain, the settings of the server, what happens before the click, what the
# row is compared with, and what the account says of the same step.
ROWS = {
    "http": ("HTTP/1.1 without TLS, two domains", True, {"kind": "nginx", "port": 80}, "plain", None, "1,795 ms"),
    "https": ("HTTPS over HTTP/1.1, two domains", True, {"protocols": H1}, "plain", "http", "2,630 ms (+835)"),
    "h2": ("+ HTTP/2", True, {}, "plain", "https", "-370 ms (SPDY)"),
    "one": ("+ one domain", False, {}, "plain", "h2", "-200 ms"),
    "preconnect": ("+ preconnect", False, {}, "preconnect", "one", "-400 ms (75 % of clicks found a connection)"),
    "resumption": ("one domain, + resumption", False, {"idle": "1s"}, "session", "one", "handshakes 200 to 400 -> 100 ms"),
    "early": ("+ 0-RTT", False, {"idle": "1s", "early": "safe"}, "session", "resumption", ""),
    "compression": ("+ compression", False, {"idle": "1s", "early": "safe", "compression": "true"}, "session", "early", ""),
    "all": ("one domain, preconnect and compression", False, {"compression": "true"}, "preconnect", "preconnect", ""),
}
# Over the link with loss.
LOSSY = {
    "lossy-h2": ("HTTP/2", False, {}, "plain", None, ""),
    "lossy-h3": ("HTTP/3", False, {"http3": "http3 = true"}, "plain", "lossy-h2", ""),
}


def visit(row, link, machine):
    """One click: milliseconds until the load event and what else the browser says, and what the server saw."""
    _, apart, settings, before, _, _ = {**ROWS, **LOSSY}[row]
    scheme, domains = ("http" if settings.get("kind") == "nginx" else "https"), ("two" if apart else "one")
    at_server = lambda *command: link.at("server", *command)
    at_client = lambda *command: link.at("client", *command)
    features = ["EnableTLS13EarlyData"] if "early" in settings else []
    options = [f"--origin-to-force-quic-on={PAGE}:443"] if "http3" in settings else []
    with Server(machine.scratch / "server", at_server, address=SERVER, certificates=machine.certificates,
                files=machine.files[scheme, domains], **settings) as server, \
            Chromium(at_client, f"MAP *.page.test {SERVER}, MAP * ~NOTFOUND", machine.pins, features, options=options) as browser:
        if before == "session":
            browser.open(f"https://{PAGE}/_session")
        browser.open(f"{scheme}://{START}/{'preconnect' if before == 'preconnect' else 'plain'}")
        if before == "preconnect":
            browser.evaluate("new Promise(done => { const look = () => document.title == 'connected' ? done(true) "
                             ": setTimeout(look, 20); look() })")
        # What was said last has arrived. Browsers open more connections than they need; to resume, none may be left.
        time.sleep(2.5 if before == "session" else 0.5)
        browser.open(f"{scheme}://{PAGE}/")
        sample = browser.timing()
        if server.kind == "brisk":
            sample |= seen(server.requests(site.RESOURCES))
    complaint = wrong(row, sample)
    if complaint:
        raise Failed(complaint)
    return sample


def seen(log):
    """What the access log says of the page."""
    lines = [line for line in log if servers.is_of_page(line)]
    before = {line["connection"] for line in log if not servers.is_of_page(line)}
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
            print(f"\r\033[Kpage: {error}; again", file=sys.stderr)
    sys.exit(f"page: {row}: not once in four attempts")


class Machine:
    """Certificates and the files of the page, as each row wants them."""

    def __init__(self, scratch):
        self.scratch = Path(scratch)
        self.certificates = certificates.make(self.scratch / "certificates", [PAGE, ASSETS, START])
        self.pins = [chromium.pin(self.certificates / f"{name}.pem") for name in (PAGE, ASSETS, START)]
        self.files = {}
        for scheme, domains in (("http", "two"), ("https", "two"), ("https", "one")):
            folder = self.scratch / f"files-{scheme}-{domains}"
            site.make(folder, f"{scheme}://{ASSETS}" if domains == "two" else "")
            self.files[scheme, domains] = folder
        (self.files["https", "one"] / "1m").write_bytes(b"brisk " * (1 << 20) + b"ends")
        with open(self.files["https", "one"] / "1m", "r+b") as file:
            file.truncate(1 << 20)

    def server(self, prefix, **settings):
        return Server(self.scratch / "server", prefix, certificates=self.certificates, files=self.files["https", "one"], **settings)


def measure_page(machine, arguments, note):
    for round_trip in ROUND_TRIPS:
        # Every other round backwards, so that none always comes after the same one.
        for row in ROWS if note.turn % 2 == 0 else reversed(ROWS):
            note.says(f"{row}, {round_trip} ms")
            # A new link: nothing is left of what was on its way before.
            with Link(round_trip, RATE) as link:
                note.down(f"{row} {round_trip}", visited(row, link, machine))


def measure_loss(machine, arguments, note):
    for rate in LOSS_RATES:
        for row in LOSSY if note.turn % 2 == 0 else reversed(LOSSY):
            note.says(f"{row}, {LOSS} % loss, {rate / 1e6:.0f} Mbit/s")
            with Link(LOSS_ROUND_TRIP, rate, faults=f"loss={LOSS}%") as link:
                # A link loses the same packets by number each time, so that each round has to begin at another number.
                link.advance(50 * note.turn)
                note.down(f"{row} {rate}", visited(row, link, machine))


def measure_records(machine, arguments, note):
    for records, growing in RECORDS.items():
        note.says(f"{records} records")
        with Link(SLOW_ROUND_TRIP, SLOW_RATE) as link:
            with machine.server(lambda *command: link.at("server", *command), address=SERVER, growing=growing):
                done = subprocess.run(link.at("client", sys.executable, HERE / "browsing/first_bytes.py", SERVER, 443, PAGE, SCRIPT,
                                              machine.certificates / "root.pem"), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"page: {done.stderr}")
        note.down(f"{records} records", json.loads(done.stdout))


def measure_bulk(machine, arguments, note):
    """Downloads on loopback, with the server on one core and the client on another."""
    for kind, options in BULK.items():
        for records, growing in list(RECORDS.items())[:: 1 if note.turn % 2 == 0 else -1]:
            note.says(f"{kind}, {records} records")
            port = free_port()
            with machine.server(lambda *command: ["taskset", "-c", "0", *map(str, command)], port=port, growing=growing, log="off") as server:
                words = ["bench", f"https://{PAGE}/1m", "--connect", f"127.0.0.1:{port}", "--ca", machine.certificates / "root.pem", "--json",
                         "--tls", "1.3", "-c", 8, "-d", f"{arguments.seconds}s", "--warmup", "300ms", "--server-pid", server.process.pid, *options]
                done = subprocess.run(["taskset", "-c", "1", BRISK, *map(str, words)], capture_output=True, text=True)
            if not done.stdout:
                sys.exit(f"page: brisk bench: {done.stderr}")
            report = json.loads(done.stdout)
            if report["errors"]:
                sys.exit(f"page: brisk bench: {report['errors']}")
            note.down(f"{kind}, {records}", {"rate": report["rate_per_s"], "cpu": report["server"]["cpu_per_request_us"]})


def page_table(note):
    head = [cell for round_trip in ROUND_TRIPS for cell in (f"{round_trip} ms", "change")]
    lines = [f"| | {' | '.join(head)} | connections | KB | the account |", f"|---|{'---:|' * len(head)}---:|---:|---|"]
    for row, (name, *_, base, account) in ROWS.items():
        cells = []
        for round_trip in ROUND_TRIPS:
            own = note.values(f"{row} {round_trip}", "load")
            change = statistics.median(own) - statistics.median(note.values(f"{base} {round_trip}", "load")) if base else None
            cells += [middle(own), "" if change is None else f"{change:+,.0f}"]
        samples = note.samples[f"{row} {ROUND_TRIPS[0]}"]
        seen = [f"{statistics.median(sample['connections'] for sample in samples):.0f}",
                f"{statistics.median(sample['bytes'] for sample in samples) / 1e3:,.0f}"] if "bytes" in samples[0] else ["", ""]
        base = f" (beside: {ROWS[base][0].removeprefix('+ ')})" if row in ("resumption", "all") else ""
        lines.append(f"| {name}{base} | {' | '.join([*cells, *seen])} | {account} |")
    return lines


def paint_table(note):
    lines = [f"| | {' | '.join(f'{round_trip} ms' for round_trip in ROUND_TRIPS)} |", f"|---|{'---:|' * len(ROUND_TRIPS)}"]
    for row, (name, *_) in ROWS.items():
        paints = [[value for value in note.values(f"{row} {round_trip}", "paint") if value] for round_trip in ROUND_TRIPS]
        lines.append(f"| {name} | {' | '.join(map(middle, paints))} |")
    return lines


def loss_table(note):
    lines = ["| Mbit/s | | load event, ms | ratio | first paint, ms | ratio |", "|---:|---|---:|---:|---:|---:|"]
    for rate in LOSS_RATES:
        for row, (name, *_) in LOSSY.items():
            cells = []
            for key in ("load", "paint"):
                own, base = note.values(f"{row} {rate}", key), note.values(f"lossy-h2 {rate}", key)
                cells += [middle(own), f"{statistics.median(own) / statistics.median(base):.2f}"]
            lines.append(f"| {rate / 1e6:.0f} | {name} | {' | '.join(cells)} |")
    return lines


def records_table(note):
    lines = ["| records | first bytes of the script, ms | all of it, ms |", "|---|---:|---:|"]
    return lines + [f"| {records} | {middle(note.values(f'{records} records', 'first'))} | {middle(note.values(f'{records} records', 'all'))} |"
                    for records in RECORDS]


def bulk_table(note):
    lines = ["| | requests /s, growing | full | ratio | server, us of processor, growing | full | ratio |", "|---|---:|---:|---:|---:|---:|---:|"]
    for kind in BULK:
        cells = []
        for key in ("rate", "cpu"):
            growing, full = (note.values(f"{kind}, {records}", key) for records in RECORDS)
            # Neighbours in time are compared, and the median of these ratios is shown.
            ratios = sorted(a / b for a, b in zip(growing, full))
            cells += [number(statistics.median(growing)), number(statistics.median(full)),
                      f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})"]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def document(note, arguments):
    visits = len(note.values(f"http {ROUND_TRIPS[0]}", "load"))
    text = [
        "# A page over a slow link", "",
        f"A page of {site.RESOURCES} resources: HTML, two styles, a script that blocks in the head, three that do not, {site.PICTURES} "
        f"pictures (`bench/browsing/site.py`), in {chromium.version()}, over a link of {RATE / 1e6:.0f} Mbit/s with a round trip of "
        f"{' or '.join(map(str, ROUND_TRIPS))} ms (`crates/base/link`). Each visit is that of a new browser, which has been to another host of "
        "the same site and then clicks. `make page` repeats it.", "", f"- Machine: {cpu()}", "",
        "## Time until the load event", "",
        f"Milliseconds from the click to the load event: medians of {visits} visits, and the least and the most; the change is between medians. "
        "Connections and KB (bodies, as sent) are those of the page. Names cost nothing here, since there is no DNS. TLS is 1.3 with "
        "X25519MLKEM768, certificates are ECDSA. Without TLS nginx serves, as brisk does not; the rest is brisk with one worker.", "",
        *page_table(note), "",
        "The account is that of Qzone on iOS, of other pages and networks: it stands beside these figures for what counts, not for how much. A connection that is open before the click saves the handshake whole, so resumption and 0-RTT are for the clicks that find "
        "none: their rows begin from one domain again. Resumption alone saves no round trip in TLS 1.3, only bytes and computation; in TLS 1.2, the "
        "account's, it saves one.", "",
        "## Time until something is seen", "", "The first contentful paint, in ms.", "", *paint_table(note), "",
        "## HTTP/2 and HTTP/3 with loss", "",
        f"The same page over a link with a round trip of {LOSS_ROUND_TRIP} ms that loses {LOSS} % of the packets in each direction, one domain: milliseconds, "
        f"medians of {len(note.values(f'lossy-h2 {RATE}', 'load'))} visits, the least and the most, and the ratio of the medians. The browser connects by QUIC "
        "at once, as with a DNS record of type HTTPS.", "", *loss_table(note), "",
        "## Size of records", "",
        f"A script of {site.TEXTS['js/head'] // 1000} KB over {SLOW_RATE / 1e6:.0f} Mbit/s with a round trip of {SLOW_ROUND_TRIP} ms, on a new connection over "
        f"HTTP/1.1: milliseconds from the request until the first bytes of the body could be used, and until all of it was there. Full records are "
        "`tls.growing_records = false`: 16 KiB each, more than the ten segments that a server sends at first, so the first cannot be opened before the "
        "second round trip.", "", *records_table(note), "",
        f"Downloads of 1 MiB over HTTP/1.1 on loopback, eight connections, server and client on a core each, {arguments.seconds:g} s for each "
        "sample. A ratio is that of two samples one after the other.", "", *bulk_table(note)]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=2, help="duration of each download in each round, in seconds [default: %(default)s]")
    measures = {"page": measure_page, "loss": measure_loss, "records": measure_records, "bulk": measure_bulk}
    parser.add_argument("--only", choices=measures, help="restriction to one measurement")
    parser.add_argument("--samples", type=Path, help="file for samples, with which an interrupted run continues")
    parser.add_argument("--output", type=Path, help="file for the result [default: standard output]")
    arguments = parser.parse_args()
    for program in (BRISK, LINK):
        if not Path(program).exists():
            sys.exit(f"page: no {program}; `make page` makes it")
    note = Note(arguments.samples)
    with tempfile.TemporaryDirectory() as scratch:
        machine = Machine(scratch)
        for note.turn in range(arguments.rounds):
            for name, measure in measures.items():
                if arguments.only in (None, name):
                    measure(machine, arguments, note)
        print("\r\033[K", end="", file=sys.stderr)
    if arguments.output:
        arguments.output.write_text(document(note, arguments))
    elif arguments.only:
        print(json.dumps(note.samples, indent=1))
    else:
        print(document(note, arguments), end="")


if __name__ == "__main__":
    main()
