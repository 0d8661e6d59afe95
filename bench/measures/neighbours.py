"""Compares the responses and logs of brisk, nginx, HAProxy and Envoy when an upstream violates the protocol.

curl requests each violation over HTTP/1.1 and HTTP/2, and after it, on the same connection, a correct response. Takes about
two minutes.
"""
import asyncio
import json
import re
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from hostile import misbehaviour, servers
from hostile.misbehaviour import BROKEN, CASES, LATE, MISSING, REFUSED, WHOLE
from shared import programs
from shared.figures import page, table
from shared.programs import NAME, TITLES

NEEDS = "strangers"
OPTIONS = [("--server", [], "restriction to this server", {"choices": servers.FILES}),
           ("--case", [], "restriction to this case", {"choices": CASES, "metavar": "CASE"})]
# Seconds within which a response must have ended, complete or not.
LIMIT = 15
GOOD = b"good"
PROTOCOLS = ("http1.1", "http2")


class Got:
    """The response at curl: `status`, `body`, its `end`, complete or broken, and the reason that curl gives."""

    def __init__(self, report, head, body):
        self.status, self.body = report["http_code"] or None, body
        # After 101 the connection has no end.
        self.end = BROKEN if report["exitcode"] and self.status != 101 else WHOLE
        self.how, self.odd = (report["errormsg"] or "")[:80], oddities(head)
        if "nul byte" in self.how.lower():
            self.odd = ", with NUL"

    def kind(self):
        # If a stream is reset soon after its head, curl reports the reset alone.
        kinds = {None: BROKEN if "HTTP/2" in self.how else MISSING, 502: REFUSED, 503: REFUSED, 504: LATE}
        return kinds.get(self.status, self.end)

    def words(self):
        if self.status is None:
            return f"nothing ({self.how})"
        broken = f"broken ({self.how})"
        if self.kind() in (REFUSED, LATE):
            return str(self.status) + ("" if self.end == WHOLE else f", {broken}")
        return f"{self.status}, {len(self.body)} bytes, {'whole' if self.end == WHOLE else broken}{self.odd}"


def oddities(heads):
    """Properties of the last head that no upstream's head may hand on."""
    head = heads.rstrip(b"\r\n").rpartition(b"\r\n\r\n")[2]
    signs = {"a folded line": b"\r\n " in head, "a bare LF": b"\n" in head.replace(b"\r\n", b"\r")}
    lengths = re.findall(rb"(?im)^content-length[ \t]*:", head)
    signs["two lengths"] = len(lengths) > 1
    signs["length and coding"] = lengths and re.search(rb"(?im)^transfer-encoding[ \t]*:", head)
    found = [name for name, is_there in signs.items() if is_there]
    return f", with {' and '.join(found)}" if found else ""


def path_of(name, protocol):
    return f"/{name}/{protocol.replace('.', '')}"


async def meet(server, name, protocol):
    """The responses to a case and to a correct request after it, which has the same connection if it is still there."""
    with tempfile.TemporaryDirectory() as folder:
        folder, words = Path(folder), ["curl"]
        (folder / "upload").write_bytes(b"x" * CASES[name].upload)
        for number, path in enumerate((name, f"next-{name}")):
            # An empty file is written before: curl writes none for a response without a body.
            (folder / f"body{number}").touch()
            words += ["--next"] * number + [
                "--silent", "--insecure", f"--{protocol}", "--noproxy", "*", "--max-time", LIMIT, "--write-out", "%{json}\n",
                "--resolve", f"{NAME}:{server.port}:127.0.0.1", "--output", folder / f"body{number}", "--dump-header",
                folder / f"head{number}", f"https://{NAME}:{server.port}{path_of(path, protocol)}"]
            if CASES[name].upload and not number:
                words += ["--data-binary", f"@{folder / 'upload'}", "--header", "Expect:"]
        curl = await asyncio.create_subprocess_exec(*map(str, words), stdout=asyncio.subprocess.PIPE)
        reports = map(json.loads, (await curl.communicate())[0].splitlines())
        return [Got(report, *((folder / f"{part}{number}").read_bytes() for part in ("head", "body")))
                for number, report in enumerate(reports)]


