"""The same as urgent.py over HTTP/3, by aioquic: with the same arguments and the same output. Priorities are those of RFC
9218."""
import asyncio
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(os.environ.get("CACHE", Path.home() / ".cache/brisk")) / "aioquic"))
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

# The windows of urgent.py.
STREAM_WINDOW, WINDOW = 6 << 20, 15 << 20


class Load(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.h3, self.end = H3Connection(self._quic), asyncio.get_running_loop().create_future()

    def begin(self, name, pictures, picture, style, share):
        self.name, self.share, self.pictures, self.style = name, share, pictures * picture, style
        self.missing, self.open = {}, set()
        self.urgent = self.asked = self.done = None
        self.arrived = self.before = 0
        self.begun = time.monotonic()
        for number in range(pictures):
            self.get(f"/{1 + 2 * number}.png", "u=5, i", picture)
        if share == 0:
            self.ask()
        self.transmit()

    def get(self, path, urgency, size):
        stream = self._quic.get_next_available_stream_id()
        fields = {":method": "GET", ":scheme": "https", ":authority": self.name, ":path": path, "priority": urgency}
        self.h3.send_headers(stream, [(name.encode(), value.encode()) for name, value in fields.items()], end_stream=True)
        self.missing[stream] = size
        self.open.add(stream)
        return stream

    def ask(self):
        self.asked = time.monotonic()
        self.urgent = self.get("/style.css", "u=0", self.style)

    def quic_event_received(self, event):
        if isinstance(event, (StreamReset, ConnectionTerminated)) and not self.end.done():
            self.end.set_exception(ConnectionError(str(event)))
        for event in self.h3.handle_event(event):
            if not isinstance(event, (DataReceived, HeadersReceived)):
                continue
            size = len(event.data) if isinstance(event, DataReceived) else 0
            self.missing[event.stream_id] -= size
            if event.stream_id != self.urgent:
                self.arrived += size
                self.before += size if self.asked and not self.done else 0
            if self.asked is None and self.arrived >= self.share * self.pictures:
                self.ask()
            if event.stream_ended:
                self.open.discard(event.stream_id)
                if event.stream_id == self.urgent:
                    self.done = time.monotonic()
                if not self.open and not self.end.done():
                    self.end.set_result(time.monotonic())


async def main(address, port, name, ca, pictures, picture, style, share):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, cafile=ca, server_name=name,
                                      max_data=WINDOW, max_stream_data=STREAM_WINDOW)
    async with connect(address, int(port), configuration=configuration, create_protocol=Load) as load:
        load.begin(name, int(pictures), int(picture), int(style), float(share))
        end = await asyncio.wait_for(load.end, 60)
    if any(load.missing.values()):
        sys.exit(f"urgent_h3.py: responses of a wrong length: {load.missing}")
    print(json.dumps({"urgent": (load.done - load.asked) * 1e3, "total": (end - load.begun) * 1e3, "before": load.before}))


asyncio.run(main(*sys.argv[1:]))
