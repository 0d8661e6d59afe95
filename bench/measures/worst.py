"""Measures the memory of brisk, and the requests of a visitor, under all attacks on memory at the same time.

brisk with one worker and a small limit for each budget serves a visitor who sends every kind of request at a fixed rate: first
alone, then beside clients that make brisk hold memory in every way that docs/security.md lists. The clients have one address, and
then, with a new process, 200 addresses. The machine must be quiet.
"""
import base64
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from hostile.crowd import Attackers
from hostile.holders import FILES, KINDS, SENT
from hostile.upstream import Counting
from shared import programs
from shared.figures import MIB, mebibytes, number, page, show, table
from shared.gateway import Brisk, route, upstream
from shared.load import bench, result
from shared.programs import BRISK

NEEDS = "strangers"
OPTIONS = [("--addresses", [], "number of the attackers' addresses, by default 1 and 200", {"type": int}),
           ("--kind", [], "restriction to this kind of attackers", {"choices": KINDS, "metavar": "KIND"}),
           ("--each", False, "also measure each kind of attackers alone, for half a minute each"),
           ("--seconds", 60, "duration of a phase in seconds"), ("--ramp", 25, "seconds in which the attackers come"),
           ("--rate", 36, "requests per second of the visitor"), ("--streams", 32, "streams of an HTTP/2 connection"),
           ("--server-cores", "0", "cores of the server"), ("--client-cores", "1", "cores of the clients"),
           ("--greedy", False, "give attackers and their upstream the usual priority, for a busy machine on which they would "
            "otherwise never run")]
# Requests of the visitor, who comes from another address than all attackers: path, and options of the load.
VISITS = {
    "proxied": ("/visit", []),
    "proxied, HTTP/2": ("/visit", ["--h2", 1]),
    "new connection": ("/visit", ["-r", 1]),
    "file": ("/file/1k", []),
    "compressed": ("/visit/plain/document/none", ["-H", "accept-encoding: gzip"]),
    "changed document": ("/visit/document/gz", ["-H", "accept: text/html", "-H", "accept-encoding: gzip"]),
    "buffered upload": ("/upload/buffered/visit", ["--body", "$small/upload"]),
    "beacon": ("/.brisk/beacon", ["--body", "$small/beacon", "-H", "content-type: application/reports+json", "-H",
                                  "sec-fetch-site: same-origin"]),
}
# Seconds of requests before a measurement, and of an attack of a single kind.
WARMUP, ALONE = 5, 12
# Connections of the attack from many addresses, in multiples of that from one.
TIMES = 3
# Limits in MiB. Of the last two, three quarters are for complete responses, and a quarter each is part of the budget `copies`.
LIMITS = {"buffered_total": 32, "compression_memory": 64, "buffered_requests": 32, "compressed_files": 32, "dictionaries": 32}
STORED = {"compressed copies, complete": ("compressed_files", "brisk_compressed_copies_bytes"),
          "dictionaries, complete": ("dictionaries", "brisk_compression_dictionaries_bytes")}
# Bytes that each connection may hold in addition to the budget `responses`.
SHARE = 64 << 10
# Bytes of a budget that one address can hold because of another limit: 60 beacons at once, and two a second after that.
OTHERWISE = {"beacons": 60 * SENT}
# Part of its share that an attack must reach at least, so that it is one.
FILLED = 0.8

SERVER = """
max_connections_per_client = 1024
unknown_host = "refuse"
[server.limits]
h2_streams = $streams
$limits
"""
HOST = """
visits = true
compression = { dictionaries = true }
consolidate = { "https://static.test" = { path = "/_s", upstream = "visitors" } }
"""
BUFFERED = ["buffer_request = true", 'body_size = "10MiB"']
APP, VISITORS, STRIPPED = 'upstream = "app"', 'upstream = "visitors"', "strip_prefix = true"
ROUTES = (route("/", APP) + route("/file", 'static = "$files"') + route("/copy", 'static = "$copies"') +
          route("/upload/buffered", APP, *BUFFERED) + route("/upload/buffered/visit", VISITORS, *BUFFERED) +
          route("/visit", VISITORS, STRIPPED) + route("/visit/plain", VISITORS, STRIPPED, "rewrite = false") +
          upstream("app", "$servers") + upstream("visitors", '"http://127.0.0.1:$visitors"'))


