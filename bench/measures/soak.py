"""Measures the effect of thousands of hostile clients on a steady load and on the memory of brisk.

brisk with one worker serves requests at a fixed rate, on kept connections and on new ones: first for some minutes without
attack, then with slow readers, slow uploads, rapid resets, PING floods, incomplete handshakes and disappearing clients at the
same time, then for some minutes without attack again. The machine must be quiet.
"""
import math
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from hostile.crowd import HOLD, TURN, Attackers
from hostile.holders import FLOODS, READS, STREAMS
from hostile.upstream import Counting
from shared import programs
from shared.figures import MIB, growth, middle, number, page, show
from shared.gateway import Brisk, route, upstream
from shared.load import bench, result
from shared.processes import wait
from shared.programs import BRISK

NEEDS = "strangers"
OPTIONS = [("--minutes", 20.0, "duration of the attack in minutes"),
           ("--quiet", None, "minutes without attack before, and again after it, by default a fifth of --minutes",
            {"type": float}),
           ("--readers", 5000, "number of slowly read downloads"), ("--drippers", 5000, "number of slow uploads"),
           ("--rate", 400, "requests per second on kept connections"),
           ("--new-rate", 20, "requests per second on new connections"), ("--chunk", 60, "interval of a percentile in seconds"),
           ("--server-cores", "0", "cores of the server"), ("--client-cores", "1", "cores of the clients"),
           ("--greedy", False, "give attackers and upstream the priority of the load generator, for a busy machine on which they "
            "would otherwise never run")]
KEPT = 32
# Descriptors of brisk in addition to clients, upstreams and files.
SPARE = 500

ROUTES = (route("/steady", 'respond = { body = "$body" }') + route("/file/", 'static = "$files"') +
          route("/", 'upstream = "app"') + upstream("app", "$servers"))


def minute(server, control, arguments):
    """One chunk of the steady load: requests on kept connections, on new ones, and on connections to the server that is not
    attacked."""
    cpu, began = server.cpu(), time.monotonic()
    def load(server, *options):
        return bench(server.port, arguments.client_cores, "/steady", arguments.chunk, "--tls", "1.3", *options)
    loads = {"kept": load(server, "-c", KEPT, "--rate", arguments.rate),
             "control": load(control, "-c", KEPT, "--rate", arguments.rate),
             "new": load(server, "-c", 64, "-r", 1, "--rate", arguments.new_rate)}
    found = {name: result(load) for name, load in loads.items()}
    found["busy"] = (server.cpu() - cpu) / (time.monotonic() - began)
    if server.process.poll() is not None:
        sys.exit(f"\nsoak: brisk ended:\n{server.log()[-3000:]}")
    return found


def chunks(servers, arguments, name, minutes, attackers=None):
    """The minutes of one phase."""
    server, control = servers
    found, count = [], max(1, round(minutes * 60 / arguments.chunk))
    for index in range(count):
        last = found[-1]["kept"].get("p99", math.nan) if found else math.nan
        slow = f", {standing(attackers)[0]} slow clients" if attackers else ""
        show(f"{name}: {index + 1} of {count}, p99 {last:.2f} ms, {server.resident() >> 20} MiB{slow}")
        found.append(minute(server, control, arguments))
        if attackers and not attackers.running():
            sys.exit("\nsoak: the attackers ended by themselves")
    return found


def standing(attackers):
    """The slow clients that are connected now, and those wanted."""
    slow = (attackers.counts() or {"slow": {}})["slow"].values()
    return [sum(kind[what] for kind in slow) for what in ("now", "wanted")]


def wait_for_crowd(server, attackers):
    """Until nearly all slow clients stand."""
    def have_come():
        now, wanted = standing(attackers)
        show(f"attackers come: {now} of {wanted}, {server.resident() >> 20} MiB")
        return wanted and now >= 0.95 * wanted
    if not wait(have_come, 300, attackers.process):
        sys.exit(f"\nsoak: the attackers did not come in 5 minutes: {attackers.counts()}\n{server.log()[-3000:]}")


# The parts of the steady load.
TITLES = {"kept": "kept connections", "new": "new connections", "control": "the server without attackers"}


def rows_of_load(phases):
    rows = []
    for kind, title in TITLES.items():
        for name, found in phases.items():
            of = [one[kind] for one in found]
            total = {what: sum(one.get(what, 0) for one in of) for what in ("operations", "failed", "other", "unstarted")}
            figures = [middle([one.get(key) for one in of], none="none") for key in ("p50", "p99", "p999", "max")]
            rows.append([f"{title}, {name}", len(found), number(total["operations"]), number(total["failed"] + total["other"]),
                         number(total["unstarted"]), *figures, middle([100 * one["busy"] for one in found])])
    return rows


def median_p99(phases, names, kind):
    values = [one[kind]["p99"] for name in names for one in phases[name] if "p99" in one[kind]]
    return statistics.median(values) if values else math.nan


