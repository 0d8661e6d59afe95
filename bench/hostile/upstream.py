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
  /watch...     a head and a first chunk, then nothing
  /upload...    when the body is complete
  /interim...   103 again and again, never the final response
  /stats        the counts by path, as JSON (for the measuring script itself)
  else          "ok"
"""
import asyncio
import itertools
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
SWITCHED = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
INTERIM = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n" * 10
KINDS = ("hang", "after", "big", "text", "dictionary", "document", "socket", "watch", "upload", "interim", "stats")
# Files of `/document`, by name.
DOCUMENTS = {}
COUNTS = {"connections": 0, "open_connections": 0, "paths": {}}
NONE = {"requests": 0, "open": 0, "most_open": 0, "longest_s": 0, "body_bytes": 0}


class Exchange:
    """A request of the server that is measured. The method with the name of its kind responds."""

    def __init__(self, head, reader, writer):
        self.reader, self.writer = reader, writer
        self.path = head.split(" ", 2)[1]
        lines = (line.partition(":") for line in head.split("\r\n")[1:])
        self.fields = {name.strip().lower(): value.strip() for name, _, value in lines}
        self.counts = COUNTS["paths"].setdefault(self.path, dict(NONE)) if self.path != "/stats" else dict(NONE)

    async def run(self):
        counts, began = self.counts, time.monotonic()
        counts["requests"] += 1
        counts["open"] += 1
        counts["most_open"] = max(counts["most_open"], counts["open"])
        try:
            kind = self.path.split("/")[1]
            await getattr(self, kind if kind in KINDS else "ok")()
        finally:
            counts["open"] -= 1
            counts["longest_s"] = max(counts["longest_s"], time.monotonic() - began)

    async def send(self, head, pieces=()):
        self.writer.write(head.encode())
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self, body, head=""):
        await self.send(f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body)}\r\n\r\n", [body])

    async def receive(self):
        """Some bytes of a body."""
        data = await self.reader.read(1 << 16)
        if not data:
            raise ConnectionError("the connection has ended")
        self.counts["body_bytes"] += len(data)
        return data

    async def ok(self):
        await self.answer(b"ok")

    async def stats(self):
        await self.answer(json.dumps(COUNTS).encode())

    async def hang(self):
        while True:
            await self.receive()

    async def after(self):
        try:
            await asyncio.wait_for(self.hang(), float(self.path.split("/")[2]))
        except asyncio.TimeoutError:
            await self.answer(b"late")

    async def big(self, head="", piece=BODY):
        ends = [*range(len(piece), BIG, len(piece)), BIG]
        pieces = (piece[:end - begin] for begin, end in zip([0, *ends], ends))
        await self.send(f"HTTP/1.1 200 OK\r\n{head}Content-Length: {BIG}\r\n\r\n", pieces)

    async def text(self):
        await self.big("Content-Type: text/plain\r\n", TEXT)

    async def dictionary(self):
        head = f"Content-Type: text/javascript\r\nUse-As-Dictionary: match=\"/*\"\r\nETag: \"{self.path}\"\r\n"
        await self.big(head, self.path.encode().ljust(64, b" ") + TEXT)

    async def document(self):
        extension = self.path.split("/")[2]
        coding = CODINGS.get(extension, "no") if CODINGS.get(extension, "no") in self.fields.get("accept-encoding", "") else None
        await self.answer(DOCUMENTS["page.html." + extension if coding else "page.html"],
                          f"Content-Type: text/html\r\nContent-Encoding: {coding or 'identity'}\r\n")

    async def socket(self):
        await self.send(SWITCHED, itertools.repeat(BODY))

    async def watch(self):
        await self.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await self.hang()

    async def upload(self):
        # Of a body in chunks the end is looked for, which is enough for bodies of one letter.
        left, data = int(self.fields.get("content-length", 0)), b""
        while not data.endswith(b"0\r\n\r\n") if "transfer-encoding" in self.fields else left > 0:
            data = await self.receive()
            left -= len(data)
        await self.answer(b"taken")

    async def interim(self):
        while True:
            await self.send(INTERIM, [b""])
            await asyncio.sleep(0.01)


async def connected(reader, writer):
    """The requests of a connection."""
    COUNTS["connections"] += 1
    COUNTS["open_connections"] += 1
    writer.transport.set_write_buffer_limits(high=PIECE)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await Exchange(head.decode("latin-1"), reader, writer).run()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError):
        # The server has ended the connection, or has sent no request.
        pass
    finally:
        COUNTS["open_connections"] -= 1
        writer.close()


async def serve():
    # Connections that the server resets are no news.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    # Any address of this machine's loopback: several of them are several servers, each with ports of its own.
    server = await asyncio.start_server(connected, "0.0.0.0", 0, backlog=4096, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    ends_with_its_parent()
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
        return self.stats()["paths"].get(path, NONE)


if __name__ == "__main__":
    if sys.argv[1]:
        DOCUMENTS.update((file.name, file.read_bytes()) for file in Path(sys.argv[1]).iterdir())
    asyncio.run(serve())
