"""An upstream that counts connections, requests, the time for which it was occupied, and received body bytes.

Runs as a separate process. Responses by path:
  /hang...      never
  /after/N...   after N seconds
  /big...       1 MiB
  /text...      1 MiB that can be compressed
  /dictionary/N 1 MiB that becomes a dictionary, another one for each path
  /document/EXTENSION...  `page.html` of the folder that the script named, with this extension and its coding if the request
                permits it
  /socket...    101, then data without end
  /echo...      101, then the received bytes
  /watch...     a head and a first chunk, then nothing
  /upload...    when the body is complete
  /interim...   103 again and again, never the final response
  /stats        the counts by path, as JSON (for the measuring script itself)
  else          "ok"
"""
import asyncio
import json
import logging
import sys
import time
import urllib.request
from pathlib import Path

from .client import ends_with_its_parent
from .servers import Helper

BIG, PIECE = 1 << 20, 16 << 10
BODY = b"x" * PIECE
TEXT = b"".join(b"%07d a line of text that others resemble\n" % (number * number) for number in range(PIECE // 46))
CODINGS = {"gz": "gzip", "br": "br", "zst": "zstd"}
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
# Files of `/document`, by name.
DOCUMENTS = {}
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n"
COUNTS = {"connections": 0, "open_connections": 0, "paths": {}}


def counts(path):
    return COUNTS["paths"].setdefault(path, {"requests": 0, "open": 0, "most_open": 0, "longest_s": 0, "body_bytes": 0})


class Upstream(asyncio.Protocol):
    """One connection of the server that is measured."""

    def connection_made(self, transport):
        self.transport, self.received, self.request, self.left, self.unsent = transport, b"", None, 0, 0
        self.piece, self.switched = BODY, None
        transport.set_write_buffer_limits(high=PIECE)
        COUNTS["connections"] += 1
        COUNTS["open_connections"] += 1

    def connection_lost(self, _):
        self.unsent = 0
        COUNTS["open_connections"] -= 1
        self.end_request()

    def data_received(self, data):
        if self.switched == "echo":
            self.transport.write(data)
        elif self.request:
            self.take_body(data)
        else:
            self.take_head(data)

    def take_head(self, data):
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
        self.begin_answer(fields)
        if rest and self.request:
            self.take_body(rest)

    def begin_answer(self, fields):
        kind = self.path.split("/")[1]
        if kind == "big":
            self.begin_big("", BODY)
        elif kind == "text":
            self.begin_big("Content-Type: text/plain\r\n", TEXT)
        elif kind == "dictionary":
            head = f"Content-Type: text/javascript\r\nUse-As-Dictionary: match=\"/*\"\r\nETag: \"{self.path}\"\r\n"
            self.begin_big(head, self.path.encode().ljust(64, b" ") + TEXT)
        elif kind == "document":
            self.send_document(self.path.split("/")[2], fields.get("accept-encoding", ""))
        elif kind in ("socket", "echo"):
            self.switched = kind
            self.transport.write(SWITCHED)
            self.unsent = float("inf") if kind == "socket" else 0
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

    def begin_big(self, head, piece):
        self.transport.write(f"HTTP/1.1 200 OK\r\n{head}Content-Length: {BIG}\r\n\r\n".encode())
        self.unsent, self.piece = BIG, piece
        self.resume_writing()

    def send_document(self, extension, accepted):
        coding = CODINGS.get(extension) if CODINGS.get(extension, "no") in accepted else None
        body = DOCUMENTS["page.html." + extension if coding else "page.html"]
        self.transport.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: {coding or 'identity'}\r\n"
                             f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.end_request()

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
            length = min(self.unsent, len(self.piece))
            self.unsent -= length
            self.transport.write(self.piece[:length])
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
    await ends_with_its_parent()
    await server.serve_forever()


class Counting(Helper):
    """This upstream on `cores`, and its counts. `documents`: the folder of `/document`."""

    def __init__(self, cores=None, gives_way=False, documents=""):
        super().__init__("upstream", documents, cores=cores, gives_way=gives_way)

    def stats(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats", timeout=120) as answer:
            return json.load(answer)

    def path(self, path):
        """The counts of one path, zeros before its first request."""
        none = {"requests": 0, "open": 0, "most_open": 0, "longest_s": 0, "body_bytes": 0}
        return self.stats()["paths"].get(path, none)


if __name__ == "__main__":
    if sys.argv[1]:
        DOCUMENTS.update((file.name, file.read_bytes()) for file in Path(sys.argv[1]).iterdir())
    asyncio.run(serve(0))