def verdicts(phases, memory):
    quiet, attacked = [name for name in phases if name != "with"], ["with"]
    lines = []
    for kind, title in (("kept", "on kept connections"), ("new", "with a handshake")):
        ratio = median_p99(phases, attacked, kind) / median_p99(phases, quiet, kind)
        lines.append(f"- p99 of requests {title} under attack: {ratio:.2f} of that without. "
                     f"{'Within' if ratio <= 1.2 else '**Not within**'} 20 %.")
    control = median_p99(phases, attacked, "control")
    lines.append(f"- The same of the server without attackers: {control / median_p99(phases, quiet, 'control'):.2f}. That is "
                 "the share of two cores for server, attackers and upstream, whatever the server does. Under attack, p99 on kept "
                 f"connections is {median_p99(phases, attacked, 'kept') / control:.2f} of that of this server.")
    bad = sum(one[kind]["failed"] + one[kind].get("other", 0) + one[kind]["unstarted"]
              for found in phases.values() for one in found for kind in TITLES)
    lines.append(f"- **{number(bad)} of the steady load's requests failed.**" if bad
                 else "- None of the steady load's requests failed.")
    errors = Counter()
    for one in (one[kind] for found in phases.values() for one in found for kind in TITLES):
        errors.update(one["errors"])
    lines += [f"  - {number(count)} times {cause}" for cause, count in errors.items()]
    lines.append(memory)
    return lines


def about_memory(during):
    """The line on memory, from the samples under attack."""
    sizes = [sample[1] / MIB for sample in during]
    if len(sizes) < 8:
        return "- Too short to say anything of memory."
    change = growth(sizes)
    is_flat = abs(change - 1) < 0.05
    return (f"- Resident memory under attack: {middle(sizes[len(sizes) // 3:])} MiB after the first third; the median of the "
            f"last third is {change:.3f} of that of the second. {'Flat' if is_flat else '**Not flat**'} (within 5 %).")


def written(found, arguments):
    slow, floods, stats, samples = found["counts"]["slow"], found["counts"]["floods"], found["upstream"], found["samples"]
    attackers = [[f"{name} connections", *(number(kind[key]) for key in ("wanted", "now", "opened", "cut", "finished"))]
                 for name, kind in slow.items()]
    start, every = samples[0][0] if samples else 0, max(1, len(samples) // 30)
    memory = [[f"{(at - start) / 60:.1f}", f"{size / MIB:,.0f}", number(connections), f"{held / MIB:,.1f}"]
              for at, size, connections, held in samples[::every] if size is not None]
    paces = {name: pace for name, (pace, _) in FLOODS.items()}
    return page(
        "soak", arguments=arguments, kept=KEPT, streams=STREAMS, reads=tuple(size / TURN for size in READS), turn=TURN,
        paces=paces, hellos=1 / paces["hellos"], vanished=1 / paces["vanished"], hold=HOLD, floods=floods, upstream=stats,
        reached=stats["paths"].get("/hang/reset", {}).get("requests", 0),
        verdicts=verdicts(found["phases"], about_memory(found["during"])),
        load=rows_of_load(found["phases"]), connections=middle(sample[2] for sample in found["during"]),
        held=middle(sample[3] and sample[3] / MIB for sample in found["during"]),
        attackers=attackers, memory=memory)


def measured(arguments, folder):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = sum(count // 2 + count // 2 // STREAMS for count in (arguments.readers, arguments.drippers))
    needed = max(2 * (connections + SPARE), connections + arguments.readers + arguments.drippers + SPARE)
    if needed > hard:
        sys.exit(f"soak: {needed} open files are needed and the hard limit (ulimit -Hn) is {hard}: raise it, or ask for fewer "
                 "with --readers and --drippers")
    with Counting(arguments.client_cores, not arguments.greedy) as app, ExitStack() as stack:
        def brisk(folder, **more):
            # Several addresses of one upstream, since one has ports for 28,000 connections a minute only.
            servers = ", ".join(f'"http://127.0.0.{number}:{app.port}"' for number in range(1, 6))
            return stack.enter_context(Brisk(
                ROUTES, folder, arguments.server_cores, interval=10, access='format = "text"\nfile = "/dev/null"',
                server='unknown_host = "refuse"', body="x" * 1024, servers=servers, **more))
        server, control = brisk(folder), brisk(folder / "control", first=True)
        phases = {"before": chunks((server, control), arguments, "without", arguments.quiet)}
        wanted = {f"{kind} {version}": count // 2 // streams for kind, count in (("readers", arguments.readers),
                  ("drippers", arguments.drippers)) for version, streams in (("h1", 1), ("h2", STREAMS))}
        settings = {"port": server.port, "wanted": wanted, "floods": list(FLOODS)}
        with Attackers(settings, arguments.client_cores, folder, not arguments.greedy) as attackers:
            wait_for_crowd(server, attackers)
            began = time.monotonic()
            phases["with"] = chunks((server, control), arguments, "under attack", arguments.minutes, attackers)
            ended, counts, stats = time.monotonic(), attackers.counts(), app.stats()
        time.sleep(5)
        phases["after"] = chunks((server, control), arguments, "without", arguments.quiet)
        samples = [(at, size, metrics and metrics["brisk_connections_open"], metrics and metrics["brisk_answers_held_bytes"])
                   for at, size, metrics in server.samples]
    show()
    during = [sample for sample in samples if began <= sample[0] <= ended and sample[1] is not None]
    return {"phases": phases, "during": during, "counts": counts, "upstream": stats, "samples": samples}


def run(arguments):
    arguments.quiet = arguments.quiet or max(1, arguments.minutes / 5)
    programs.require(BRISK)
    with tempfile.TemporaryDirectory() as folder:
        return written(measured(arguments, Path(folder)), arguments)
