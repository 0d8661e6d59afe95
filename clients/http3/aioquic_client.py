"""Exercises a gateway over HTTP/3 with aioquic: aioquic_client.py CA-FILE HOST ADDRESS CASE. Prints one line of JSON."""

import asyncio
import itertools
import json
import os
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted, StreamReset
from aioquic.quic.packet import QuicFrameType
from aioquic.tls import Epoch

CA, HOST, ADDRESS, CASE = sys.argv[1:]
SERVER, PORT = ADDRESS.rsplit(":", 1)
# The session of the last connection.
kept = {}


class Response:
    def __init__(self):
        self.headers, self.trailers, self.body = [], [], b""
        self.data, self.end = asyncio.Event(), asyncio.get_running_loop().create_future()


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.h3, self.responses, self.handshake = H3Connection(self._quic), {}, None

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, StreamReset) and event.stream_id in self.responses:
            self.responses[event.stream_id].end.set_exception(ConnectionError(hex(event.error_code)))
        for event in self.h3.handle_event(event):
            response = self.responses.get(getattr(event, "stream_id", None))
            if response is None:
                continue
            if isinstance(event, HeadersReceived):
                (response.trailers if response.headers else response.headers).extend(event.headers)
            elif isinstance(event, DataReceived):
                response.body += event.data
            response.data.set()
            if event.stream_ended:
                response.end.set_result(response)

    def request(self, method, path, body=b"", more=(), ended=True):
        stream = self._quic.get_next_available_stream_id()
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", HOST.encode()), (b":path", path.encode())]
        response = self.responses[stream] = Response()
        self.h3.send_headers(stream, [*head, *more], end_stream=ended and not body)
        if body:
            self.h3.send_data(stream, body, end_stream=ended)
        self.transmit()
        return stream, response

    async def get(self, path):
        response = await self.request(b"GET", path)[1].end
        assert dict(response.headers)[b":status"] == b"200", response.headers
        return response


def client(early=False, **options):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, cafile=CA, server_name=HOST)
    configuration.session_ticket = kept.get("ticket")
    configuration.verify_mode = ssl.CERT_REQUIRED
    for name, value in options.items():
        setattr(configuration, name, value)
    return connect(
        SERVER, int(PORT), configuration=configuration, create_protocol=Client, wait_connected=not early,
        session_ticket_handler=lambda ticket: kept.update(ticket=ticket),
    )


def content():
    return bytes(at // 7 % 251 for at in range(1 << 20))


async def get():
    async with client() as connection:
        return {"body": (await connection.get("/aioquic")).body.decode()}


async def retry():
    async with client() as connection:
        body = (await connection.get("/aioquic")).body.decode()
        return {"body": body, "retries": connection._quic._retry_count}


async def versions():
    # A reserved version first: the server lists its own.
    async with client(original_version=0x1A2A3A4A, supported_versions=[0x1A2A3A4A, 1]) as connection:
        return {"body": (await connection.get("/aioquic")).body.decode(), "version": connection._quic._version}


async def echo():
    async with client() as connection:
        response = await connection.request(b"POST", "/aioquic", content())[1].end
        return {"same": response.body == content()}


async def trailers():
    async with client() as connection:
        response = await connection.get("/aioquic")
        return {"body": response.body.decode(), "trailer": dict(response.trailers).get(b"x-end", b"").decode()}


async def key_update():
    async with client() as connection:
        phases = []
        await connection.get("/before")
        for number in range(5):
            # RFC 9001 section 6.1: after an acknowledgement of the present keys.
            await connection.ping()
            connection.request_key_update()
            await connection.get(f"/{number}")
            phases.append(connection._quic._cryptos[Epoch.ONE_RTT].key_phase)
        return {"phases": phases}


async def ids():
    async with client() as connection:
        bodies = []
        for number in range(20):
            connection.change_connection_id()
            bodies.append((await connection.get(f"/{number}")).body.decode())
        return {"answered": len(bodies)}


async def again(early):
    async with client() as connection:
        await connection.get("/first")
        # The session arrives after the handshake.
        while "ticket" not in kept:
            await asyncio.sleep(0.01)
    async with client(early=early) as connection:
        answers = [connection.request(b"GET", f"/{number}")[1].end for number in range(40)]
        answers = await asyncio.gather(*answers)
        handshake = connection.handshake
        return {"resumed": handshake.session_resumed, "early": handshake.early_data_accepted, "answered": len(answers)}


async def resume():
    return await again(False)


async def early():
    return await again(True)


async def websocket():
    async with client() as connection:
        more = [(b"sec-websocket-version", b"13")]
        head = [(b":protocol", b"websocket")]
        stream = connection._quic.get_next_available_stream_id()
        response = connection.responses[stream] = Response()
        connection.h3.send_headers(stream, [
            (b":method", b"CONNECT"), *head, (b":scheme", b"https"), (b":authority", HOST.encode()), (b":path", b"/chat"),
            *more])
        connection.transmit()
        await response.data.wait()
        status = dict(response.headers)[b":status"].decode()
        # RFC 6455 section 5.2: a masked text message, with a mask of zeros.
        connection.h3.send_data(stream, bytes([0x81, 0x85, 0, 0, 0, 0]) + b"hello", end_stream=False)
        connection.transmit()
        while len(response.body) < 7:
            response.data.clear()
            await response.data.wait()
        return {"status": status, "message": response.body[2:].decode()}


async def flood(frame):
    """Sends 100 packets full of the frames that `frame(builder, number)` writes, and then a request."""
    async with client() as connection:
        quic, ping, numbers = connection._quic, connection._quic._write_ping_frame, itertools.count(100)

        def write(builder, uids=(), comment=""):
            for _ in range(20):
                frame(builder, next(numbers))
            ping(builder, list(uids), comment)

        await connection.get("/before")
        quic._write_ping_frame = write
        try:
            for _ in range(100):
                await connection.ping()
            return {"body": (await connection.get("/after")).body.decode()}
        except ConnectionError:
            return {"closed": quic._close_event.error_code}


async def challenges():
    def challenge(builder, _):
        builder.start_frame(QuicFrameType.PATH_CHALLENGE, capacity=9).push_bytes(os.urandom(8))

    return await flood(challenge)


async def new_ids():
    def new_id(builder, number):
        # RFC 9000 section 19.15: the ID replaces none.
        buffer = builder.start_frame(QuicFrameType.NEW_CONNECTION_ID, capacity=34)
        buffer.push_uint_var(number)
        buffer.push_uint_var(0)
        buffer.push_bytes(bytes([8]) + os.urandom(24))

    return await flood(new_id)


async def retired_ids():
    async with client() as connection:
        # One after the other, so that a busy machine needs much time for each.
        for number in range(500):
            connection.change_connection_id()
            await connection.ping()
        return {"body": (await connection.get("/after")).body.decode()}


cases = {
    "get": get, "retry": retry, "versions": versions, "echo": echo, "trailers": trailers, "key_update": key_update, "ids": ids,
    "resume": resume, "early": early, "websocket": websocket, "challenges": challenges, "new_ids": new_ids, "retired_ids": retired_ids,
}
print(json.dumps(asyncio.run(asyncio.wait_for(cases[CASE](), 170))))
