"""Upstreams that violate the protocol: their responses by requested path, and the correct results."""
import asyncio
import re
import socket
import struct
import time
import urllib.parse

# What may become of an answer: it goes on whole, or is cut so that the client sees it, or is replaced by a status.
WHOLE, BROKEN, REFUSED, LATE, MISSING = "whole", "broken", "502", "504", "nothing"

OK = "HTTP/1.1 200 OK\r\n"
LENGTH = OK + "Content-Length: %d\r\n\r\n%s"
CHUNKED = OK + "Transfer-Encoding: chunked\r\n\r\n"
# What servers let an upstream's head or pause be, at most (s). Endless ones go on for longer.
TIMEOUT, ENDLESS = 3, 8


class Case:
    """`steps`: text to send, or a function of reader and writer. `right`: what may come of it, with the body if it is whole.
    `length`: what an answer announces that never comes whole. `upload`: bytes of the request's body."""

    def __init__(self, title, steps, right, body=None, length=0, upload=0, status=200):
        self.title, self.steps, self.right = title, steps if isinstance(steps, list) else [steps], right
        self.body, self.length, self.upload, self.status = body, length, upload, status


async def close(_, writer):
    writer.close()


async def reset(_, writer):
    await asyncio.sleep(0.05)
    own = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def send(text):
    async def step(_, writer):
        writer.write(text.encode("latin-1"))
        await writer.drain()
    return step


def pause(seconds):
    return lambda *_: asyncio.sleep(seconds)


async def silence(reader, writer):
    """Says nothing more until the server gives up."""
    try:
        await asyncio.wait_for(reader.read(), ENDLESS)
    except asyncio.TimeoutError:
        pass
    writer.close()


def endless(text):
    async def step(reader, writer):
        end = time.monotonic() + ENDLESS
        while time.monotonic() < end:
            await send(text)(reader, writer)
            await asyncio.sleep(0.002)
        writer.close()
    return step


async def corked(_, writer):
    """What follows goes out in one segment, with the end of the connection."""
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)


async def end(_, writer):
    writer.write_eof()
    await asyncio.sleep(0.05)
    writer.close()


