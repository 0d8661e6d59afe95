"""Compares the responses and logs of brisk, nginx, HAProxy and Envoy when an upstream violates the protocol.

Each violation is tested over HTTP/1.1 and HTTP/2. After each, the same client sends a request that the upstream handles
correctly. Takes about two minutes.
"""
import asyncio
import json
import re
import time
from contextlib import ExitStack

from hostile import attacks, frames, misbehaviour, servers
from hostile.client import NAME, Client, Http2
from hostile.misbehaviour import BROKEN, CASES, LATE, MISSING, REFUSED, WHOLE
from shared import programs
from shared.figures import page, table
from shared.programs import TITLES

NEEDS = "strangers"
OPTIONS = [("--server", [], "restriction to this server", {"choices": servers.FILES}),
           ("--case", [], "restriction to this case", {"choices": CASES, "metavar": "CASE"})]
# Seconds within which a response must have ended, complete or not.
LIMIT = 15
GOOD = b"good"


class Got:
    """The response at a client: `status`, the body so far, and its `end`: complete or broken, and how."""

    def __init__(self):
        self.status, self.body, self.end, self.how, self.odd = None, b"", None, "", ""

    def kind(self):
        if self.status is None:
            # The client may ask again, as many do by themselves.
            return REFUSED if self.how == "reset REFUSED_STREAM" else MISSING
        if self.status in (502, 503):
            return REFUSED
        if self.status == 504:
            return LATE
        return WHOLE if self.end == WHOLE else BROKEN

    def words(self):
        kind = self.kind()
        if self.status is None:
            return f"nothing ({self.how})"
        if kind in (REFUSED, LATE):
            return str(self.status) + ("" if self.end == WHOLE else f" (broken: {self.how})")
        extent = "whole" if kind == WHOLE else f"broken ({self.how})"
        return f"{self.status}, {len(self.body)} bytes, {extent}" + self.odd


def upload(case):
    return b"x" * case.upload


async def ask_http1(port, path, case):
    got = Got()
    client = await Client.connect(port)
    try:
        if case.upload:
            await client.send(attacks.post(path, case.upload))
        else:
            await client.send(attacks.get(path))
        sending = asyncio.create_task(client.send(upload(case)))
        received, until = b"", time.monotonic() + LIMIT
        while not got.end and time.monotonic() < until:
            received += await client.receive(0.5)
            parse(received, client.over, got)
        if not got.end:
            got.how = f"nothing more for {LIMIT} s"
        sending.cancel()
        return got, client if got.end == WHOLE and not client.over and not case.upload and not got.close else None
    finally:
        if got.end != WHOLE or client.over or case.upload or got.close:
            client.close()


def parse(received, over, got):
    """Reads an answer of HTTP/1.1 as far as it came; `over` says how the connection ended, if it did."""
    got.close = False
    while True:
        head, found, rest = received.partition(b"\r\n\r\n")
        match = re.match(rb"HTTP/1\.[01] (\d{3})", head)
        if not found or not match:
            if over:
                got.end, got.how = BROKEN, f"connection {over}"
                if received and not match:
                    got.status, got.body = 0, received
            return
        if match[1].startswith(b"1") and match[1] != b"101":
            received = rest
            continue
        break
    got.status = int(match[1])
    fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    values = {name.strip().lower(): value.strip() for name, _, value in fields}
    got.close = values.get(b"connection", b"").lower() == b"close"
    got.odd = oddities(head)
    if got.status in (101, 204, 304):
        got.body, got.end = rest, WHOLE
    elif b"transfer-encoding" in values:
        dechunk(rest, got)
    elif b"content-length" in values:
        length = int(values[b"content-length"])
        got.body = rest[:length]
        got.end = WHOLE if len(rest) >= length else None
        if len(rest) > length:
            got.odd += f", and {len(rest) - length} bytes more"
    else:
        got.body, got.end = rest, WHOLE if over == "closed" else None
    if over and not got.end:
        got.end, got.how = BROKEN, f"connection {over}"


def oddities(head):
    signs = {"NUL": b"\0" in head, "a folded line": b"\r\n " in head, "a bare LF": b"\n" in head.replace(b"\r\n", b"\r")}
    found = [name for name, is_there in signs.items() if is_there]
    lengths = re.findall(rb"(?im)^content-length[ \t]*:", head)
    if len(lengths) > 1:
        found.append("two lengths")
    if lengths and re.search(rb"(?im)^transfer-encoding[ \t]*:", head):
        found.append("length and coding")
    return f", with {' and '.join(found)}" if found else ""


