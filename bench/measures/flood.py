#!/usr/bin/env python3
"""Measures the effect of a flood of RSA handshakes on requests on existing connections.

brisk with one worker serves requests at a fixed rate on kept connections, while new clients make full handshakes with an RSA
certificate, at 80 % of its capacity. Three cases alternate in each round: no flood; the flood, with RSA on engine threads (the
default); the flood, with RSA on the worker itself (`[keys] offload = []`). Writes a table (Markdown) and a plot (SVG) beside
it. `make flood` calls this script.

usage: flood [--rounds N] [--seconds S] [--load PART] [--rate N] [--server-cores LIST] [--client-cores LIST] [--output FILE]
"""
import argparse
import json
import math
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))
NAME = "bench.test"
FULL_RSA = ["--handshake-only", "--cert", "rsa", "--tls", "1.3", "--group", "X25519", "--suite", "TLS_AES_128_GCM_SHA256"]
# Number of connections for requests, and maximum number of connections of the flood.
KEPT, FLOODING = 32, 256
# Seconds. The flood begins this long before the requests do; it is told to end when they have ended, and would end by
# itself this long after what is measured, which leaves time for their start, their warm-up and their last answers.
LEAD, SLACK = 1.5, 5

CONFIGURATION = """
[server]
https = ["127.0.0.1:{port}"]
workers = 1
state_dir = "{folder}/state"

[access_log]
format = "off"

{keys}
[[host]]
names = ["{name}"]
certificates = [
  {{ chain = "{certificates}/ecdsa.pem", key = "{certificates}/ecdsa.key" }},
  {{ chain = "{certificates}/rsa.pem", key = "{certificates}/rsa.key" }},
]

[[host.route]]
path = "/"
respond = {{ body = "{body}" }}
"""

# Name, what the configuration says of keys, whether there is a flood, and how it is drawn.
CASES = [
    ("no flood", "", False, "quiet"),
    ("flood, RSA on engine threads", "", True, "threads"),
    ("flood, RSA on the worker", "[keys]\noffload = []\n", True, "inline"),
]


