"""Sends mutated input to every listener of a running brisk and of a key server.

Seeds are the corpora in fuzz/seeds and valid exchanges. Each input depends only on the seed of the run, the listener and its
number. After each batch, a valid request to every listener must succeed, both processes must live, no log may mention a panic,
and memory and descriptors must be within their limits. Otherwise the inputs of the batch are saved.
"""
import hashlib
import os
import random
import re
import socket
import ssl
import struct
import sys
import tempfile
import time
from pathlib import Path

from hostile import attacks, frames
from hostile.client import NAME, SOURCES, context
from hostile.mutation import http2_frame, key_frame, mutate, split, tls_record
from hostile.upstream import Counting
from shared import programs
from shared.certificates import openssl
from shared.gateway import Brisk, certificates, route, upstream
from shared.processes import Process, free_port
from shared.programs import BENCH, BRISK, ROOT

NEEDS, PAGE = "strangers", None
LISTENERS = ["http", "http1", "http2", "tls", "beacon", "admin", "dashboard", "keyserver", "keyserver-admin", "keyserver-tls"]
OPTIONS = [("--seed", 1, "seed of all mutations"), ("--seconds", 60.0, "duration"),
           ("--listener", [], "restriction to this listener", {"choices": LISTENERS}),
           ("--first", 0, "number of the first input of each listener"), ("--memory", 512, "most MiB of memory of a process"),
           ("--descriptors", 1000, "most descriptors of a process"),
           ("--failures", "live-fuzz-failures", "folder for failing inputs", {"type": Path})]
SEEDS = ROOT / "fuzz/seeds"
BATCH = 32
# Seconds for a valid request, and for a response to a mutated input.
VALID, MUTATED = 10, 0.02
LARGEST = 1 << 16

SERVER = """
http = ["127.0.0.1:$http"]
[server.timeouts]
head = "2s"
body = "2s"
write = "2s"
idle = "5s"
"""
DASHBOARD = """
[dashboard]
listen = "127.0.0.1:$dashboard"
"""
DOCUMENT = "<!doctype html><head><title>x</title></head><body><p>x"
ROUTES = (route("/", f'respond = {{ body = "{DOCUMENT}", content_type = "text/html" }}') + route("/file/", 'static = "$files"') +
          route("/up", 'upstream = "up"') + route("/upload", 'upstream = "up"', "buffer_request = true", 'body_size = "1MiB"') +
          upstream("up", '"http://127.0.0.1:$upstream"'))


class KeyServer(Process):
    """The key server of bench/peers, and the certificate of its gateway."""

    def __init__(self, log):
        port, self.admin, cores = free_port(), free_port(), f"0-{os.cpu_count() - 1}"
        super().__init__([BENCH / "peers/run", "keyserver", port, f"admin={self.admin}"], log, port,
                         env={**os.environ, "KEYSERVER_CORE": cores})
        self.gateway = certificates().parent / f"keyserver-{port}/fleet/gateways/gateway-1"


def fault_of_process(name, process, arguments):
    """The violated condition, or None."""
    if process.process.poll() is not None:
        return f"{name} ended with {process.process.returncode}"
    if "panicked" in process.log():
        return f"{name} panicked"
    if (memory := process.resident("VmHWM") >> 20) > arguments.memory:
        return f"{name} had {memory} MiB of memory, more than {arguments.memory}"
    try:
        descriptors = sum(1 for _ in process.descriptors())
    except OSError:
        return f"{name} is ending"
    if descriptors > arguments.descriptors:
        return f"{name} has {descriptors} descriptors, more than {arguments.descriptors}"
    return None


def connect(port, seconds):
    """A connection from the next loopback address, so that no limit by client address decides."""
    return socket.create_connection(("127.0.0.1", port), seconds, (next(SOURCES), 0))


def received(connection, enough):
    """Bytes until `enough(bytes)`, or until the end of the connection."""
    data = b""
    while not enough(data):
        piece = connection.recv(1 << 16)
        if not piece:
            break
        data += piece
    return data


class Listener:
    """A listener: its seeds, and a valid exchange. With `tls`, both are inside TLS, and with `raw` only
    the exchange. `start` precedes both and is not mutated."""

    def __init__(self, port, seeds, request, accepts, tls=None, start=b"", framed=None, raw=False):
        self.port, self.seeds, self.request, self.accepts = port, [seed for seed in seeds if seed], request, accepts
        self.tls, self.start, self.framed, self.raw = tls, start, framed, raw

    def open(self, seconds):
        connection = connect(self.port, seconds)
        return self.tls.wrap_socket(connection, server_hostname=NAME) if self.tls else connection

    def valid(self):
        """The fault of a valid exchange, or None."""
        try:
            with self.open(VALID) as connection:
                connection.sendall(self.start + self.request)
                data = received(connection, self.accepts)
        except OSError as error:
            return f"a valid request failed: {type(error).__name__}: {error}"
        return None if self.accepts(data) else f"a valid request got {data[:200]!r}"

    def mutated(self, choice):
        """An input: the start and mutations of a seed, and the places of its division into writes."""
        data = choice.choice(self.seeds)
        for _ in range(choice.randint(1, 6)):
            data = mutate(choice, data, self.seeds, self.framed)[:LARGEST]
        start = b"" if self.raw or choice.random() < 0.05 else self.start
        whole = start + data
        return whole, sorted(choice.randint(0, len(whole)) for _ in range(choice.choice((0, 0, 1, 3))))