def log_of(server, path):
    """What the access log of the server says of this request, in short, and whether it shows a failure."""
    line = next((line for line in server.log().splitlines() if path in line and not line.startswith("20")), None)
    if line is None:
        return "no line", False
    if server.name == "brisk":
        entry = json.loads(line)
        error = f" {entry['error']} ({entry['error_side']})" if "error" in entry else ""
        return f"{entry['status']}{error}", bool(error)
    if server.name == "nginx":
        match = re.search(r" (\d+) bytes=(\d+) upstream_status=(\S*)", line)
        complaint = next((re.sub(r".*?\*\d+ (.*?) while .*", r"\1", other) for other in server.log().splitlines()
                          if other.startswith("20") and path in other and "[warn]" not in other), "")
        return f"{match[1]}{' ' + complaint if complaint else ''}", bool(complaint)
    if server.name == "haproxy":
        match = re.search(r" (-?\d+) (\d+) - - (\S{4}) ", line)
        return f"{match[1]} {match[3]}", match[3][:2] != "--"
    match = re.search(r" (\d+) bytes=(\d+) flags=(\S+) (\S+)", line)
    return f"{match[1]} {match[3]} {match[4]}", match[3] != "-" or match[1] in ("502", "503", "504")


def faults(case, got, next_got, logged_failure):
    """What is wrong in a cell."""
    found, kind = [], got.kind()
    # Where an answer may be refused, any failure that the client sees will do.
    right = {*case.right, *([BROKEN, LATE] if REFUSED in case.right else [])}
    if kind == MISSING:
        found.append("no answer")
    elif kind not in right:
        found.append("looks whole" if kind == WHOLE else "lost")
    elif kind == WHOLE and got.status != case.status:
        found.append("wrong status")
    elif kind == WHOLE and case.body is not None and got.body != case.body.encode():
        found.append("wrong body")
    if got.odd:
        found.append("passed on as it came")
    if next_got.kind() != WHOLE or next_got.body != GOOD:
        found.append(f"the next request got {next_got.words()}")
    if kind != WHOLE and not logged_failure:
        found.append("the log shows no failure")
    # A client that has its answer may leave its upload, which logs may call a failure.
    if kind == WHOLE and case.right == [WHOLE] and logged_failure and not case.upload:
        found.append("the log shows a failure")
    return found


async def visit(server, names):
    """All cases against one server, over both protocols at the same time."""
    found = {}
    for name in names:
        over = await asyncio.gather(*(meet(server, name, protocol) for protocol in PROTOCOLS))
        # Lines of the log come a moment later.
        for protocol, (got, next_got) in zip(PROTOCOLS, over):
            path, until = path_of(name, protocol), time.monotonic() + 3
            while log_of(server, path)[0] == "no line" and time.monotonic() < until:
                await asyncio.sleep(0.05)
            line, is_failure = log_of(server, path)
            found[name, protocol] = (got, line, faults(CASES[name], got, next_got, is_failure))
    return found


async def measured(names, wanted):
    """Cells by server."""
    upstream, port = await misbehaviour.start()
    limits = {"UPSTREAM_TIMEOUT": misbehaviour.TIMEOUT, "CLIENT_TIMEOUT": 10, "STREAM_TIMEOUT": misbehaviour.TIMEOUT}
    async with upstream:
        with ExitStack() as stack:
            started = [await asyncio.to_thread(stack.enter_context, servers.Hardened(name, UPSTREAM=port, **limits))
                       for name in wanted]
            return dict(zip(wanted, await asyncio.gather(*(visit(server, names) for server in started))))


def cell(got, line, found):
    marks = "".join(f"<br>**{fault}**" for fault in found)
    return f"{got.words()}<br>`{line[:90]}`{marks}".replace("|", "\\|")


def matrix(found, names, protocol):
    head = ["the upstream's answer", *map(TITLES.get, found)]
    rows = ([CASES[name].title, *(cell(*cells[name, protocol]) for cells in found.values())] for name in names)
    return table(head, rows, left=len(head))


def run(arguments):
    wanted, names = programs.chosen(arguments.server, servers.FILES), arguments.case or list(CASES)
    found = asyncio.run(measured(names, wanted))
    counts = {name: sum(bool(faults) for _, _, faults in cells.values()) for name, cells in found.items()}
    return page("neighbours", limit=misbehaviour.TIMEOUT,
                servers=[f"- {TITLES[name]}: {programs.version(name)}" for name in found],
                counts=", ".join(f"{TITLES[name]} {count} of {len(found[name])}" for name, count in counts.items()),
                http1=matrix(found, names, "http1.1"), http2=matrix(found, names, "http2"))
