"""An upstream over HTTP/2 without TLS that closes a connection with many resets, as servers do since CVE-2023-44487."""
import asyncio
import logging

from . import frames

# Resets that a connection may receive.
RESETS = 100
# Pieces of a response, their bytes, and the seconds between them.
PIECES, PIECE, PAUSE = 60, 100, 0.1
PREFACE = 24
FIRST_WINDOW = 65535


class Multiplexed:
    """A connection. Each of its streams is a download that takes some seconds."""

    def __init__(self, counts, transport):
        self.counts, self.transport, self.resets = counts, transport, 0
        self.window, self.initial, self.windows, self.tasks = FIRST_WINDOW, FIRST_WINDOW, {}, {}

    def take(self, kind, flags, stream, payload):
        if kind == frames.SETTINGS and not flags & frames.ACK:
            for at in range(0, len(payload), 6):
                if int.from_bytes(payload[at:at + 2], "big") == frames.INITIAL_WINDOW:
                    self.initial = int.from_bytes(payload[at + 2:at + 6], "big")
            self.transport.write(frames.frame(frames.SETTINGS, frames.ACK))
        elif kind == frames.PING and not flags & frames.ACK:
            self.transport.write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.WINDOW_UPDATE and not stream:
            self.window += int.from_bytes(payload, "big")
        elif kind == frames.WINDOW_UPDATE:
            self.windows[stream] = self.windows.get(stream, self.initial) + int.from_bytes(payload, "big")
        elif kind == frames.HEADERS and stream not in self.tasks:
            self.counts["requests"] += 1
            self.windows[stream] = self.initial
            self.tasks[stream] = asyncio.ensure_future(self.respond(stream))
        elif kind == frames.RST_STREAM:
            self.reset(stream)

    def reset(self, stream):
        self.tasks[stream].cancel()
        self.resets += 1
        self.counts["resets"] += 1
        if self.resets == RESETS:
            self.counts["ended"] += 1
            last = max(self.tasks).to_bytes(4, "big")
            self.transport.write(frames.frame(frames.GOAWAY, 0, 0, last
                                              + frames.ERRORS.index("ENHANCE_YOUR_CALM").to_bytes(4, "big")))
            self.transport.close()

    async def respond(self, stream):
        self.transport.write(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, b"\x88"))
        for number in range(PIECES):
            await asyncio.sleep(PAUSE)
            while min(self.window, self.windows[stream]) < PIECE:
                await asyncio.sleep(PAUSE)
            self.window, self.windows[stream] = self.window - PIECE, self.windows[stream] - PIECE
            self.transport.write(frames.frame(frames.DATA, frames.END_STREAM if number == PIECES - 1 else 0, stream,
                                              b"x" * PIECE))


async def serve(port):
    """Serves on this port of the calling process: the server, and the counts of all connections."""
    counts = dict.fromkeys(("connections", "requests", "resets", "ended"), 0)
    # Connections that the server resets are no news.
    logging.getLogger("asyncio").setLevel(logging.ERROR)

    async def connected(reader, writer):
        counts["connections"] += 1
        writer.write(frames.frame(frames.SETTINGS))
        connection, received = Multiplexed(counts, writer), bytearray()
        try:
            await reader.readexactly(PREFACE)
            while data := await reader.read(1 << 16):
                received += data
                for frame in frames.take(received):
                    connection.take(*frame)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for task in connection.tasks.values():
                task.cancel()
            writer.close()
    return await asyncio.start_server(connected, "127.0.0.1", port, backlog=4096), counts
