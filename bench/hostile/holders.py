"""Clients that make brisk hold memory: every kind of docs/security.md, from one address or from many.

Each client is a `crowd.Slow`: it asks for much, keeps what it was given for half a minute, and comes again. So the process needs
little processor time. The measurement worst starts it.
"""
import asyncio
import itertools
import json
import select
import sys
import time

from . import attacks, client, frames
from .client import NAME, Client, Http2
from .crowd import HOLD, Crowd, Slow, act_alone

# Bytes of one upload that is sent at once: below the 64 KiB that are held in memory, and a part of the whole body.
SENT, WHOLE = 60_000, 1_000_000
# Bytes of a reader of future dictionaries and copies in a turn: less than that counts as no progress.
READ = 192 << 10
# Seconds between the end of a client and the next one in its place.
AGAIN = 0.5
# Streams with a body on one connection, so that its window of 1 MiB takes all of it.
BODIES = 16
CODINGS = ("zstd", "br", "gzip")
# Files of the script with the name `N.txt`.
FILES = 48
UPGRADE = (f"GET /socket HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode()
# A field of 4,000 bytes: as literal that enters the table, then by its index. 14 of them are a head of 56 KiB.
LONG, LINES = "a" * 4000, 14
FIRST_BOMB = b"\x40" + frames.text("x") + frames.text(LONG) + b"\xbe" * (LINES - 1)
BOMB = b"\xbe" * LINES


class Holder(Slow):
    """A kind of client. `ask` opens the connection and sends everything."""
    EVENTS = select.EPOLLRDHUP
    hold_for = HOLD

    def __init__(self, crowd, wanted, streams):
        super().__init__(crowd, wanted)
        self.streams, self.numbers = streams, itertools.count()

    async def open(self):
        if self.opened + self.failed >= self.wanted:
            await asyncio.sleep(AGAIN)
        member = await self.ask()
        member.detach()
        return member

    def step(self, member):
        least, most = self.hold_for
        if time.monotonic() - member.began > least + (most - least) * member.place / len(self.turns):
            self.end(member, "finished")

    async def on_streams(self, count, make, window=frames.LARGEST_WINDOW, receive_buffer=4096):
        """A connection over HTTP/2 with the frames from `make(stream, number)` for each of its streams."""
        member = await Http2.start(self.crowd.port, receive_buffer, window=window, open_window=0x70000000)
        try:
            await member.send(b"".join(make(2 * index + 1, next(self.numbers)) for index in range(count)))
        except BaseException:
            member.close()
            raise
        return member


class Unread(Holder):
    """Responses that nobody reads."""

    def __init__(self, crowd, wanted, streams, path):
        super().__init__(crowd, wanted, streams)
        self.path = path

    async def ask(self):
        return await self.on_streams(self.streams, lambda stream, number: frames.head(stream, NAME, self.path))


class Compressed(Holder):
    """Compressed responses of which the client permits a few bytes."""

    async def ask(self):
        def make(stream, number):
            return frames.head(stream, NAME, f"/text/{number}", headers=[("accept-encoding", CODINGS[number % 3])])
        return await self.on_streams(self.streams, make, window=100)


class Documents(Holder):
    """Documents that brisk decodes and changes, of which the client permits a few bytes. brisk requests documents in gzip, and
    other content in all codings: some clients pretend to expect a script."""

    async def ask(self):
        def make(stream, number):
            extension = ("gz", "gz", "gz", "br", "zst")[number % 5]
            headers = [("accept", "text/html"), ("accept-encoding", ", ".join(CODINGS))]
            headers += [] if extension == "gz" else [("sec-fetch-dest", "script")]
            return frames.head(stream, NAME, f"/document/{extension}/{number}", headers=headers)
        return await self.on_streams(self.streams, make, window=10)


class Gathered(Holder):
    """Responses that brisk gathers for later, read just fast enough for that."""
    streams_of_one = 3
    hold_for = (60, 90)

    def __init__(self, crowd, wanted, streams, path, headers=()):
        super().__init__(crowd, wanted, streams)
        self.path, self.headers = path, headers

    async def ask(self):
        def make(stream, number):
            return frames.head(stream, NAME, self.path(number), headers=self.headers)
        return await self.on_streams(min(self.streams, self.streams_of_one), make, receive_buffer=READ // 2)

    def step(self, member):
        super().step(member)
        left = READ
        while left > 0 and (received := member.socket.recv(left)):
            left -= len(received)


class Uploads(Holder):
    """Bodies of which a part comes at once, and the rest never."""

    def __init__(self, crowd, wanted, streams, path, headers=(), whole=False, hold_for=HOLD):
        super().__init__(crowd, wanted, streams)
        self.path, self.hold_for, self.whole = path, hold_for, whole
        self.headers = [*headers, ("content-length", str(SENT if whole else WHOLE))]

    async def ask(self):
        def make(stream, number):
            return (frames.head(stream, NAME, self.path, "POST", self.headers, end=False) +
                    frames.data(stream, b"x" * SENT, end=self.whole))
        return await self.on_streams(min(self.streams, BODIES), make)


class Beacons(Uploads):
    """Beacons that arrive for as long as they may."""

    def __init__(self, crowd, wanted, streams):
        headers = [("content-type", "application/reports+json"), ("sec-fetch-site", "same-origin")]
        super().__init__(crowd, wanted, streams, "/.brisk/beacon", headers, hold_for=(4, 6))
        self.headers[-1] = ("content-length", str(SENT + 4000))


class Heads(Holder):
    """Large heads of requests that the upstream never answers."""

    async def ask(self):
        headers = [(f"x{line}", LONG) for line in range(LINES)]
        return await self.on_streams(self.streams, lambda stream,
                                     number: frames.head(stream, NAME, "/hang/heads", headers=headers))


class Bombs(Holder):
    """The same from a few bytes each. More of them than four end the connection."""

    async def ask(self):
        def make(stream, number):
            return frames.head(stream, NAME, "/hang/bombs", fields=FIRST_BOMB if stream == 1 else BOMB)
        return await self.on_streams(min(self.streams, 4), make)


class Idle(Holder):
    """Connections without a request."""

    async def ask(self):
        return await self.on_streams(0, None)


class Hellos(Holder):
    """Handshakes that do not get on: half of them after an incomplete hello, half after a whole one."""
    hold_for = (60, 90)

    async def ask(self):
        member = Client(self.crowd.port)
        await member.open(4096)
        hello = self.crowd.hello
        member.socket.send(hello if next(self.numbers) % 2 else hello[:-1])
        return member


class Sockets(Holder):
    """Connections with a switched protocol, on which the upstream sends without end and the client reads nothing."""

    async def ask(self):
        member = await Client.connect(self.crowd.port, receive_buffer=4096)
        await member.send(UPGRADE)
        return member


# Kinds by name: connections of the attack from one address, and their clients.
KINDS = {
    "unread files": (24, lambda crowd, wanted, streams: Unread(crowd, wanted, streams, "/file/1m")),
    "unread proxied responses": (24, lambda crowd, wanted, streams: Unread(crowd, wanted, streams, "/big/unread")),
    "unread compressed responses": (16, Compressed),
    "unread changed documents": (24, Documents),
    "future dictionaries": (20, lambda crowd, wanted, streams: Gathered(crowd, wanted, streams, "/dictionary/{}".format)),
    "compressed copies": (20, lambda crowd, wanted, streams: Gathered(
        crowd, wanted, streams, lambda number: f"/copy/{number % FILES}.txt", [("accept-encoding", "gzip")])),
    "slow buffered uploads": (24, lambda crowd, wanted, streams: Uploads(crowd, wanted, streams, "/upload/buffered")),
    "uploads without response": (24, lambda crowd, wanted, streams: Uploads(crowd, wanted, streams, "/hang/uploads", whole=True)),
    "beacons": (8, Beacons),
    "large heads": (24, Heads),
    "HPACK bombs": (32, Bombs),
    "idle connections": (40, Idle),
    "half handshakes": (40, Hellos),
    "unread upgraded connections": (24, Sockets),
}


class Holders(Crowd):
    """The chosen kinds, `times` as many connections as those of one address."""

    def __init__(self, port, addresses, streams, times, names):
        super().__init__(port)
        client.come_from(addresses)
        self.hello = attacks.hello()
        self.kinds = {name: KINDS[name][1](self, KINDS[name][0] * times, streams) for name in names}


def main():
    settings = json.loads(sys.argv[1])
    asyncio.run(act_alone(lambda: Holders(**settings)))


if __name__ == "__main__":
    main()