def corpus(*names):
    return [file.read_bytes() for name in names for file in sorted((SEEDS / name).iterdir())]


def lines(*parts):
    return "\r\n".join(parts).encode()


def has_status(*statuses):
    expected = tuple(f"HTTP/1.1 {status} ".encode() for status in statuses)
    return lambda data: data.startswith(expected)


def requests(*paths):
    """Valid requests over HTTP/1.1, with and without bodies."""
    return [lines(f"GET {path} HTTP/1.1", f"Host: {NAME}", "Accept-Encoding: br, gzip", "", "") for path in paths] + [
        lines("POST /up HTTP/1.1", f"Host: {NAME}", "Transfer-Encoding: chunked", "", "4", "data", "0", "X-Own: 1", "", ""),
        lines("POST /upload HTTP/1.1", f"Host: {NAME}", "Content-Length: 4", "Expect: 100-continue", "", "data"),
        lines("GET / HTTP/1.1", f"Host: {NAME}", "", "GET /up HTTP/1.1", f"Host: {NAME}", "", "")]


def exchanges():
    """Valid requests over HTTP/2, after the preface."""
    upload = frames.head(3, NAME, "/upload", "POST", end=False) + frames.frame(frames.DATA, frames.END_STREAM, 3, b"data")
    opened = frames.frame(frames.SETTINGS, frames.ACK) + frames.frame(frames.PING, 0, 0, b"8 bytes.")
    return [opened + frames.head(1, NAME, "/") + upload + frames.head(5, NAME, "/up/big") + frames.window(1 << 20)
            + frames.reset(5),
            frames.head(1, NAME, "/file/", headers=[("range", "bytes=0-9"), ("cookie", "a=b"), ("priority", "u=1, i")]) +
            frames.frame(frames.PRIORITY, 0, 7, b"\0\0\0\1\x10") + frames.frame(frames.GOAWAY, 0, 0, b"\0" * 8)]


def has_head(data):
    """A response to an HTTP/2 request has begun with status 200."""
    return any(kind == frames.HEADERS and frames.status(payload) == 200 for kind, _, _, payload in frames.take(bytearray(data)))


def hellos(protocol, most):
    """A ClientHello, alone and before the records that follow it."""
    made = context(protocol)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.maximum_version = most
    hello = attacks.hello(made)
    return [hello, hello + b"\x14\x03\x03\0\1\1" + b"\x17\x03\x03\0\x45" + b"x" * 69, hello + b"\x15\x03\x03\0\2\1\0"]


def signing(keys):
    """The listener of a key server with one key."""
    tls = context("brisk-keys/1")
    tls.load_cert_chain(f"{keys.gateway}.pem", f"{keys.gateway}.key")
    hello = key_message(1, 0, struct.pack(">HHH", 1, 256, 32))
    message = b" " * 64 + b"TLS 1.3, server CertificateVerify\0" + b"x" * 32
    # The SHA-256 of a public key names it.
    public = openssl(certificates(), "pkey", "-in", "ecdsa.key", "-pubout", "-outform", "DER").stdout
    sign = key_message(2, 0, hashlib.sha256(public).digest())
    sign += key_message(3, 1, struct.pack(">IHI", 0, 0x0403, 5_000_000) + message)
    others = key_message(6, 7, b"ping") + key_message(5, 1, b"") + key_message(4, 2, struct.pack(">II", 0, 1000) + b"x" * 256)
    signed = lambda data: any(piece[0] == 0x83 for piece in split(data, key_frame))
    return Listener(keys.port, [sign, sign + others, *corpus("key_frames")], sign, signed, tls, hello, key_frame)


def key_message(kind, number, body):
    return struct.pack(">BBHI", kind, 0, len(body), number) + body


