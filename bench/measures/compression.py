"""Measures the amount of text that a server compresses per second of processor time, at similar compressed sizes.

brisk, nginx, Caddy and Envoy proxy the texts of the page in bench/browsing/site.py from the same upstream, with one worker on
one core, and compress them with gzip, br or zstd at several levels. Processor time is that of the server's processes. Takes a few
minutes. `brisk bench compare` cannot do this: a plan compares given cells, and here each level of another server is compared with
that level of brisk whose responses are nearest in size.
"""
import statistics
import sys
import tempfile
from pathlib import Path

from browsing import site
from shared import certificates, programs
from shared.figures import Samples, alternating, middle, page, ratio, show, table
from shared.load import bench, report
from shared.programs import TITLES
from shared.servers import Server

NEEDS = "peers page"
OPTIONS = [("--rounds", 5, "number of rounds"), ("--seconds", 1.5, "duration of each cell in each round, in seconds"),
           ("--server-core", 0, "core of the server"), ("--client-core", 1, "core of the client"),
           ("--samples", None, "file for samples, with which an interrupted run continues", {"type": Path})]
NAME = "compress.test"
# Coding and level of each cell; none is the same load without compression.
CELLS = {
    "brisk": [(None, 0), *(("gzip", level) for level in (1, 2, 4, 6, 9)), *(("br", quality) for quality in (1, 2, 3, 4, 5)),
              *(("zstd", level) for level in (1, 2, 3, 5))],
    "nginx": [(None, 0), ("gzip", 1), ("gzip", 6)],
    "caddy": [(None, 0), ("gzip", 5), ("zstd", "default")],
    "envoy": [(None, 0), ("gzip", 6), ("br", 3), ("br", 5), ("zstd", 1), ("zstd", 3)],
}
CONNECTIONS = 8
TEMPLATES = {"brisk": "toml", "nginx": "conf", "caddy": "Caddyfile", "envoy": "yaml"}
KEYS = {"gzip": "gzip_level", "br": "br_quality", "zstd": "zstd_level"}
# The window of all is 256 KiB or as near to it as the server allows.
CODECS = {"gzip": ("gzip", "Gzip", "compression_level: COMPRESSION_LEVEL_{level}, window_bits: 15, memory_level: 8"),
          "br": ("brotli", "Brotli", "quality: {level}, window_bits: 18"), "zstd": ("zstd", "Zstd", "compression_level: {level}")}
COMPRESSOR = """          - name: envoy.filters.http.compressor
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor
              response_direction_config:
                common_config: {{ min_content_length: 512, content_type: [ text/html, text/css, text/javascript ] }}
              compressor_library:
                name: codec
                typed_config:
                  {{ "@type": type.googleapis.com/envoy.extensions.compression.{library}.compressor.v3.{kind}, {options},
                     chunk_size: 65536 }}"""


def compression(name, coding, level):
    """The part of the configuration that compresses with this coding and level."""
    if not coding:
        return ""
    if name == "brisk":
        return f'compression = {{ codings = ["{coding}"], {KEYS[coding]} = {level} }}'
    if name == "nginx":
        return f"gzip on; gzip_comp_level {level}; gzip_types text/css text/javascript; gzip_proxied any; gzip_min_length 512;"
    if name == "caddy":
        return f"encode {{\n\t\t{coding} {level}\n\t\tminimum_length 512\n\t}}"
    library, kind, options = CODECS[coding]
    return COMPRESSOR.format(library=library, kind=kind, options=options.format(level=level))


def texts(folder):
    """The texts of the page, and a list of requests for them."""
    site.make(folder)
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in (".html", ".css", ".js")]
    names = [str(file.relative_to(folder)) for file in files]
    (folder / "urls").write_text("".join(f"1 /{name}\n" for name in names))
    return names, sum(file.stat().st_size for file in files) / len(files)