class Server:
    """brisk with this configuration, from `with` to the end of it."""

    def __init__(self, keys, ca, cores, scratch):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = Path(tempfile.mkdtemp(dir=scratch))
        self.ca, self.cores = ca, cores
        text = CONFIGURATION.format(port=self.port, folder=self.folder, keys=keys, name=NAME,
                                    certificates=Path(ca).parent, body="x" * 1024)
        (self.folder / "brisk.toml").write_text(text)

    def __enter__(self):
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", self.cores, BRISK, "serve", "--config", self.folder / "brisk.toml"], stdout=log, stderr=log)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.1)
            if self.process.poll() is not None:
                break
        self.__exit__()
        sys.exit(f"flood: brisk does not serve:\n{self.log()}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def engine(self):
        """What the log says of how RSA is performed."""
        log = re.sub(r"\x1b\[[0-9;]*m", "", self.log())
        line = re.search(r"RSA (on \d+ threads?|by the workers themselves): [^\n]*", log)
        return line.group(0) if line else sys.exit(f"flood: the log does not state how RSA is performed:\n{log}")


def bench(server, cores, *options, nice=0):
    """Starts a load of this server."""
    return subprocess.Popen(
        ["nice", "-n", str(nice), "taskset", "-c", cores, BRISK, "bench", f"https://{NAME}/",
         "--connect", f"127.0.0.1:{server.port}", "--ca", server.ca, "--json", *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(load):
    output, complaints = load.communicate()
    if not output:
        sys.exit(f"flood: brisk bench: {complaints.strip()}")
    report = json.loads(output)
    for error in report["errors"]:
        print(f"flood: {error['count']} times {error['cause']}: {error['example']}", file=sys.stderr)
    return report


def errors(report):
    return sum(error["count"] for error in report["errors"])


def capacity(server, cores):
    """Full RSA handshakes per second when nobody holds back."""
    runs = [result(bench(server, cores, *FULL_RSA, "-c", 64, "-d", "3s"))["rate_per_s"] for _ in range(3)]
    return statistics.median(runs)


def measure(server, rate, arguments):
    """One case once: what came of the requests, and the rate of the handshakes beside them."""
    flood = None
    if rate:
        # The probe shares its core with the flood and goes before it, so that it waits for the server only.
        flood = bench(server, arguments.client_cores, *FULL_RSA, "--rate", rate, "-c", FLOODING,
                      "-d", f"{LEAD + arguments.seconds + SLACK}s", "--warmup", "0", nice=5)
        time.sleep(LEAD)
    requests = result(bench(server, arguments.client_cores, "-c", KEPT, "--rate", arguments.rate, "--tls", "1.3",
                            "-d", f"{arguments.seconds}s", "--warmup", "1s", "--server-pid", server.process.pid))
    sample = {"handshakes": 0.0, "busy": requests["server"]["busy"] * 100,
              "failed": errors(requests), "unstarted": requests["unstarted"], "flood failed": 0}
    sample |= {quantile: requests["latency_us"]["total"][quantile] / 1e3 for quantile in ("p50", "p99", "p999", "max")}
    sample["series"] = [(second["latency_us"]["p50"] / 1e3, second["latency_us"]["p99"] / 1e3)
                        for second in requests["series"] if second["length_s"] > 0.5 and second["latency_us"]]
    if flood:
        flood.send_signal(signal.SIGINT)
        handshakes = result(flood)
        sample |= {"handshakes": handshakes["rate_per_s"], "flood failed": errors(handshakes)}
    return sample


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def middle(values):
    """Median, and the least and the most where there are several."""
    values = sorted(values)
    spread = f" ({number(values[0])}–{number(values[-1])})" if len(values) > 1 else ""
    return number(statistics.median(values)) + spread


def table(samples, rates):
    lines = ["| | handshakes /s | server busy, % of a core | p50 ms | p99 ms | p99.9 ms | longest ms | p99 above no flood, ms |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    quiet = samples[CASES[0][0]]
    for name, _, floods, _ in CASES:
        rounds = samples[name]
        above = middle([own["p99"] - base["p99"] for own, base in zip(rounds, quiet)]) if floods else ""
        asked = f" of {number(rates[name])} asked for" if floods else ""
        figures = [middle([r[key] for r in rounds]) for key in ("busy", "p50", "p99", "p999", "max")]
        lines.append(f"| {name} | {middle([r['handshakes'] for r in rounds]) + asked if floods else ''} | "
                     + " | ".join([*figures, above]) + " |")
    return lines


def failures(samples):
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
             f'<text class="title" x="{left}" y="24">Latency of requests on kept connections, second by second: p99, and thin p50</text>',
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


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} cores {cpu}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def page(samples, rates, engines, arguments, picture):
    floods = [name for name, _, floods, _ in CASES if floods]
    text = [
        "# Requests during a flood of RSA handshakes", "",
        f"brisk with one worker on core {arguments.server_cores} answers {arguments.rate} requests per second on {KEPT} kept "
        f"connections, at a fixed rate, so that a request that waits counts from when it was due. Beside them new clients make "
        f"full TLS 1.3 handshakes with an RSA-2048 certificate, at {arguments.load * 100:.0f} % of what the server can do in that case. "
        f"Both clients run on core {arguments.client_cores}. {arguments.rounds} rounds of all cases in turns, {arguments.seconds} s "
        "each; medians over the rounds, and the least and the most.", "",
        f"- Machine: {machine()}"]
    text += [f"- {name[0].upper()}{name[1:]}: `{engines[name]}`" for name in floods]
    text += failures(samples)
    if picture:
        text += ["", f"![Latency by second]({picture.name})"]
    return "\n".join([*text, "", *table(samples, rates)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds [default: %(default)s]")
    parser.add_argument("--seconds", type=int, default=20, help="duration of each case in each round, in seconds [default: %(default)s]")
    parser.add_argument("--load", type=float, default=0.8, help="load of the flood as a share of the capacity [default: %(default)s]")
    parser.add_argument("--rate", type=int, default=500, help="requests per second [default: %(default)s]")
    parser.add_argument("--server-cores", default="0", help="cores of the server [default: %(default)s]")
    parser.add_argument("--client-cores", default="1", help="cores of the clients [default: %(default)s]")
    parser.add_argument("--output", type=Path, help="file for the result, with the plot beside it")
    arguments = parser.parse_args()
    if not Path(BRISK).exists():
        sys.exit(f"flood: no {BRISK}; `make build` makes it")

    prepared = subprocess.run([HERE / "peers/prepare"], capture_output=True, text=True, check=True).stdout
    ca = dict(line.split("=", 1) for line in prepared.splitlines())["ca"]
    samples, rates, engines = {name: [] for name, *_ in CASES}, {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, keys, floods, _ in CASES:
            if floods:
                with Server(keys, ca, arguments.server_cores, scratch) as server:
                    print(f"\r\033[Kcapacity: {name}", end="", file=sys.stderr, flush=True)
                    rates[name] = round(arguments.load * capacity(server, arguments.client_cores), 1)
                    engines[name] = server.engine()
        for turn in range(arguments.rounds):
            # Every other round backwards, so that none always comes after the same one.
            for name, keys, floods, _ in CASES if turn % 2 == 0 else reversed(CASES):
                print(f"\r\033[Kround {turn + 1} of {arguments.rounds}: {name}", end="", file=sys.stderr, flush=True)
                with Server(keys, ca, arguments.server_cores, scratch) as server:
                    samples[name].append(measure(server, rates.get(name), arguments))
        print("\r\033[K", end="", file=sys.stderr)

    picture = arguments.output.with_suffix(".svg") if arguments.output else None
    if picture:
        caption = f"{arguments.rate} requests/s on {KEPT} connections; median of {arguments.rounds} rounds, band: least to most"
        picture.write_text(plot(samples, arguments.seconds, caption))
        arguments.output.write_text(page(samples, rates, engines, arguments, picture))
    else:
        print(page(samples, rates, engines, arguments, None), end="")


if __name__ == "__main__":
    main()