HALF = LENGTH % (1000, "half")
CASES = {
    "plain": Case("nothing wrong", LENGTH % (4, "good"), [WHOLE], "good"),
    "until-close": Case("no length, ends with the connection", [OK + "Connection: close\r\n\r\ngood", close], [WHOLE], "good"),
    "http-1.0": Case("HTTP/1.0, ends with the connection", ["HTTP/1.0 200 OK\r\n\r\ngood", close], [WHOLE], "good"),

    "short": Case("shorter than its length", [HALF, pause(0.1), close], [BROKEN, REFUSED], length=1000),
    "short-together": Case("the same, in one segment", [corked, HALF, end], [BROKEN, REFUSED], length=1000),
    "short-chunked": Case("chunks without an end", [CHUNKED + "4\r\nhalf\r\n", pause(0.1), close], [BROKEN, REFUSED]),
    "short-chunk": Case("ends within a chunk", [CHUNKED + "3e8\r\nhalf", pause(0.1), close], [BROKEN, REFUSED]),
    "long": Case("longer than its length", LENGTH % (4, "goodHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"), [WHOLE, REFUSED],
                 "good"),
    "both": Case("length and chunks", OK + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nABCDEFGH\r\n0\r\n\r\n",
                 [WHOLE, REFUSED], "ABCDEFGH"),
    "two-lengths": Case("two lengths that differ", OK + "Content-Length: 4\r\nContent-Length: 5\r\n\r\ngoods", [REFUSED]),
    "same-lengths": Case("the same length twice", OK + "Content-Length: 4\r\nContent-Length: 4\r\n\r\ngood", [WHOLE, REFUSED],
                         "good"),
    "wrong-length": Case("a length that is no number", OK + "Content-Length: 4x\r\n\r\ngood", [REFUSED]),
    "chunk-size": Case("a chunk size that is no number", [CHUNKED + "zz\r\ngood\r\n0\r\n\r\n", silence], [BROKEN, REFUSED]),
    "chunk-huge": Case("a chunk size beyond 64 bits", [CHUNKED + "10000000000000004\r\ngood\r\n0\r\n\r\n", silence],
                       [BROKEN, REFUSED]),
    "coding": Case("a transfer coding that nobody knows", OK + "Transfer-Encoding: rot13\r\n\r\ngood", [REFUSED, BROKEN]),
    "trailers": Case("trailers", CHUNKED + "4\r\ngood\r\n0\r\nX-Sum: 1\r\n\r\n", [WHOLE], "good"),

    "closed": Case("closes before its head", [close], [REFUSED]),
    "closed-head": Case("closes within its head", ["HTTP/1.1 200 OK\r\nContent-", pause(0.05), close], [REFUSED]),
    "reset": Case("resets before its head", [reset], [REFUSED]),
    "reset-head": Case("resets within its head", ["HTTP/1.1 200 OK\r\nContent-", reset], [REFUSED]),
    "reset-body": Case("resets within its body", [HALF, reset], [BROKEN, REFUSED], length=1000),

    "garbage": Case("another protocol", ["220 mail.example ESMTP\r\n\r\n", silence], [REFUSED]),
    "http-0.9": Case("HTTP/0.9", ["<html>good</html>", close], [REFUSED]),
    "version": Case("a version that does not exist", "HTTP/7.3 200 OK\r\nContent-Length: 4\r\n\r\ngood", [WHOLE, REFUSED],
                    "good"),
    "status": Case("a status that is no number", "HTTP/1.1 abc OK\r\nContent-Length: 4\r\n\r\ngood", [REFUSED]),
    "bare-lf": Case("lines that end with LF", "HTTP/1.1 200 OK\nContent-Length: 4\n\ngood", [WHOLE, REFUSED], "good"),
    "folded": Case("a folded line", OK + "X-Own: a\r\n b\r\nContent-Length: 4\r\n\r\ngood", [WHOLE, REFUSED], "good"),
    "nul": Case("NUL in a value", OK + "X-Own: a\0b\r\nContent-Length: 4\r\n\r\ngood", [REFUSED]),
    "colon": Case("a line without a colon", OK + "X-Own\r\nContent-Length: 4\r\n\r\ngood", [WHOLE, REFUSED], "good"),
    "space": Case("a space before the colon", OK + "Content-Length : 4\r\n\r\ngood", [WHOLE, REFUSED], "good"),

    "continue": Case("100 unasked, then the answer", "HTTP/1.1 100 Continue\r\n\r\n" + LENGTH % (4, "good"), [WHOLE], "good"),
    "processing": Case("102, then the answer", "HTTP/1.1 102 Processing\r\n\r\n" + LENGTH % (4, "good"), [WHOLE], "good"),
    "hints": Case("103, then the answer", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + LENGTH % (4, "good"), [WHOLE],
                  "good"),
    "endless-1xx": Case(f"100 without end ({ENDLESS} s)", [endless("HTTP/1.1 100 Continue\r\n\r\n" * 20)],
                        [REFUSED, LATE, BROKEN]),
    "upgrade": Case("101 unasked", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\ngood",
                    [REFUSED]),
    "no-content": Case("204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\ngood", [WHOLE, REFUSED], "",
                       status=204),
    "not-modified": Case("304 with a body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\ngood", [WHOLE, REFUSED], "",
                         status=304),

    "head-200k": Case("a head of 200 KB", OK + "X-Own: " + "x" * 200_000 + "\r\nContent-Length: 4\r\n\r\ngood", [WHOLE, REFUSED],
                      "good"),
    "endless-head": Case(f"a head without end ({ENDLESS} s)", [OK, endless("X-Own: " + "x" * 2000 + "\r\n")], [REFUSED, LATE]),
    "slow-head": Case("a head that takes 1 s", ["HTTP/1.1 200", pause(1), " OK\r\nContent-Length: 4\r\n\r\ngood"], [WHOLE],
                      "good"),
    "no-head": Case(f"no head (limit {TIMEOUT} s)", [silence], [LATE]),
    "slow-body": Case("a body with a pause of 1 s", [LENGTH % (8, "good"), pause(1), "good"], [WHOLE], "goodgood"),
    "no-body": Case(f"a body that stops (limit {TIMEOUT} s)", [HALF, silence], [BROKEN, LATE], length=1000),

    "early": Case("200 while 1 MB of the request is to come", LENGTH % (4, "good"), [WHOLE], "good", upload=1_000_000),
    "early-close": Case("413 at once, and closes",
                        ["HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood", close],
                        [WHOLE, REFUSED], "good", upload=1_000_000, status=413),
}


async def answer(reader, writer):
    """One connection. `/NAME/...` is answered as the case says, any other path correctly."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = urllib.parse.urlsplit(head.split(" ", 2)[1]).path
            case = CASES.get(path.split("/")[1], CASES["plain"])
            for step in case.steps:
                await (send(step) if isinstance(step, str) else step)(reader, writer)
            if case.upload:
                # The body of a request whose answer has been sent.
                length = re.search(r"(?im)^content-length: *(\d+)", head)
                await (reader.readexactly(int(length[1])) if length else reader.readuntil(b"\r\n0\r\n\r\n"))
    except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def start():
    """Serves the cases; returns the server and its port."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024, limit=1 << 21)
    return server, server.sockets[0].getsockname()[1]
