"""A client with operations that no library permits: it resets connections, reads raw bytes, or reads nothing."""
import asyncio
import itertools
import os
import socket
import ssl
import struct
import sys
import time

from shared.programs import NAME

from . import frames


def context(protocol):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.set_alpn_protocols([protocol])
    return made


CONTEXTS = {protocol: context(protocol) for protocol in ("h2", "http/1.1")}
# Clients come from these addresses in turn, so that no limit by address and no lack of ports decides.
SOURCES = itertools.cycle(f"127.0.{third}.{fourth}" for third in range(2, 12) for fourth in range(1, 250))


def come_from(addresses):
    """Sets the addresses of later clients."""
    global SOURCES
    SOURCES = itertools.cycle(addresses)


class Client:
    """A TLS connection to 127.0.0.1. `over` says how it ended: "closed" with close_notify, "cut" without, or "reset"."""

    def __init__(self, port):
        self.port, self.over = port, None
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.socket = self.tls = None

    @classmethod
    async def connect(cls, port, protocol="http/1.1", receive_buffer=None, seconds=10):
        """`receive_buffer`: bytes that the kernel takes for a client that reads nothing, doubled."""
        client = cls(port)
        try:
            await asyncio.wait_for(client.handshake(protocol, receive_buffer), seconds)
        except BaseException:
            client.close()
            raise
        return client

    async def open(self, receive_buffer=None):
        """TCP alone."""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if receive_buffer:
            # Segments as on the internet: the server's kernel sizes its buffer by them, 64 KiB on loopback.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.bind((next(SOURCES), 0))
        await asyncio.get_running_loop().sock_connect(self.socket, ("127.0.0.1", self.port))

    async def handshake(self, protocol, receive_buffer):
        loop = asyncio.get_running_loop()
        await self.open(receive_buffer)
        self.tls = CONTEXTS[protocol].wrap_bio(self.incoming, self.outgoing, server_hostname=NAME)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.flush()
                received = await loop.sock_recv(self.socket, 16384)
                if not received:
                    raise ConnectionResetError("closed in the handshake") from None
                self.incoming.write(received)
        await self.flush()

    async def flush(self):
        if self.outgoing.pending:
            await asyncio.get_running_loop().sock_sendall(self.socket, self.outgoing.read())

    async def send(self, data):
        """Sends what the server still takes."""
        if self.over:
            return
        try:
            self.tls.write(data)
            await self.flush()
        except (ConnectionError, ssl.SSLError):
            self.over = self.over or "reset"

    def sealed(self, data):
        """A record with `data`, to be sent later by `send_raw`, in the order of the calls."""
        self.tls.write(data)
        return self.outgoing.read()

    async def receive(self, seconds):
        """What came; b"" if nothing did in that time or the connection is over."""
        until = time.monotonic() + seconds
        while not self.over:
            try:
                data = self.tls.read(1 << 16)
                if data:
                    return data
                self.over = "closed"
            except ssl.SSLWantReadError:
                try:
                    received = await self.receive_raw(until - time.monotonic())
                except asyncio.TimeoutError:
                    return b""
                except OSError:
                    self.over = "reset"
                    break
                self.incoming.write(received) if received else self.incoming.write_eof()
            except ssl.SSLError:
                self.over = "cut"
        return b""

    async def receive_raw(self, seconds):
        try:
            return self.socket.recv(1 << 16)
        except BlockingIOError:
            if seconds <= 0:
                raise asyncio.TimeoutError from None
            return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 1 << 16), seconds)

    def close(self):
        if self.socket:
            self.socket.close()

    def detach(self):
        """The socket alone, without TLS, which takes much more memory."""
        self.tls = self.incoming = self.outgoing = None
        return self.socket

    def reset(self):
        """Ends the connection by RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Http2(Client):
    """The same with HTTP/2: `frames` came and were not looked at yet; `goaway` is the error that the server named."""

    def __init__(self, port):
        super().__init__(port)
        self.received, self.goaway, self.settings = bytearray(), None, {}

    @classmethod
    async def start(cls, port, receive_buffer=None, open_window=0, **settings):
        """Connects and waits for the server's settings. `open_window`: more for the connection, beyond 64 KiB."""
        client = await cls.connect(port, "h2", receive_buffer)
        await client.send(frames.preface(**settings) + (frames.window(open_window) if open_window else b""))
        until = time.monotonic() + 5
        while not client.settings and not client.over and time.monotonic() < until:
            await client.read(0.5)
        if not client.settings:
            client.close()
            raise ConnectionError(f"no HTTP/2 settings; the connection is {client.over or 'silent'}")
        await client.send(frames.frame(frames.SETTINGS, frames.ACK))
        return client

    async def read(self, seconds):
        """The frames that came within this time, at once when there are some."""
        self.received += await self.receive(seconds)
        came = frames.take(self.received)
        for kind, flags, _, payload in came:
            if kind == frames.GOAWAY:
                self.goaway = frames.error(payload)
            elif kind == frames.SETTINGS and not flags & frames.ACK:
                for at in range(0, len(payload), 6):
                    self.settings[int.from_bytes(payload[at:at + 2], "big")] = int.from_bytes(payload[at + 2:at + 6], "big")
                self.settings.setdefault(0, 0)
        return came

    def ended(self):
        """How the server ended the connection, or None while it has not."""
        return f"GOAWAY {self.goaway}" if self.goaway else self.over


def ends_with_its_parent():
    """Ends this process with its standard input. The last argument may be "gives-way": it runs while no other wants its core."""
    if "gives-way" in sys.argv:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # Nothing is written to it, so it can be read at its end only.
    asyncio.get_running_loop().add_reader(sys.stdin, os._exit, 0)