def listeners(ports, server):
    """All listeners by name."""
    h1, h2 = context("http/1.1"), context("h2")
    records = [*hellos("h2", ssl.TLSVersion.TLSv1_3), *hellos("http/1.1", ssl.TLSVersion.TLSv1_2), *corpus("client_hello")]
    # The seeds end their lines with LF alone, and have hosts that no listener serves.
    heads = [re.sub(rb"\r?\n", b"\r\n", re.sub(rb"(?m)^Host: .*$", f"Host: {NAME}".encode(), head)) for head in corpus("request")]
    admin = requests("/metrics", "/healthz", "/readyz", "/certificates", "/connections", "/tickets", "/profile?seconds=0")
    dashboard = requests("/", "/api/history", "/api/connections", "/api/visitors", "/api/certificates", "/login") + heads
    own = b"id=0123456789abcdef0123456789abcdef" + (SEEDS / "beacon/own").read_bytes()[1:]
    posted = [lines("POST /.brisk/beacon HTTP/1.1", f"Host: {NAME}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "",
                    "") +
              body for body in [own, *corpus("beacon")]
              for kind in ("application/x-www-form-urlencoded", "application/reports+json")]
    page, health = requests("/")[0], lines("GET /healthz HTTP/1.1", "Host: localhost", "", "")
    served = has_status(200)
    found = {
        "http": Listener(ports["http"], requests("/", "/.well-known/acme-challenge/x") + heads, page,
                         has_status(301, 302, 307, 308)),
        "http1": Listener(ports["https"], requests("/", "/file/", "/up/big") + heads, page, served, h1),
        "http2": Listener(ports["https"], exchanges() + corpus("http2", "http2_frame"), frames.head(1, NAME, "/"), has_head, h2,
                          frames.preface(window=1 << 20), http2_frame),
        "tls": Listener(ports["https"], records, page, served, h1, framed=tls_record, raw=True),
        "beacon": Listener(ports["https"], posted, posted[0], has_status(204), h1),
        "admin": Listener(ports["admin"], admin + heads, health, served),
        "dashboard": Listener(ports["dashboard"], dashboard, lines("GET / HTTP/1.1", "Host: localhost", "", ""), served),
        "keyserver": signing(server),
        "keyserver-admin": Listener(server.admin, admin + heads, health, served),
    }
    keys = found["keyserver"]
    found["keyserver-tls"] = Listener(keys.port, records, keys.request, keys.accepts, keys.tls, keys.start, tls_record, True)
    return found


def deliver(listener, data, places):
    """Sends an input in pieces, reads the beginning of the response, and closes."""
    try:
        with connect(listener.port, VALID) if listener.raw else listener.open(VALID) as connection:
            connection.settimeout(MUTATED)
            before = 0
            for place in [*places, len(data)]:
                connection.sendall(data[before:place])
                before = place
            connection.recv(1 << 16)
    except OSError:
        # Refused input: its connection may end at any time.
        pass


def batch(arguments, name, listener, first):
    """The inputs of a batch by number."""
    for number in range(first, first + BATCH):
        choice = random.Random(f"{arguments.seed} {name} {number}")
        yield number, *listener.mutated(choice)


def save(arguments, name, inputs, fault):
    """Writes the inputs of a failed batch, and ends."""
    folder = arguments.failures / f"{name}-{arguments.seed}-{inputs[0][0]}"
    folder.mkdir(parents=True, exist_ok=True)
    for number, data, _ in inputs:
        (folder / str(number)).write_bytes(data)
    sys.exit(f"\nlive-fuzz: after {name} {inputs[0][0]} to {inputs[-1][0]}: {fault}\nThe inputs are in {folder}. Again: "
             f"bench/measure live-fuzz --seed {arguments.seed} --listener {name} --first {inputs[0][0]}")


def fault_of(arguments, found, processes):
    for name, process in processes.items():
        if fault := fault_of_process(name, process, arguments):
            return fault
    return next((f"{name}: {fault}" for name, listener in found.items() if (fault := listener.valid())), None)


def attack(arguments, found, processes):
    """Batches for all chosen listeners in turn until the time is over. Counts of inputs by listener."""
    if fault := fault_of(arguments, found, processes):
        sys.exit(f"live-fuzz: before the first input: {fault}")
    chosen = arguments.listener or list(found)
    counts, first, until = dict.fromkeys(chosen, 0), arguments.first, time.monotonic() + arguments.seconds
    while time.monotonic() < until:
        for name in chosen:
            inputs = list(batch(arguments, name, found[name], first))
            for _, data, places in inputs:
                deliver(found[name], data, places)
            counts[name] += BATCH
            if fault := fault_of(arguments, found, processes):
                save(arguments, name, inputs, fault)
        first += BATCH
    return counts


def run(arguments):
    programs.require(BRISK)
    ports = {name: free_port() for name in ("http", "dashboard")}
    with tempfile.TemporaryDirectory() as folder, Counting() as app:
        keys = KeyServer(Path(folder) / "keyserver.log")
        gateway = Brisk(ROUTES, Path(folder) / "gateway", None, access='format = "json"\nfile = "$folder/access.log"',
                        server=SERVER, sections=DASHBOARD, host="visits = true", workers=2, name=f'{NAME}", "localhost',
                        upstream=app.port, **ports)
        with keys, gateway:
            found = listeners({**ports, "https": gateway.port, "admin": gateway.admin}, keys)
            processes = {"gateway": gateway, "keyserver": keys}
            before = {name: process.resident() for name, process in processes.items()}
            counts = attack(arguments, found, processes)
            text = [f"  {name}: {before[name] >> 20} MiB before, at most {process.resident('VmHWM') >> 20} MiB"
                    for name, process in processes.items()]
    counted = [f"  {name}: {count:,}" for name, count in counts.items()]
    head = f"seed {arguments.seed}, {arguments.seconds} s, {sum(counts.values()):,} inputs, no fault"
    return "\n".join([head, *counted, *text]) + "\n"
