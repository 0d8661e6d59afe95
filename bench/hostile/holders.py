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
# Bytes that other readers take in a turn.
READS = (400, 8)
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
    """Clients over HTTP/2, on as many streams as they may or `most`, with the frames from `frames(stream, number)` for each."""
    most, window, receive_buffer = 1000, frames.LARGEST_WINDOW, 4096

    async def ask(self):
        member = await Http2.start(self.crowd.port, self.receive_buffer, window=self.window, open_window=0x70000000)
        try:
            await member.send(b"".join(self.frames(2 * index + 1, next(self.numbers))
                                       for index in range(min(self.streams, self.most))))
        except BaseException:
            member.close()
            raise
        return member

    def frames(self, stream, number):
        raise NotImplementedError


class Unread(Holder):
    """Responses that nobody reads."""
    path = "/big/unread"

    def frames(self, stream, number):
        return frames.head(stream, NAME, self.path)


class UnreadFiles(Unread):
    path = "/file/1m"


class Compressed(Holder):
    """Compressed responses of which the client permits a few bytes."""
    window = 100

    def frames(self, stream, number):
        return frames.head(stream, NAME, f"/text/{number}", headers=[("accept-encoding", CODINGS[number % 3])])


class Documents(Holder):
    """Documents that brisk decodes and changes, of which the client permits a few bytes. brisk requests documents in gzip, and
    other content in all codings: some clients pretend to expect a script."""
    window = 10

    def frames(self, stream, number):
        extension = ("gz", "gz", "gz", "br", "zst")[number % 5]
        headers = [("accept", "text/html"), ("accept-encoding", ", ".join(CODINGS))]
        headers += [] if extension == "gz" else [("sec-fetch-dest", "script")]
        return frames.head(stream, NAME, f"/document/{extension}/{number}", headers=headers)


class Dictionaries(Holder):
    """Responses that brisk gathers for later, read just fast enough for that."""
    most, hold_for, receive_buffer = 3, (60, 90), READ // 2

    def frames(self, stream, number):
        return frames.head(stream, NAME, f"/dictionary/{number}")

    def step(self, member):
        super().step(member)
        left = READ
        while left > 0 and (received := member.socket.recv(left)):
            left -= len(received)


class Copies(Dictionaries):
    def frames(self, stream, number):
        return frames.head(stream, NAME, f"/copy/{number % FILES}.txt", headers=[("accept-encoding", "gzip")])


class Uploads(Holder):
    """Bodies of which a part comes at once, and the rest never."""
    most, path, length, headers = BODIES, "/upload/buffered", WHOLE, ()

    def frames(self, stream, number):
        headers = [*self.headers, ("content-length", str(self.length))]
        return (frames.head(stream, NAME, self.path, "POST", headers, end=False) +
                frames.data(stream, b"x" * SENT, end=self.length == SENT))


class WholeUploads(Uploads):
    """Bodies without a response."""
    path, length = "/hang/uploads", SENT


class Beacons(Uploads):
    """Beacons that arrive for as long as they may."""
    path, length, hold_for = "/.brisk/beacon", SENT + 4000, (4, 6)
    headers = [("content-type", "application/reports+json"), ("sec-fetch-site", "same-origin")]


class Heads(Holder):
    """Large heads of requests that the upstream never answers."""

    def frames(self, stream, number):
        return frames.head(stream, NAME, "/hang/heads", headers=[(f"x{line}", LONG) for line in range(LINES)])


class Bombs(Holder):
    """The same from a few bytes each. More of them than four end the connection."""
    most = 4

    def frames(self, stream, number):
        return frames.head(stream, NAME, "/hang/bombs", fields=FIRST_BOMB if stream == 1 else BOMB)


class Idle(Holder):
    """Connections without a request."""
    most = 0


class Hellos(Slow):
    """Handshakes that do not get on: half of them after an incomplete hello, half after a whole one."""
    hold_for = (60, 90)

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
    most, receive_buffer, again = STREAMS, 2048, 0
    paths, sizes = ("/file/1m", "/big/slow"), itertools.cycle(READS)

    async def ask(self):
        member = await super().ask()
        member.size = next(self.sizes)
        return member

    def frames(self, stream, number):
        return frames.head(stream, NAME, self.paths[number % 2])

    def step(self, member):
        if not member.socket.recv(member.size):
            self.end(member, "finished")
        super().step(member)


class ReadersOverHttp1(Readers):
    async def ask(self):
        member = await Client.connect(self.crowd.port, receive_buffer=self.receive_buffer)
        await member.send(attacks.get(self.paths[next(self.numbers) % 2]))
        member.size = next(self.sizes)
        return member


class Drippers(Slow):
    """Clients that send uploads of 100 kB byte by byte."""
    EVENTS, again = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET, 0

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


# Kinds of the measurement worst by name: connections of the attack from one address, and their clients.
KINDS = {
    "unread files": (24, UnreadFiles), "unread proxied responses": (24, Unread), "unread compressed responses": (16, Compressed),
    "unread changed documents": (24, Documents), "future dictionaries": (20, Dictionaries), "compressed copies": (20, Copies),
    "slow buffered uploads": (24, Uploads), "uploads without response": (24, WholeUploads), "beacons": (8, Beacons),
    "large heads": (24, Heads), "HPACK bombs": (32, Bombs), "idle connections": (40, Idle), "half handshakes": (40, Hellos),
    "unread upgraded connections": (24, Sockets),
}
# Kinds of the measurement soak.
SLOW = {"readers h1": ReadersOverHttp1, "readers h2": Readers, "drippers h1": DrippersOverHttp1, "drippers h2": Drippers}


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
    await client.ends_with_its_parent()
    if addresses:
        client.come_from(addresses)
    crowd = Crowd(port)
    crowd.hello = attacks.hello()
    classes = SLOW | {name: kind for name, (_, kind) in KINDS.items()}
    crowd.kinds = {name: classes[name](crowd, count, streams) for name, count in wanted.items()}
    crowd.floods = {name: FLOODS[name] for name in floods}
    crowd.counts = dict.fromkeys([*floods, *(["streams reset", "pings sent", "cut", "failed"] if floods else [])], 0)
    await crowd.run()


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