def prepare(folder):
    """Files of the gateway and of both upstreams, the latter with their compressed copies."""
    choice, made = random.Random(31), {}
    for name, lines in (("large", 20_000), ("small", 600)):
        made[name] = folder / name
        made[name].mkdir()
        text = "".join(f"<a href=\"https://static.test/{line * line % 7919}\">{line}</a>\n" for line in range(lines))
        (made[name] / "page.html").write_text(text)
        subprocess.run([BRISK, "compress", made[name]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (made["small"] / "upload").write_bytes(b"u" * 100_000)
    (made["small"] / "beacon").write_text('[{"type":"deprecation","age":1,"url":"https://bench.test/","body":{"id":"x"}}]')
    made["copies"] = folder / "copies"
    made["copies"].mkdir()
    for index in range(FILES):
        # A quarter of base64 can be compressed.
        (made["copies"] / f"{index}.txt").write_bytes(base64.encodebytes(choice.randbytes(MIB)))
    return made


def addresses(count):
    return [f"127.0.0.{number}" for number in range(2, count + 2)]


def visits(server, arguments, made, seconds):
    """Results of the visitor's requests by kind."""
    def load(path, options):
        return bench(server.port, arguments.client_cores, path, seconds, "--tls", "1.3", "-c", 1, "--timeout", "15s", "--rate",
                     arguments.rate / len(VISITS), *(str(word).replace("$small", str(made["small"])) for word in options),
                     nice=-15 if os.geteuid() == 0 else 0)
    loads = {kind: load(*visit) for kind, visit in VISITS.items()}
    return {kind: result(load) for kind, load in loads.items()}


def attackers(server, arguments, count, kinds, folder):
    """Attackers of these kinds from `count` addresses."""
    times = 1 if count == 1 else TIMES
    settings = {"port": server.port, "addresses": addresses(count), "streams": arguments.streams,
                "wanted": {kind: KINDS[kind][0] * times for kind in kinds}}
    return Attackers(settings, arguments.client_cores, folder, not arguments.greedy)


def attack(server, arguments, made, count, folder):
    """The attack from `count` addresses: the visitor's requests beside it, the samples during it, and the attackers' counts."""
    began = time.monotonic()
    with attackers(server, arguments, count, arguments.kind, folder) as crowd:
        until = began + arguments.ramp
        while time.monotonic() < until and crowd.running():
            show(f"{count} addresses: attackers come, {server.resident() // MIB} MiB")
            time.sleep(1)
        show(f"{count} addresses: visitor beside the attack")
        cpu, start = server.cpu(), time.monotonic()
        found = visits(server, arguments, made, arguments.seconds)
        busy = (server.cpu() - cpu) / (time.monotonic() - start)
        if server.process.poll() is not None or not crowd.running():
            sys.exit(f"\nworst: brisk or the attackers ended:\n{server.log()[-3000:]}")
        counts = crowd.counts()
    during = [sample for sample in server.samples if sample[0] >= began and sample[2]]
    return {"attacked": found, "during": during, "counts": counts["slow"], "busy": busy}


@contextmanager
def gateway(arguments, made, folder):
    """brisk before its upstreams, which has served the visitor for some seconds."""
    limits = "\n".join(f'{name} = "{size}MiB"' for name, size in LIMITS.items())
    cores = arguments.client_cores
    with (Counting(cores, not arguments.greedy, made["large"]) as upstream, Counting(cores, documents=made["small"]) as visitors):
        # Several addresses of one upstream, since each has ports for a limited number of connections.
        servers = ", ".join(f'"http://127.0.1.{number}:{upstream.port}"' for number in range(1, 6))
        with Brisk(ROUTES, folder, arguments.server_cores, first=True, interval=1, access='format = "text"\nfile = "/dev/null"',
                   server=SERVER, host=HOST, streams=arguments.streams, limits=limits, copies=made["copies"], servers=servers,
                   visitors=visitors.port) as server:
            visits(server, arguments, made, WARMUP)
            yield server


def measure(arguments, count, made, folder):
    """Everything about the attack from `count` addresses."""
    show(f"{count} addresses: visitor alone")
    with gateway(arguments, made, folder) as server:
        found = {"idle": visits(server, arguments, made, arguments.seconds), "base": server.resident()}
        found |= attack(server, arguments, made, count, folder)
        found |= {"peak": server.resident("VmHWM"), "limits": server.metrics()}
        time.sleep(10)
        found["left"] = server.resident()
    show("")
    return found


def alone(arguments, kind, made, folder):
    """A row for one kind of attackers from one address: its connections, memory, and the part that is reserved from budgets."""
    show(f"{kind} alone")
    with gateway(arguments, made, folder) as server:
        base = server.resident()
        with attackers(server, arguments, 1, [kind], folder) as crowd:
            time.sleep(ALONE)
            grown, connections = server.resident("VmHWM") - base, crowd.counts()["slow"][kind]["now"]
        reserved = max(sum(value for series, value in metrics.items() if series.startswith("brisk_budget_held_bytes{"))
                       for _, _, metrics in server.samples if metrics)
    each = grown / max(1, connections) / 1024
    return [kind, f"{connections:,}", mebibytes(grown), f"{each:,.0f}", mebibytes(reserved)]


def bad(found):
    return found["failed"] + found["other"] + found["unstarted"]


def rows_of_visits(found):
    """A row for each kind of request, and the ratio of the means of all p99."""
    before, beside = found["idle"], found["attacked"]
    p99 = [statistics.mean(one.get("p99", math.nan) for one in phase.values()) for phase in (before, beside)]
    rows = []
    for kind in VISITS:
        cells = [kind]
        for one in (before[kind], beside[kind]):
            cells += [f"{one['operations'] - one['other']:,}", f"{bad(one):,}",
                      *(number(one.get(quantile, math.nan)) for quantile in ("p50", "p99"))]
        rows.append([*cells, number(beside[kind].get("p99", math.nan) / before[kind].get("p99", math.nan))])
    return rows, p99[1] / p99[0]


def most(found, series):
    return max((metrics.get(series, 0) for _, _, metrics in found["during"]), default=0)


def budgets(found, count):
    """A row for each limit, their sum, and those that the attack did not fill."""
    names = [series.split('"')[1] for series in found["limits"] if series.startswith("brisk_budget_limit_bytes{")]
    rows, total, empty = [], 0, []
    for name in names:
        label = f'{{budget="{name}"}}'
        limit, held = found["limits"][f"brisk_budget_limit_bytes{label}"], most(found, f"brisk_budget_held_bytes{label}")
        share = min(limit * count / (count + 1), count * OTHERWISE.get(name, limit))
        total += limit
        if held < FILLED * share:
            empty.append(name)
        refused = found["limits"][f"brisk_budget_refusals_total{label}"]
        rows.append([f"`{name}`", mebibytes(limit), mebibytes(share), mebibytes(held), f"{refused:,.0f}"])
    for name, (key, series) in STORED.items():
        limit = LIMITS[key] * MIB * 3 / 4
        total += limit
        rows.append([name, mebibytes(limit), mebibytes(limit), mebibytes(most(found, series)), ""])
    return rows, total, empty


def beyond_budgets(found):
    """Bytes of the sample with the most memory that no budget or store contains."""
    _, memory, metrics = max(found["during"], key=lambda sample: sample[1])
    series = [name for name in metrics if name.startswith("brisk_budget_held_bytes{")] + [series for _, series in STORED.values()]
    return memory - found["base"] - sum(metrics.get(name, 0) for name in series)


def of_limit(grown, limit):
    return f"{grown / limit:.2f} of them{'' if grown <= 1.1 * limit else '. **More than 1.1**'}"


def section(found, count):
    rows, ratio = rows_of_visits(found)
    held, total, empty = budgets(found, count)
    grown, connections = found["peak"] - found["base"], most(found, "brisk_connections_open")
    limit, beyond = total + connections * SHARE, beyond_budgets(found)
    failed = sum(map(bad, found["attacked"].values()))
    errors = [f"{kind}: {error}" for kind, one in found["attacked"].items() for error in one["errors"]]
    counts = [[name, *(f"{kind[key]:,}" for key in ("wanted", "now", "opened", "cut", "failed"))]
              for name, kind in found["counts"].items()]
    filled = (f"- **Budgets that the attack did not fill**: {', '.join(empty)}." if empty else
              f"- The attack filled {FILLED:.0%} of its share of every budget.")
    return page(
        "worst-addresses", addresses=f"{count} address{'es' if count > 1 else ''}", base=mebibytes(found["base"]),
        peak=mebibytes(found["peak"]), grown=mebibytes(grown), total=mebibytes(total), part=of_limit(grown, total),
        connections=connections, with_shares=mebibytes(limit), part_with_shares=of_limit(grown, limit), beyond=mebibytes(beyond),
        each=beyond / max(1, connections) / 1024, left=mebibytes(found["left"]), ratio=ratio, excess="" if ratio <= 3
        else ", **more than 3**", requests=f"**{failed:,} failed**" if failed else "all succeeded", busy=found["busy"],
        filled=[*(f"  - {error}" for error in errors[:5]), filled],
        budgets=held, visits=rows, attackers=counts)


def run(arguments):
    arguments.addresses, arguments.kind = arguments.addresses or [1, 200], arguments.kind or list(KINDS)
    programs.require(BRISK)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        made = prepare(folder)
        found = {count: measure(arguments, count, made, folder / str(count)) for count in arguments.addresses}
        rows = [alone(arguments, kind, made, folder / "alone") for kind in arguments.kind] if arguments.each else []
    show()
    sections = ["\n" + section(found[count], count).rstrip("\n") for count in arguments.addresses]
    if rows:
        sections += ["", "## Each kind alone", "", f"From one address, the most memory in {ALONE} s.", "",
                     *table(["attackers", "connections", "MiB more", "KiB for each", "reserved from budgets, MiB"], rows)]
    return page("worst", arguments=arguments, limits=", ".join(f"`{name}` {size} MiB" for name, size in LIMITS.items()),
                sections=sections)