def measure(server, coding, arguments, scratch):
    """Requests of one cell: processor time of the server and bytes of the responses, for each."""
    found = report(bench(server.port, arguments.client_core, "/", arguments.seconds, "--urls", scratch / "files/urls",
                         "-H", f"accept-encoding: {coding or 'identity'}", "--tls", "1.3", "--suite", "TLS_AES_128_GCM_SHA256",
                         "-c", CONNECTIONS,
                         "--server-pid", server.process.pid, warmup="400ms", name=NAME, ca=scratch / "certificates/root.pem"),
                   strict=True)
    if found["responses"]["2xx"] != found["operations"]:
        sys.exit(f"compression: {server.kind}: {found['responses']}")
    return {"cpu": found["server"]["cpu_per_request_us"], "bytes": found["responses"]["body_bytes"] / found["operations"],
            "rate": found["rate_per_s"]}


def key(name, coding, level):
    return f"{name} {coding} {level}"


class Figures(Samples):
    """Samples of the cells of texts with `size` bytes."""

    def __init__(self, file, size):
        super().__init__(file)
        self.size = size

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


def rows_of_others(figures):
    shown = lambda *cell: [f"{figures.bytes(*cell) / figures.size * 100:.1f}", middle(figures.whole(*cell), three)]
    for name, cells in CELLS.items():
        for coding, level in cells[1:] if name != "brisk" and figures.has(name) else []:
            cell, own = (name, coding, level), ("brisk", coding, figures.nearest(name, coding, level))
            yield [coding, f"{TITLES[name]}, {level}", *shown(*cell), own[2], *shown(*own),
                   ratio(figures.whole(*own), figures.whole(*cell)), ratio(figures.alone(*own), figures.alone(*cell))]


def three(value):
    return f"{value:.3f}"


def rows_of_levels(figures):
    for name, cells in CELLS.items():
        for coding, level in cells if figures.has(name) else []:
            of = lambda what: statistics.median(figures.values(key(name, coding, level), what))
            alone = middle(figures.alone(name, coding, level), three) if coding else ""
            yield [TITLES[name], f"{coding} {level}" if coding else "none", f"{of('bytes') / figures.size * 100:.1f}",
                   f"{of('rate'):,.0f}", f"{of('cpu'):,.0f}", middle(figures.whole(name, coding, level), three), alone]


def run(arguments):
    here = programs.chosen(None, CELLS)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        issued = certificates.make(scratch / "certificates", [NAME])
        names, size = texts(scratch / "files")
        figures = Figures(arguments.samples, size)
        with Server("servers/page.conf", scratch / "upstream", cores=arguments.client_core, FILES=scratch / "files") as upstream:
            cells = [(name, *cell) for name in here for cell in CELLS[name]]
            for turn, (name, coding, level) in alternating(arguments.rounds, cells):
                show(f"round {turn + 1} of {arguments.rounds}: {name} {coding or 'none'} {level}")
                with Server(f"servers/compress.{TEMPLATES[name]}", scratch / "server", cores=arguments.server_core, NAME=NAME,
                            CERTIFICATE=issued / NAME, UPSTREAM=upstream.port,
                            COMPRESSION=compression(name, coding, level)) as server:
                    figures.add(key(name, coding, level), measure(server, coding, arguments, scratch))
    show()
    others = ["coding", "server, level", "output, % of the input", "GB/s", "brisk, level", "output", "GB/s", "ratio",
              "ratio, compression alone"]
    levels = ["server", "coding, level", "output, % of the input", "requests /s", "us of processor for a request", "GB/s",
              "GB/s, compression alone"]
    return page("compression", arguments=arguments, number=len(names), size=size / 1e3, connections=CONNECTIONS,
                rounds=len(figures.samples[key("brisk", None, 0)]),
                versions=[f"- {programs.version(name)}" for name in CELLS if figures.has(name)],
                others=table(others, rows_of_others(figures), left=2), levels=table(levels, rows_of_levels(figures), left=2))
