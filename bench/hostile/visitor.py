"""An ordinary visitor: every kind of request at a fixed rate, from an address of its own.

A request that waits for the one before it on its connection counts from when it was due. Writes a line of JSON for each
request: its kind, when it was due, the seconds until the end of the response, and what was wrong with it, or null.
"""
import asyncio
import itertools
import json
import os
import sys
import time
import zlib

from . import attacks, client, frames
from .client import NAME, Client, Http2

# Seconds after which a request has failed.
PATIENCE = 15
UPLOAD = b"u" * 100_000
BEACON = b'[{"type":"deprecation","age":1,"url":"https://bench.test/","body":{"id":"x","message":"y"}}]'
FILE, LINK = 1000, b"<a href=\"/_s/"


class Fault(Exception):
    """The response is not that of an undisturbed server."""


async def response(member):
    """Status and body of the next response over HTTP/1.1."""
    received, until = b"", time.monotonic() + PATIENCE
    while b"\r\n\r\n" not in received:
        received += await more(member, until)
    head, _, body = received.partition(b"\r\n\r\n")
    lines = [line.partition(b":") for line in head.lower().split(b"\r\n")[1:]]
    fields = {name: value.strip() for name, _, value in lines}
    status = int(head.split(b" ", 2)[1])
    length = 0 if status in (101, 204) else int(fields.get(b"content-length", -1))
    while len(body) < length or (length < 0 and not body.endswith(b"0\r\n\r\n")):
        body += await more(member, until)
    body = without_chunks(body) if length < 0 else body
    return status, fields, zlib.decompress(body, 47) if fields.get(b"content-encoding") == b"gzip" else body


def without_chunks(body):
    found, at = b"", 0
    while size := int(body[at:(start := body.index(b"\r\n", at) + 2)], 16):
        found, at = found + body[start:start + size], start + size + 2
    return found


async def more(member, until):
    data = await member.receive(until - time.monotonic())
    if not data:
        raise Fault(f"the response did not end: {member.over or 'time over'}")
    return data


def expect(condition, words):
    if not condition:
        raise Fault(words)


class Kept:
    """Requests on a connection that stays open over HTTP/1.1."""

    def __init__(self, port, request, accepts):
        self.port, self.request, self.accepts, self.member = port, request, accepts, None

    async def once(self):
        if not self.member or self.member.over:
            self.member = await Client.connect(self.port)
        await self.member.send(self.request)
        status, fields, body = await response(self.member)
        expect(status == 200 and self.accepts(fields, body), f"{status} with {len(body)} bytes")


class New(Kept):
    """The same, each on a new connection."""

    async def once(self):
        self.close()
        await super().once()

    def close(self):
        if self.member:
            self.member.close()
        self.member = None


class Multiplexed:
    """Requests over HTTP/2 on a connection that stays open."""

    def __init__(self, port):
        self.port, self.member = port, None

    async def once(self):
        if not self.member or self.member.ended():
            self.member, self.streams = await Http2.start(self.port, open_window=1 << 30), itertools.count(1, 2)
        stream, ended, status, until = next(self.streams), False, None, time.monotonic() + PATIENCE
        await self.member.send(frames.head(stream, NAME, "/visit"))
        while not ended:
            expect(time.monotonic() < until and not self.member.ended(), f"no response: {self.member.ended()}")
            for kind, flags, of, payload in await self.member.read(until - time.monotonic()):
                if of == stream:
                    expect(kind != frames.RST_STREAM, "reset")
                    status = frames.status(payload) if kind == frames.HEADERS else status
                    ended = ended or bool(kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM)
        expect(status == 200, f"{status}")


class Socket:
    """Messages on a connection with a switched protocol, which return."""

    def __init__(self, port):
        self.port, self.member = port, None

    async def once(self):
        if not self.member or self.member.over:
            self.member = await Client.connect(self.port)
            await self.member.send(ECHO)
            status, _, _ = await response(self.member)
            expect(status == 101, f"{status}")
        await self.member.send(b"a message")
        until, got = time.monotonic() + PATIENCE, b""
        while len(got) < 9:
            got += await more(self.member, until)


def get(path, *fields):
    lines = "".join(f"{field}\r\n" for field in fields)
    return f"GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{lines}\r\n".encode()


ECHO = get("/echo", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")


class Beacon(Kept):
    async def once(self):
        if not self.member or self.member.over:
            self.member = await Client.connect(self.port)
        await self.member.send(self.request)
        status, _, _ = await response(self.member)
        expect(status == 204, f"{status}")


def kinds(port):
    """Requests by kind."""
    reports = ("POST /.brisk/beacon HTTP/1.1\r\nHost: %s\r\nContent-Type: application/reports+json\r\nSec-Fetch-Site: "
               "same-origin\r\n"
               "Content-Length: %d\r\n\r\n" % (NAME, len(BEACON))).encode() + BEACON
    upload = attacks.post("/upload/buffered/visit", len(UPLOAD)) + UPLOAD
    gzip = "Accept-Encoding: gzip"
    return {
        "proxied": Kept(port, get("/visit"), lambda fields, body: body == b"ok"),
        "proxied, HTTP/2": Multiplexed(port),
        "new connection": New(port, get("/visit"), lambda fields, body: body == b"ok"),
        "file": Kept(port, get("/file/1k"), lambda fields, body: len(body) >= FILE),
        "compressed": Kept(port, get("/visit/plain/document/none", gzip), lambda fields, body: b"https://static.test/" in body),
        "changed document": Kept(port, get("/visit/document/gz", "Accept: text/html", gzip), lambda fields, body: LINK in body),
        "buffered upload": Kept(port, upload, lambda fields, body: body == b"taken"),
        "beacon": Beacon(port, reports, None),
        "message on a WebSocket": Socket(port),
    }


async def ask(name, kind, lock, due):
    fault = None
    async with lock:
        try:
            await asyncio.wait_for(kind.once(), max(0, due + PATIENCE - time.monotonic()))
        except asyncio.TimeoutError:
            fault = f"no response in {PATIENCE} s"
        except (Fault, OSError) as error:
            fault = str(error) or type(error).__name__
        if fault and kind.member:
            kind.member.close()
            kind.member = None
    print(json.dumps([name, due, time.monotonic() - due, fault]), flush=True)


async def visit(port, address, rate, seconds):
    """`rate` requests per second in total, of each kind in turn."""
    client.come_from([address])
    members, tasks, start = kinds(port), [], time.monotonic()
    locks = {name: asyncio.Lock() for name in members}
    for number, name in zip(range(round(rate * seconds)), itertools.cycle(members)):
        due = start + number / rate
        await asyncio.sleep(max(0, due - time.monotonic()))
        tasks.append(asyncio.ensure_future(ask(name, members[name], locks[name], due)))
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    if os.geteuid() == 0:
        os.nice(-15)
    asyncio.run(visit(**json.loads(sys.argv[1])))
