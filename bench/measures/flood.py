"""Measures the effect of a flood of RSA handshakes on requests on existing connections.

brisk with one worker serves requests at a fixed rate on kept connections, while new clients make full handshakes with an RSA
certificate, at 80 % of its capacity. Three cases alternate in each round: no flood; the flood, with RSA on engine threads (the
default); the flood, with RSA on the worker itself (`[keys] offload = []`). Writes a plot (SVG) beside the page. `brisk bench
compare` cannot do this: a plan has no second load beside the one that is measured.
"""
import math
import re
import signal
import statistics
import sys
import tempfile
import time

from shared import programs
from shared.figures import alternating, middle, number, page, show, table
from shared.gateway import Brisk, route
from shared.load import HANDSHAKES, bench, failures, report
from shared.programs import BRISK

NEEDS, PAGE = "flood", "rsa-flood"
OPTIONS = [("--rounds", 7, "number of rounds"), ("--seconds", 20, "duration of each case in each round, in seconds"),
           ("--load", 0.8, "load of the flood as a share of the capacity"), ("--rate", 500, "requests per second"),
           ("--server-cores", "0", "cores of the server"), ("--client-cores", "1", "cores of the clients")]
RSA = [*HANDSHAKES, "--cert", "rsa"]
# Number of connections for requests, and maximum number of connections of the flood.
KEPT, FLOODING = 32, 256
# Seconds. The flood begins this long before the requests do; it is told to end when they have ended, and would end by
# itself this long after what is measured, which leaves time for their start, their warm-up and their last answers.
LEAD, SLACK = 1.5, 5

# Name, what the configuration says of keys, whether there is a flood, and how it is drawn.
CASES = [
    ("no flood", "", False, "quiet"),
    ("flood, RSA on engine threads", "", True, "threads"),
    ("flood, RSA on the worker", "[keys]\noffload = []\n", True, "inline"),
]


def brisk(case, arguments, scratch):
    """brisk as this case has it."""
    return Brisk(route("/", 'respond = { body = "$body" }'), tempfile.mkdtemp(dir=scratch), arguments.server_cores,
                 sections=case[1], pairs=("ecdsa", "rsa"), body="x" * 1024)


