"""Clients that make brisk hold memory: every kind of docs/security.md, from one address or from many; and floods.

Each client asks for much, keeps what it was given for half a minute, and comes again. The measurements worst and soak start this
module as a process.
"""
import asyncio
import itertools
import json
import select
import sys
import time

from . import attacks, client, frames
from .client import NAME, Client, Http2
from .crowd import Crowd, Slow

# Bytes of one upload that is sent at once: below the 64 KiB that are held in memory, and a part of the whole body.
SENT, WHOLE = 60_000, 1_000_000
# Bytes of a reader of future dictionaries and copies in a turn: less than that counts as no progress.
READ = 192 << 10
# Bytes that other readers take in a turn, and their paths.
READS, READ_PATHS = (400, 8), ("/file/1m", "/big/slow")
# Streams of slow readers and slow uploads; streams with a body on one connection, so that its window of 1 MiB takes all of it.
STREAMS, BODIES = 4, 16
# An upload drips for this many turns at most. What comes to its client after some seconds is no longer part of its handshake.
DRIPS, SETTLED = 60, 5
CODINGS = ("zstd", "br", "gzip")
# Files of the script with the name `N.txt`.
FILES = 48
UPGRADE = attacks.get("/socket", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
# A field of 4,000 bytes: as literal that enters the table, then by its index. 14 of them are a head of 56 KiB.
LONG, LINES = "a" * 4000, 14
FIRST_BOMB = b"\x40" + frames.text("x") + frames.text(LONG) + b"\xbe" * (LINES - 1)
BOMB = b"\xbe" * LINES


class Holder(Slow):
    """Clients over HTTP/2, on as many streams as they may or `most`, with the frames from `request(stream, number)` for each. Of
    each response they permit `window` bytes, and take `reads` bytes in a turn."""

    def __init__(self, *arguments, request=None, most=1000, window=frames.LARGEST_WINDOW, receive_buffer=4096, reads=0, **more):
        super().__init__(*arguments, **more)
        self.request, self.most, self.window = request, most, window
        self.receive_buffer, self.reads = receive_buffer, reads

    async def ask(self):
        member = await Http2.start(self.crowd.port, self.receive_buffer, window=self.window, open_window=0x70000000)
        try:
            await member.send(b"".join(self.request(2 * index + 1, next(self.numbers))
                                       for index in range(min(self.streams, self.most))))
        except BaseException:
            member.close()
            raise
        return member

    def step(self, member):
        super().step(member)
        left = self.reads
        while left > 0 and (received := member.socket.recv(left)):
            left -= len(received)


def get_of(path, *codings, headers=()):
    """Requests for a path with their number, for one coding after the other."""
    def request(stream, number):
        accepted = [("accept-encoding", codings[number % len(codings)])] if codings else []
        return frames.head(stream, NAME, path.format(number, number % FILES), headers=[*headers, *accepted])
    return request


def document(stream, number):
    """brisk requests documents in gzip, and other content in all codings: some clients pretend to expect a script."""
    extension = ("gz", "gz", "gz", "br", "zst")[number % 5]
    headers = [("accept", "text/html")] + ([] if extension == "gz" else [("sec-fetch-dest", "script")])
    return get_of(f"/document/{extension}/{{}}", ", ".join(CODINGS), headers=headers)(stream, number)


def upload(path, length, *headers):
    """Uploads of which a part comes at once, and the rest, if there is one, never."""
    def request(stream, _):
        head = frames.head(stream, NAME, path, "POST", [*headers, ("content-length", str(length))], end=False)
        return head + frames.data(stream, b"x" * SENT, end=length == SENT)
    return request


def bomb(stream, _):
    """A large head from a few bytes."""
    return frames.head(stream, NAME, "/hang/bombs", fields=FIRST_BOMB if stream == 1 else BOMB)


class Hellos(Slow):
    """Handshakes that do not get on: half of them after an incomplete hello, half after a whole one."""

    async def ask(self):
        member = Client(self.crowd.port)
        await member.open(4096)
        member.socket.send(self.crowd.hello if next(self.numbers) % 2 else self.crowd.hello[:-1])
        return member


class Sockets(Slow):
    """Connections with a switched protocol, on which the upstream sends without end and the client reads nothing."""

    async def ask(self):
        member = await Client.connect(self.crowd.port, receive_buffer=4096)
        await member.send(UPGRADE)
        return member


class Readers(Holder):
    """Clients that ask for 1 MiB and take a few bytes at a time."""
    sizes = itertools.cycle(READS)

    async def ask(self):
        member = await self.begin()
        member.size = next(self.sizes)
        return member

    async def begin(self):
        return await super().ask()

    def step(self, member):
        if not member.socket.recv(member.size):
            self.end(member, "finished")
        super().step(member)


class ReadersOverHttp1(Readers):
    async def begin(self):
        member = await Client.connect(self.crowd.port, receive_buffer=self.receive_buffer)
        await member.send(attacks.get(READ_PATHS[next(self.numbers) % 2]))
        return member


class Drippers(Slow):
    """Clients that send uploads of 100 kB byte by byte."""
    EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET

    async def ask(self):
        member, drip = await self.begin()
        member.drips = [member.sealed(drip) for _ in range(DRIPS)]
        member.drips.reverse()
        return member

    async def begin(self):
        """A client whose uploads have begun, and the next byte of each."""
        member, streams = await Http2.start(self.crowd.port, 4096), range(1, 2 * STREAMS, 2)
        fields = [("content-length", "100000")]
        await member.send(b"".join(frames.head(stream, NAME, "/upload/slow", "POST", fields, end=False) for stream in streams))
        return member, b"".join(frames.frame(frames.DATA, 0, stream, b"x") for stream in streams)

    def step(self, member):
        if member.drips:
            member.socket.send(member.drips.pop())
        else:
            self.end(member, "finished")

    def readable(self, member):
        try:
            received = member.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received or time.monotonic() - member.began > SETTLED:
            self.end(member, "cut")


class DrippersOverHttp1(Drippers):
    async def begin(self):
        member = await Client.connect(self.crowd.port, receive_buffer=4096)
        await member.send(attacks.post("/upload/slow", 100000))
        return member, b"x"


LONG_HEAD = [(f"x{line}", LONG) for line in range(LINES)]
REPORTS = [("content-type", "application/reports+json"), ("sec-fetch-site", "same-origin")]
# Clients that read what brisk gathers for later, just fast enough for that.
GATHERED = {"most": 3, "hold_for": (60, 90), "receive_buffer": READ // 2, "reads": READ}
READING = {"request": lambda stream, number: frames.head(stream, NAME, READ_PATHS[number % 2]), "most": STREAMS,
           "receive_buffer": 2048, "again": 0}
# Kinds by name: connections of the attack from one address in the measurement worst, their clients, and settings of these.
KINDS = {
    "unread files": (24, Holder, {"request": get_of("/file/1m")}),
    "unread proxied responses": (24, Holder, {"request": get_of("/big/unread")}),
    "unread compressed responses": (16, Holder, {"request": get_of("/text/{}", *CODINGS), "window": 100}),
    "unread changed documents": (24, Holder, {"request": document, "window": 10}),
    "future dictionaries": (20, Holder, {"request": get_of("/dictionary/{}"), **GATHERED}),
    "compressed copies": (20, Holder, {"request": get_of("/copy/{1}.txt", "gzip"), **GATHERED}),
    "slow buffered uploads": (24, Holder, {"request": upload("/upload/buffered", WHOLE), "most": BODIES}),
    "uploads without response": (24, Holder, {"request": upload("/hang/uploads", SENT), "most": BODIES}),
    "beacons": (8, Holder, {"request": upload("/.brisk/beacon", SENT + 4000, *REPORTS), "most": BODIES, "hold_for": (4, 6)}),
    "large heads": (24, Holder, {"request": get_of("/hang/heads", headers=LONG_HEAD)}),
    "HPACK bombs": (32, Holder, {"request": bomb, "most": 4}),
    "idle connections": (40, Holder, {"most": 0}),
    "half handshakes": (40, Hellos, {"hold_for": (60, 90)}),
    "unread upgraded connections": (24, Sockets, {}),
}
# Kinds of the measurement soak.
SLOW = {"readers h1": (0, ReadersOverHttp1, READING), "readers h2": (0, Readers, READING),
        "drippers h1": (0, DrippersOverHttp1, {"again": 0}), "drippers h2": (0, Drippers, {"again": 0})}


async def resets(crowd):
    """A client that resets streams until it is cut."""
    streams, _, end = await attacks.paced_resets(crowd.port, "/hang/reset", 2)
    crowd.count("streams reset", streams)
    crowd.count("cut", end is not None)


async def pings(crowd):
    """A client that sends PINGs until it is cut."""
    sent, _, end = await attacks.flood(crowd.port, attacks.PING_FLOOD, 2)
    crowd.count("pings sent", sent)
    crowd.count("cut", end is not None)


# Floods by name, with the seconds between two of each.
FLOODS = {"resets": (0.5, resets), "pings": (1.0, pings),
          "hellos": (0.05, lambda crowd: attacks.bare_hello(crowd.port, crowd.hello)),
          "vanished": (0.05, lambda crowd: attacks.ask_and_vanish(crowd.port, "/hang/vanished"))}


async def main(port, wanted, floods=(), streams=1000, addresses=None):
    """Runs `wanted` connections of each kind by its name, and floods, until the script that started it ends. The clients come
    from `addresses` in turn."""
    client.ends_with_its_parent()
    if addresses:
        client.come_from(addresses)
    crowd = Crowd(port)
    crowd.hello = attacks.hello()
    for name, count in wanted.items():
        _, kind, settings = {**KINDS, **SLOW}[name]
        crowd.kinds[name] = kind(crowd, count, streams, **settings)
    crowd.floods = {name: FLOODS[name] for name in floods}
    crowd.counts = dict.fromkeys([*floods, *(["streams reset", "pings sent", "cut", "failed"] if floods else [])], 0)
    await crowd.run()


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
