"""Compares the processor time of brisk for the same offences over HTTP/2 and over HTTP/3.

Runs brisk with one worker. A client commits each offence for some seconds, and connects again when it was cut; other clients
request at a fixed rate before and meanwhile.
"""
import asyncio
import itertools
import os
import random
import socket
import sys
import tempfile
import threading
import time

from hostile import frames
from hostile.client import Client, Http2
from shared import programs
from shared.figures import mebibytes, page, show, table
from shared.gateway import Brisk, certificates, route, upstream
from shared.load import bench, failures, report
from shared.processes import free_port
from shared.programs import BRISK, CACHE, NAME

sys.path.insert(0, str(CACHE / "aioquic"))
NEEDS = "strangers"

try:
    from aioquic.asyncio.client import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.packet import QuicFrameType
except ImportError:
    # `--prepare` installs it.
    QuicConnectionProtocol = object

ROUTES = (route("/", 'respond = { body = "here" }') + route("/hang", 'upstream = "hang"') +
          upstream("hang", '"http://127.0.0.1:$hang"'))
# Slow uploads have no end by a rate.
SERVER = """
http3 = true
[server.limits]
body_rate = "none"
"""
# Kept, because their end waits for the end of the connection.
MANAGERS = []

BURST, PAUSE = 16, 0.004
# Requests per second of the other clients.
RATE = 50
# References to a field of 4,000 bytes (HPACK), or to the longest of the static table (QPACK), in one head.
REFERENCES = 4000


class Http3(QuicConnectionProtocol):
    """Raw streams of a connection. The control stream is the first."""

    def over(self):
        return self._quic._close_event is not None

    def send(self, stream, data, end=False):
        self._quic.send_stream_data(stream, data, end)

    def control(self, data):
        self.send(2, data)

    def bidirectional(self):
        return self._quic.get_next_available_stream_id()


def varint(number):
    size = next(size for size in range(4) if number < 1 << (8 * 2**size - 2))
    return (number | size << (8 * 2**size - 2)).to_bytes(2**size, "big")


def frame(kind, payload):
    return varint(kind) + varint(len(payload)) + payload


def head(path, method="GET", fields=b""):
    """A HEADERS frame with literal names, without the dynamic table (RFC 9204 section 4.5)."""
    def literal(name, value):
        prefix = bytes([0x20 | len(name)]) if len(name) < 7 else bytes([0x27, len(name) - 7])
        return prefix + name + bytes([len(value)]) + value
    pairs = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", NAME.encode()), (b":path", path.encode())]
    return frame(1, b"\0\0" + b"".join(literal(name, value) for name, value in pairs) + fields)


async def http3(port):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, cafile=str(certificates() / "root.pem"),
                                      server_name=NAME)
    manager = connect("127.0.0.1", port, configuration=configuration, create_protocol=Http3)
    client = await manager.__aenter__()
    MANAGERS.append(manager)
    client.control(b"\0\x04\0")
    return client


async def again(open_client, step, close, until):
    """Steps of clients, each of which is replaced when it is cut. Returns offences and connections."""
    offences = connections = 0
    while time.monotonic() < until:
        try:
            client = await open_client()
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(0.05)
            continue
        connections += 1
        state = itertools.count()
        while time.monotonic() < until:
            done = await step(client, next(state))
            if done is None:
                break
            offences += done
            await asyncio.sleep(PAUSE)
        await close(client)
    return offences, connections


def over_http2(step):
    async def run(port, until):
        async def close(client):
            client.close()

        async def one(client, number):
            await client.read(0)
            return None if client.ended() else await step(client, number)
        return await again(lambda: Http2.start(port, open_window=1 << 30), one, close, until)
    return run


def over_http3(step):
    async def run(port, until):
        async def close(client):
            client.close()
            client._transport.close()

        async def one(client, number):
            if client.over():
                return None
            done = step(client, number)
            client.transmit()
            return done
        return await again(lambda: http3(port), one, close, until)
    return run


@over_http2
async def resets_2(client, number):
    streams = range(1 + 2 * BURST * number, 1 + 2 * BURST * (number + 1), 2)
    await client.send(b"".join(frames.head(stream, NAME, "/hang") for stream in streams))
    await asyncio.sleep(PAUSE)
    await client.send(b"".join(frames.reset(stream) for stream in streams))
    return BURST


@over_http3
def resets_3(client, number):
    for _ in range(BURST):
        stream = client.bidirectional()
        client.send(stream, head("/hang"))
        client.transmit()
        client._quic.reset_stream(stream, 0x10C)
        client._quic.stop_stream(stream, 0x10C)
    return BURST


@over_http2
async def priorities_2(client, number):
    update = b"".join(frames.frame(0x10, 0, 0, (2 * stream + 1).to_bytes(4, "big") + b"u=1") for stream in range(100))
    await client.send(update)
    return 100


@over_http3
def priorities_3(client, number):
    client.control(b"".join(frame(0xF0700, varint(4 * stream) + b"u=1") for stream in range(100)))
    return 100


@over_http2
async def bombs_2(client, number):
    # A field that enters the table, and references to it (RFC 7541 sections 6.1 and 6.2.1).
    fields = b"\x40" + frames.text("x-a") + frames.text("a" * 4000) + b"\xbe" * REFERENCES
    await client.send(frames.head(2 * number + 1, NAME, "/", fields=fields))
    return 1


@over_http3
def bombs_3(client, number):
    # The longest value of the static table is that of content-security-policy (RFC 9204 appendix A).
    client.send(client.bidirectional(), head("/", fields=b"\xff\x16" * REFERENCES), True)
    return 1