def dechunk(rest, got):
    body = b""
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            break
        try:
            size = int(size.split(b";")[0], 16)
        except ValueError:
            got.end, got.how = BROKEN, "chunk size"
            break
        if size == 0:
            got.end = WHOLE if rest.startswith(b"\r\n") or b"\r\n\r\n" in rest else None
            break
        body += rest[:size]
        if len(rest) < size + 2:
            break
        rest = rest[size + 2:]
    got.body = body


class Upload:
    """The body of a request over HTTP/2, which goes as the windows allow."""

    def __init__(self, client, size):
        self.client, self.left = client, size
        self.windows = {0: 65535, 1: client.settings.get(frames.INITIAL_WINDOW, 65535)}

    def opened(self, stream, payload):
        if stream in self.windows:
            self.windows[stream] += int.from_bytes(payload, "big")

    async def go_on(self):
        while self.left and not self.client.over:
            size = min(self.left, 16384, *self.windows.values())
            if size <= 0:
                return
            self.left -= size
            for stream in self.windows:
                self.windows[stream] -= size
            await self.client.send(frames.frame(frames.DATA, 0 if self.left else frames.END_STREAM, 1, b"x" * size))


async def ask_http2(port, path, case):
    got = Got()
    client = await Http2.start(port, open_window=1 << 24, table=0)
    body = Upload(client, case.upload)
    await client.send(frames.head(1, NAME, path, "POST" if case.upload else "GET", end=not case.upload))
    until, came = time.monotonic() + LIMIT, client.early
    while not got.end and time.monotonic() < until:
        for kind, flags, stream, payload in came:
            if kind == frames.WINDOW_UPDATE:
                body.opened(stream, payload)
            elif stream == 1:
                take_frame(got, kind, flags, payload, case)
        if not got.end and (client.goaway not in (None, "NO_ERROR") or client.over):
            got.end, got.how = BROKEN, f"GOAWAY {client.goaway}" if client.goaway else f"connection {client.over}"
        if not got.end:
            await body.go_on()
            came = await client.read(0.5)
    if not got.end:
        got.how = f"nothing more for {LIMIT} s"
    return got, client


def take_frame(got, kind, flags, payload, case):
    """One frame of the stream."""
    if kind == frames.HEADERS and got.status in (None, 100, 102, 103):
        got.status = frames.status(payload)
    elif kind == frames.DATA:
        got.body += payload
    elif kind == frames.RST_STREAM and not got.end:
        got.end, got.how = BROKEN, f"reset {frames.error(payload)}"
    if kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM and not got.end:
        # RFC 9113 section 8.1.1: clients see that such an answer is malformed.
        is_short = got.status == 200 and len(got.body) < case.length
        got.end, got.how = (BROKEN, "ends before its length") if is_short else (WHOLE, "")


async def after(client, port, path, protocol):
    """The next request, on the same connection if it is still there: is its answer its own?"""
    case = CASES["plain"]
    if protocol == "h2":
        return (await ask_http2(port, path, case))[0]
    if not client:
        got, client = await ask_http1(port, path, case)
    else:
        got, received, until = Got(), b"", time.monotonic() + LIMIT
        await client.send(attacks.get(path))
        while not got.end and time.monotonic() < until:
            received += await client.receive(0.5)
            parse(received, client.over, got)
    if client:
        client.close()
    return got


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
    if got.status == 0:
        found.append("no valid status")
    elif kind == MISSING:
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


async def meet(server, name, protocol):
    case, path = CASES[name], f"/{name}/{protocol.replace('/', '')}"
    asked = ask_http2 if protocol == "h2" else ask_http1
    try:
        got, client = await asked(server.port, path, case)
    except (OSError, asyncio.TimeoutError) as error:
        got, client = Got(), None
        got.how = type(error).__name__
    next_got = await after(client, server.port, f"/next-{name}/{protocol.replace('/', '')}", protocol)
    if client:
        client.close()
    return got, next_got


async def visit(server, names):
    """All cases against one server, over both protocols at the same time."""
    found = {}
    for name in names:
        over = await asyncio.gather(meet(server, name, "http/1.1"), meet(server, name, "h2"))
        # Lines of the log come a moment later.
        for protocol, (got, next_got) in zip(("http/1.1", "h2"), over):
            path = f"/{name}/{protocol.replace('/', '')}"
            until = time.monotonic() + 3
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
                http1=matrix(found, names, "http/1.1"), http2=matrix(found, names, "h2"))
