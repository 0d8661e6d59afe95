"""An upstream that counts connections, requests, the time for which it was occupied, and received body bytes.

Runs as a separate process. Responses by path:
  /hang...      never
  /after/N...   after N seconds
  /big...       1 MiB
  /watch...     a head and a first chunk, then nothing
  /upload...    when the body is complete
  /interim...   103 again and again, never the final response
  /stats        the counts by path, as JSON (for the measuring script itself)
  else          "ok"
"""
import asyncio
import json
import logging
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

BIG, PIECE = 1 << 20, 16 << 10
BODY = b"x" * PIECE
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n"
COUNTS = {"connections": 0, "open_connections": 0, "paths": {}}


def counts(path):
    return COUNTS["paths"].setdefault(path, {"requests": 0, "open": 0, "most_open": 0, "longest_s": 0, "body_bytes": 0})


class Upstream(asyncio.Protocol):
    """One connection of the server that is measured."""

    def connection_made(self, transport):
        self.transport, self.received, self.request, self.left, self.unsent = transport, b"", None, 0, 0
        transport.set_write_buffer_limits(high=PIECE)
        COUNTS["connections"] += 1
        COUNTS["open_connections"] += 1

    def connection_lost(self, _):
        self.unsent = 0
        COUNTS["open_connections"] -= 1
        self.end_request()

    def data_received(self, data):
        if self.request:
            self.take_body(data)
            return
        self.received += data
        if b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            self.received = b""
            self.begin(head.decode("latin-1"), rest)

    def begin(self, head, rest):
        path = head.split(" ", 2)[1]
        if path == "/stats":
            self.answer(json.dumps(COUNTS).encode())
            return
        fields = {name.strip().lower(): value.strip() for name, _, value in
                  (line.partition(":") for line in head.split("\r\n")[1:])}
        self.request, self.began, self.path = counts(path), time.monotonic(), path
        self.request["requests"] += 1
        self.request["open"] += 1
        self.request["most_open"] = max(self.request["most_open"], self.request["open"])
        # Of a body in chunks the end is looked for, which is enough for bodies of one letter.
        self.chunked = "chunked" in fields.get("transfer-encoding", "")
        self.left = int(fields.get("content-length", 0))
        self.begin_answer()
        if rest and self.request:
            self.take_body(rest)

    def begin_answer(self):
        kind = self.path.split("/")[1]
        if kind == "big":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
            self.unsent = BIG
            self.resume_writing()
        elif kind == "after":
            seconds = float(self.path.split("/")[2])
            asyncio.get_running_loop().call_later(seconds, self.answer, b"late")
        elif kind == "watch":
            self.transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        elif kind == "upload":
            self.take_body(b"")
        elif kind == "interim":
            self.write_interim()
        elif kind != "hang":
            self.answer(b"ok")

    def take_body(self, data):
        self.request["body_bytes"] += len(data)
        self.left -= len(data)
        whole = data.endswith(b"0\r\n\r\n") if self.chunked else self.left <= 0
        if whole and self.path.startswith("/upload"):
            self.answer(b"taken")

    def write_interim(self):
        if self.request and not self.transport.is_closing():
            if self.transport.get_write_buffer_size() < PIECE:
                self.transport.write(INTERIM * 10)
            asyncio.get_running_loop().call_later(0.01, self.write_interim)

    def resume_writing(self):
        while self.unsent and not self.transport.is_closing() and self.transport.get_write_buffer_size() < PIECE:
            length = min(self.unsent, PIECE)
            self.unsent -= length
            self.transport.write(BODY[:length])
            if not self.unsent:
                self.end_request()

    def answer(self, body):
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.end_request()

    def end_request(self):
        if self.request:
            self.request["open"] -= 1
            self.request["longest_s"] = max(self.request["longest_s"], time.monotonic() - self.began)
            self.request = None


async def serve(port):
    loop = asyncio.get_running_loop()
    # Connections that the server resets are no news.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    # Any address of this machine's loopback: several of them are several servers, each with ports of its own.
    server = await loop.create_server(Upstream, "0.0.0.0", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends with the script that started it.
    await loop.connect_read_pipe(lambda: Parent(loop), sys.stdin)
    await server.serve_forever()


class Parent(asyncio.Protocol):
    def __init__(self, loop):
        self.loop = loop

    def connection_lost(self, _):
        os._exit(0)


class Counting:
    """Starts this upstream on `cores`, and asks it for its counts. `gives_way`: whatever else wants its core has it first."""

    def __init__(self, cores=None, gives_way=False):
        command = [sys.executable, "-m", "hostile.upstream", *(["gives-way"] if gives_way else [])]
        if cores:
            command = ["taskset", "-c", cores, *command]
        self.process = subprocess.Popen(command, cwd=Path(__file__).resolve().parent.parent, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def stats(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats", timeout=120) as answer:
            return json.load(answer)

    def path(self, path):
        """The counts of one path, zeros before its first request."""
        none = {"requests": 0, "open": 0, "most_open": 0, "longest_s": 0, "body_bytes": 0}
        return self.stats()["paths"].get(path, none)


if __name__ == "__main__":
    if "gives-way" in sys.argv:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    asyncio.run(serve(0))