@over_http2
async def slow_2(client, number):
    if number == 0:
        await client.send(b"".join(frames.head(2 * stream + 1, NAME, "/hang", "POST", end=False) for stream in range(BURST)))
    await client.send(b"".join(frames.data(2 * stream + 1, b"x") for stream in range(BURST)))
    return BURST


@over_http3
def slow_3(client, number):
    if number == 0:
        client.uploads = [client.bidirectional() + 4 * stream for stream in range(BURST)]
        for stream in client.uploads:
            client.send(stream, head("/hang", "POST"))
    for stream in client.uploads:
        client.send(stream, frame(0, b"x"))
        client.transmit()
    return BURST


@over_http2
async def challenges_2(client, number):
    await client.send(frames.frame(frames.PING, payload=os.urandom(8)) * 20)
    return 20


@over_http3
def challenges_3(client, number):
    quic = client._quic
    ping = type(quic)._write_ping_frame

    def write(builder, uids=(), comment=""):
        for _ in range(20):
            builder.start_frame(QuicFrameType.PATH_CHALLENGE, capacity=9).push_bytes(os.urandom(8))
        ping(quic, builder, list(uids), comment)
    quic._write_ping_frame = write
    quic.send_ping(number)
    return 20


@over_http2
async def nothing_2(client, number):
    return None


@over_http3
def nothing_3(client, number):
    return None


# Connections without an offence.
NOTHING = {"h2": nothing_2, "h3": nothing_3}


async def datagrams_2(port, until):
    """A connection over TCP whose first bytes are no TLS: there is nothing smaller."""
    count = 0
    while time.monotonic() < until:
        client = Client(port)
        try:
            await client.open()
            await asyncio.get_running_loop().sock_sendall(client.socket, os.urandom(20))
        except OSError:
            await asyncio.sleep(0.01)
        client.close()
        count += 1
        if count % 20 == 0:
            await asyncio.sleep(PAUSE)
    return count, 0


async def datagrams_3(port, until):
    sending, count = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
    while time.monotonic() < until:
        for _ in range(100):
            sending.sendto(os.urandom(random.randrange(40)), ("127.0.0.1", port))
        count += 100
        await asyncio.sleep(PAUSE)
    sending.close()
    return count, 0


OFFENCES = {
    "resets": ("requests that are reset", resets_2, resets_3),
    "priorities": ("`PRIORITY_UPDATE` for streams that are never opened", priorities_2, priorities_3),
    "bombs": (f"heads with {REFERENCES:,} references to a long field", bombs_2, bombs_3),
    "slow": ("bytes of uploads that come one by one", slow_2, slow_3),
    "challenges": ("`PATH_CHALLENGE`; over HTTP/2 PING", challenges_2, challenges_3),
    "datagrams": ("datagrams of at most 40 bytes; over TCP connections with 20 bytes", datagrams_2, datagrams_3),
}


def hang():
    """An upstream that never responds, in a thread."""
    listening = socket.create_server(("127.0.0.1", free_port()), backlog=1000)
    kept = []

    def accept():
        while True:
            kept.append(listening.accept()[0])
            del kept[:-200]
    threading.Thread(target=accept, daemon=True).start()
    return listening.getsockname()[1]


class Others:
    """Requests of other clients at a fixed rate."""

    def __init__(self, server, protocol, seconds):
        self.load = bench(server.port, None, "/", seconds, f"--{protocol}", 1, "-c", 4, "--rate", RATE, warmup="500ms")

    def p99(self):
        """Milliseconds, and the number of failures."""
        found = report(self.load)
        failed = failures(found)
        latency = f"{found['latency_us']['total']['p99'] / 1000:.1f}" if found["operations"] else "none"
        return f"{latency}, {failed} failed" if failed else latency


def spend(server, run, seconds):
    """Processor time of offences and connections, and their numbers."""
    before = server.exact_cpu()
    offences, connections = asyncio.run(run(server.port, time.monotonic() + seconds))
    return server.exact_cpu() - before, offences, connections


def measure(name, protocol, run, seconds):
    """A row of the table."""
    with tempfile.TemporaryDirectory(prefix="offences-") as folder:
        with Brisk(ROUTES, folder, server=SERVER, access='format = "text"\nfile = "/dev/null"', hang=hang()) as server:
            spent, _, connections = spend(server, NOTHING[protocol], seconds)
            connecting, before = spent / max(1, connections), server.exact_cpu()
            idle = Others(server, protocol, seconds).p99()
            serving = server.exact_cpu() - before
            others, memory = Others(server, protocol, seconds), server.resident()
            # Their warm-up.
            time.sleep(0.5)
            spent, offences, connections = spend(server, run, seconds)
            during, grown = others.p99(), server.resident("VmHWM") - memory
    # Below 0 if connections cost more than the offences: too few offences before a cut.
    each = (spent - connections * connecting - serving) / max(1, offences) * 1e6
    return [OFFENCES[name][0], f"HTTP/{protocol[1]}", f"{offences:,}", f"{connections:,}", f"{each:.1f}", mebibytes(grown), idle,
            during]


OPTIONS = [("--offence", [], "restriction to this offence", {"choices": OFFENCES}), ("--seconds", 5, "duration of each offence")]


def run(arguments):
    programs.require(BRISK)
    rows = []
    for name in arguments.offence or OFFENCES:
        for protocol, offence in zip(("h2", "h3"), OFFENCES[name][1:]):
            show(f"{name} {protocol}")
            rows.append(measure(name, protocol, offence, arguments.seconds))
    show()
    head = ["offence", "protocol", "offences", "connections", "µs each", "MiB more", "others idle, p99 ms", "meanwhile"]
    return page("offences", seconds=arguments.seconds, rate=RATE, rows=table(head, rows, left=2))