def engine(server):
    """The line of the log on the way in which RSA is performed."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", server.log())
    line = re.search(r"RSA (on \d+ threads?|by the workers themselves): [^\n]*", log)
    return line.group(0) if line else sys.exit(f"flood: the log does not state how RSA is performed:\n{log}")


def capacity(server, cores):
    """Full RSA handshakes per second without a limit of the rate."""
    runs = [report(bench(server.port, cores, "/", 3, *RSA, "-c", 64)) for _ in range(3)]
    return statistics.median(run["rate_per_s"] for run in runs)


def measure(server, rate, arguments):
    """One case once: the latency of the requests, and the rate of the handshakes beside them."""
    flood = None
    if rate:
        # The probe shares its core with the flood and precedes it, so that it waits for the server only.
        flood = bench(server.port, arguments.client_cores, "/", LEAD + arguments.seconds + SLACK, *RSA, "--rate", rate, "-c",
                      FLOODING, warmup="0", nice=5)
        time.sleep(LEAD)
    requests = report(bench(server.port, arguments.client_cores, "/", arguments.seconds, "-c", KEPT, "--rate", arguments.rate,
                            "--tls", "1.3", "--server-pid", server.process.pid))
    sample = {"handshakes": 0.0, "busy": requests["server"]["busy"] * 100,
              "failed": failures(requests), "unstarted": requests["unstarted"], "flood failed": 0}
    sample |= {quantile: requests["latency_us"]["total"][quantile] / 1e3 for quantile in ("p50", "p99", "p999", "max")}
    sample["series"] = [(second["latency_us"]["p50"] / 1e3, second["latency_us"]["p99"] / 1e3)
                        for second in requests["series"] if second["length_s"] > 0.5 and second["latency_us"]]
    if flood:
        flood.send_signal(signal.SIGINT)
        handshakes = report(flood)
        sample |= {"handshakes": handshakes["rate_per_s"], "flood failed": failures(handshakes)}
    return sample


def rows(samples, rates):
    quiet = samples[CASES[0][0]]
    for name, _, floods, _ in CASES:
        rounds = samples[name]
        above = middle([own["p99"] - base["p99"] for own, base in zip(rounds, quiet)]) if floods else ""
        handshakes = f"{middle([r['handshakes'] for r in rounds])} of {number(rates[name])} asked for" if floods else ""
        yield [name, handshakes, *(middle([r[key] for r in rounds]) for key in ("busy", "p50", "p99", "p999", "max")), above]


def failed_in(samples):
    """A line for each case in which anything failed."""
    lines = []
    for name, *_ in CASES:
        failed, unstarted, flood = (sum(sample[what] for sample in samples[name])
                                    for what in ("failed", "unstarted", "flood failed"))
        if failed or unstarted or flood:
            lines.append(f"- Failures in all rounds, {name}: {failed} requests, {unstarted} more that were not started "
                         f"in time, {flood} handshakes of the flood")
    return lines


STYLE = """
  svg { font: 13px system-ui, sans-serif; background: #fff; --ink: #16202a; --soft: #5c6b78; --line: #dfe5ea;
    --quiet: #5c6b78; --threads: #0b7a75; --inline: #c22f3c }
  @media (prefers-color-scheme: dark) { svg { background: #18212a; --ink: #e7edf2; --soft: #93a3b1; --line: #2b3742;
    --quiet: #93a3b1; --threads: #4fc3bb; --inline: #f58a8f } }
  text { fill: var(--soft); font-variant-numeric: tabular-nums } .title { fill: var(--ink); font-weight: 600; font-size: 15px }
  .m { text-anchor: middle } .e { text-anchor: end } .grid { stroke: var(--line) }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round } .thin { stroke-width: 1 }
  .band { opacity: .16; stroke: none }
  .quiet { --c: var(--quiet) } .threads { --c: var(--threads) } .inline { --c: var(--inline) }
  .line, .key { stroke: var(--c) } .band { fill: var(--c) } .name { fill: var(--c); font-weight: 600 }
  .line.quiet, .key.quiet { stroke-dasharray: 2 3 } .line.inline, .key.inline { stroke-dasharray: 8 3 } .key { stroke-width: 2 }
"""


def plot(samples, seconds, caption):
    """p50 and p99 of each second: medians of all rounds, p99 in a band from the least to the most."""
    width, height, left, right, top, bottom = 860, 420, 64, 20, 84, 52
    bands, medians = {}, {}
    for name, _, _, style in CASES:
        by_second = list(zip(*[sample["series"] for sample in samples[name]]))
        medians[style] = [statistics.median(p50 for p50, _ in rounds) for rounds in by_second]
        p99s = [sorted(p99 for _, p99 in rounds) for rounds in by_second]
        bands[style] = [(values[0], statistics.median(values), values[-1]) for values in p99s]
    every = [value for band in bands.values() for values in band for value in values] + sum(medians.values(), [])
    low = 10 ** math.floor(math.log10(max(min(every), 1e-3)))
    high = 10 ** math.ceil(math.log10(max(every) * 1.001))
    x = lambda second: left + (second + 0.5) / seconds * (width - left - right)
    y = lambda value: height - bottom - math.log(max(value, low) / low) / math.log(high / low) * (height - top - bottom)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
             "<title>Latency of requests during a flood of RSA handshakes</title>", f"<style>{STYLE}</style>",
             f'<text class="title" x="{left}" y="24">Latency of requests on kept connections, second by second: p99, and thin '
             f'p50</text>',
             f'<text x="{left}" y="44">{caption}</text>']
    at = left
    for name, _, _, style in CASES:
        parts.append(f'<path class="key {style}" d="M{at} 63h26"/><text class="name {style}" x="{at + 32}" y="67">{name}</text>')
        at += 32 + 7.4 * len(name) + 26
    decade = low
    while decade <= high * 1.001:
        for factor in (1, 2, 5):
            value = decade * factor
            if value <= high * 1.001:
                parts.append(f'<path class="grid" d="M{left} {y(value):.1f}H{width - right}"/>'
                             f'<text class="e" x="{left - 8}" y="{y(value) + 4:.1f}">{value:g}</text>')
        decade *= 10
    parts.append(f'<text class="e" x="{left - 8}" y="{top - 12}">ms</text>')
    step = max(1, round(seconds / 10))
    for second in range(0, seconds + 1, step):
        place = left + second / seconds * (width - left - right)
        parts.append(f'<text class="m" x="{place:.1f}" y="{height - bottom + 20}">{second}</text>')
    parts.append(f'<text class="m" x="{(left + width - right) / 2}" y="{height - 12}">seconds</text>')
    for style, band in bands.items():
        upper = [f"{x(second):.1f} {y(values[2]):.1f}" for second, values in enumerate(band)]
        lower = [f"{x(second):.1f} {y(values[0]):.1f}" for second, values in reversed(list(enumerate(band)))]
        median = [f"{x(second):.1f} {y(values[1]):.1f}" for second, values in enumerate(band)]
        parts.append(f'<path class="band {style}" d="M{" L".join(upper + lower)}Z"/>')
        parts.append(f'<path class="line {style}" d="M{" L".join(median)}"/>')
        usual = [f"{x(second):.1f} {y(value):.1f}" for second, value in enumerate(medians[style])]
        parts.append(f'<path class="line thin {style}" d="M{" L".join(usual)}"/>')
    return "\n".join(parts) + "\n</svg>\n"


def run(arguments):
    programs.require(BRISK)
    samples, rates, engines = {name: [] for name, *_ in CASES}, {}, []
    with tempfile.TemporaryDirectory() as scratch:
        for case in CASES:
            if case[2]:
                with brisk(case, arguments, scratch) as server:
                    show(f"capacity: {case[0]}")
                    rates[case[0]] = round(arguments.load * capacity(server, arguments.client_cores), 1)
                    engines.append(f"- {case[0][0].upper()}{case[0][1:]}: `{engine(server)}`")
        for turn, case in alternating(arguments.rounds, CASES):
            show(f"round {turn + 1} of {arguments.rounds}: {case[0]}")
            with brisk(case, arguments, scratch) as server:
                samples[case[0]].append(measure(server, rates.get(case[0]), arguments))
    show()
    picture = []
    if arguments.output:
        caption = f"{arguments.rate} requests/s on {KEPT} connections; median of {arguments.rounds} rounds, band: least to most"
        file = arguments.output.with_suffix(".svg")
        file.write_text(plot(samples, arguments.seconds, caption))
        picture = ["", f"![Latency by second]({file.name})"]
    head = ["", "handshakes /s", "server busy, % of a core", "p50 ms", "p99 ms", "p99.9 ms", "longest ms",
            "p99 above no flood, ms"]
    return page("rsa-flood", arguments=arguments, kept=KEPT, facts=[*engines, *failed_in(samples), *picture],
                rows=table(head, rows(samples, rates)))
