#!/usr/bin/env python3
"""Measures the amount of text that a server compresses per second of processor time, at similar compressed sizes.

brisk, nginx, Caddy and Envoy proxy the texts of the page in bench/browsing/site.py from the same upstream, with one worker on
one core, and compress them with gzip, br or zstd at several levels. Processor time is that of the server's processes. Writes
tables (Markdown). `make compression` calls this script; it takes a few minutes.

usage: compression [--rounds N] [--seconds S] [--server-core N] [--client-core N] [--samples FILE] [--output FILE]
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from browsing import certificates, compressors, site
from browsing.compressors import NAME, TITLES, Compressing, free_port
from browsing.servers import BRISK, Server

HERE = Path(__file__).resolve().parent
# Coding and level of each cell; none is the same load without compression.
CELLS = {
    "brisk": [(None, 0), *(("gzip", level) for level in (1, 2, 4, 6, 9)), *(("br", quality) for quality in (1, 2, 3, 4, 5)),
              *(("zstd", level) for level in (1, 2, 3, 5))],
    "nginx": [(None, 0), ("gzip", 1), ("gzip", 6)],
    "caddy": [(None, 0), ("gzip", 5), ("zstd", "default")],
    "envoy": [(None, 0), ("gzip", 6), ("br", 3), ("br", 5), ("zstd", 1), ("zstd", 3)],
}
CONNECTIONS = 8


def texts(folder):
    """The texts of the page, and a list of requests for them."""
    site.make(folder)
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in (".html", ".css", ".js")]
    names = [str(file.relative_to(folder)) for file in files]
    (folder / "urls").write_text("".join(f"1 /{name}\n" for name in names))
    return names, sum(file.stat().st_size for file in files) / len(files)


def measure(server, coding, arguments, scratch):
    """Requests of one cell: processor time of the server and bytes of the answers, for each."""
    words = ["bench", f"https://{NAME}/", "--connect", f"127.0.0.1:{server.port}", "--ca", scratch / "certificates/root.pem", "--json",
             "--urls", scratch / "files/urls", "-H", f"accept-encoding: {coding or 'identity'}", "--tls", "1.3", "--suite", "TLS_AES_128_GCM_SHA256",
             "-c", CONNECTIONS, "-d", f"{arguments.seconds}s", "--warmup", "400ms", "--server-pid", server.process.pid]
    done = subprocess.run(["taskset", "-c", str(arguments.client_core), BRISK, *map(str, words)], capture_output=True, text=True)
    if not done.stdout:
        sys.exit(f"compression: {server.name}: brisk bench: {done.stderr}")
    report = json.loads(done.stdout)
    if report["errors"] or report["responses"]["2xx"] != report["operations"]:
        sys.exit(f"compression: {server.name}: {report['errors']} {report['responses']}")
    return {"cpu": report["server"]["cpu_per_request_us"], "bytes": report["responses"]["body_bytes"] / report["operations"],
            "rate": report["rate_per_s"]}


def key(name, coding, level):
    return f"{name} {coding} {level}"


class Figures:
    """The samples so far, those of earlier runs too where there is a file of them."""

    def __init__(self, file, size):
        self.file, self.size, self.samples = file, size, {}
        for line in file.read_text().splitlines() if file and file.exists() else []:
            record = json.loads(line)
            self.samples.setdefault(record["cell"], []).append(record["sample"])

    def add(self, cell, sample):
        self.samples.setdefault(cell, []).append(sample)
        if self.file:
            with open(self.file, "a") as file:
                print(json.dumps({"cell": cell, "sample": sample}), file=file)

    def has(self, name):
        return key(name, None, 0) in self.samples

    def bytes(self, *cell):
        return statistics.median(sample["bytes"] for sample in self.samples[key(*cell)])

    def whole(self, *cell):
        """GB of input for a second of processor time, TLS and proxying included: one for each round."""
        return [self.size / sample["cpu"] / 1e3 for sample in self.samples[key(*cell)]]

    def alone(self, *cell):
        """The same for compression alone: without what the server spends on requests without it, round by round."""
        plain = self.samples[key(cell[0], None, 0)]
        return [self.size / (sample["cpu"] - base["cpu"]) / 1e3 for sample, base in zip(self.samples[key(*cell)], plain)]

    def nearest(self, name, coding, level):
        """The level of brisk whose answers have the most similar size."""
        size = self.bytes(name, coding, level)
        levels = [own for own_coding, own in CELLS["brisk"] if own_coding == coding]
        return min(levels, key=lambda own: abs(self.bytes("brisk", coding, own) / size - 1))


def number(value):
    return f"{value:.3f}"


def middle(values):
    return f"{number(statistics.median(values))} ({number(min(values))}–{number(max(values))})"


def compared(figures):
    lines = ["| coding | server, level | output, % of the input | GB/s | brisk, level | output | GB/s | ratio | ratio, compression alone |",
             "|---|---|---:|---:|---|---:|---:|---:|---:|"]
    for name, cells in CELLS.items():
        if name == "brisk" or not figures.has(name):
            continue
        for coding, level in cells[1:]:
            own = figures.nearest(name, coding, level)
            share = lambda *cell: f"{figures.bytes(*cell) / figures.size * 100:.1f}"
            ratio = lambda of: f"{statistics.median(a / b for a, b in zip(of('brisk', coding, own), of(name, coding, level))):.2f}"
            lines.append(f"| {coding} | {TITLES[name]}, {level} | {share(name, coding, level)} | {middle(figures.whole(name, coding, level))} | {own} | "
                         f"{share('brisk', coding, own)} | {middle(figures.whole('brisk', coding, own))} | {ratio(figures.whole)} | {ratio(figures.alone)} |")
    return lines


def every(figures):
    lines = ["| server | coding, level | output, % of the input | requests /s | us of processor for a request | GB/s | GB/s, compression alone |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for name, cells in CELLS.items():
        for coding, level in cells if figures.has(name) else []:
            samples = figures.samples[key(name, coding, level)]
            of = lambda what: statistics.median(sample[what] for sample in samples)
            alone = middle(figures.alone(name, coding, level)) if coding else ""
            lines.append(f"| {TITLES[name]} | {f'{coding} {level}' if coding else 'none'} | {of('bytes') / figures.size * 100:.1f} | {of('rate'):,.0f} | "
                         f"{of('cpu'):,.0f} | {middle(figures.whole(name, coding, level))} | {alone} |")
    return lines


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} cores {cpu}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def version(name):
    run = subprocess.run([HERE / "peers/run", name, "version"], capture_output=True, text=True, env={**os.environ, "BRISK_PROGRAM": BRISK})
    return run.stdout.strip() or TITLES[name]


def page(figures, names, arguments):
    rounds = len(figures.samples[key("brisk", None, 0)])
    text = [
        "# Compression", "",
        f"{len(names)} texts (HTML, styles and scripts of `bench/browsing/site.py`, {figures.size / 1e3:.0f} KB on average) are asked for over "
        f"{CONNECTIONS} kept connections, HTTP/1.1 and TLS 1.3, and proxied from an nginx without TLS. Each server has one worker on core "
        f"{arguments.server_core}; client and upstream are on core {arguments.client_core}. GB/s are GB of input for a second of the server's processor time, "
        f"TLS and proxying included; \"compression alone\" is without what a request costs the same server uncompressed. {rounds} rounds of all in turns, "
        f"{arguments.seconds:g} s each: medians, and the least and the most. `make compression` repeats it.", "",
        f"- Machine: {machine()}", *(f"- {version(name)}" for name in CELLS if figures.has(name)), "",
        "## Beside others, at about the same size", "",
        "To each server and level that level of brisk whose answers are nearest in size. A ratio is taken within a round; above 1 brisk compresses more.", "",
        *compared(figures), "",
        "Caddy has no br of its own, and nginx neither br nor zstd. Levels are those of the codecs, but for Caddy's zstd, which has names.", "",
        "## Every level", "", *every(figures)]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=1.5, help="duration of each cell in each round, in seconds [default: %(default)s]")
    parser.add_argument("--server-core", type=int, default=0, help="core of the server [default: %(default)s]")
    parser.add_argument("--client-core", type=int, default=1, help="core of the client [default: %(default)s]")
    parser.add_argument("--samples", type=Path, help="file for samples, with which an interrupted run continues")
    parser.add_argument("--output", type=Path, help="file for the result [default: standard output]")
    arguments = parser.parse_args()
    if not Path(BRISK).exists():
        sys.exit(f"compression: no {BRISK}; `make compression` makes it")
    here = [name for name in CELLS if compressors.installed(name)]
    for name in CELLS:
        if name not in here:
            print(f"compression: {name} is not installed and is skipped; install it with: tools/setup peers", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        certificates.make(scratch / "certificates", [NAME])
        names, size = texts(scratch / "files")
        figures = Figures(arguments.samples, size)
        at_client = lambda *command: ["taskset", "-c", str(arguments.client_core), *map(str, command)]
        upstream = free_port()
        with Server(scratch / "upstream", at_client, "nginx", port=upstream, files=scratch / "files"):
            cells = [(name, *cell) for name in here for cell in CELLS[name]]
            for turn in range(arguments.rounds):
                for name, coding, level in cells if turn % 2 == 0 else reversed(cells):
                    print(f"\r\033[Kround {turn + 1} of {arguments.rounds}: {name} {coding or 'none'} {level}", end="", file=sys.stderr, flush=True)
                    with Compressing(name, coding, level, scratch / "server", arguments.server_core, scratch / f"certificates/{NAME}", upstream) as server:
                        figures.add(key(name, coding, level), measure(server, coding, arguments, scratch))
        print("\r\033[K", end="", file=sys.stderr)
    text = page(figures, names, arguments)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
