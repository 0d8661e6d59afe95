"""Requests pictures over HTTP/2, and a style sheet of the highest urgency behind them. Prints the times in ms from the request
for the style sheet to its end, and from the first request to the end of all responses.

Priorities are sent as Chromium does, by RFC 9218 (a header) and by RFC 7540 (dependencies of streams): servers follow the one or
the other.

usage: urgent.py ADDRESS PORT NAME CA PICTURES BYTES_OF_A_PICTURE BYTES_OF_THE_STYLE_SHEET SHARE
SHARE is the part of the pictures' bytes after whose arrival the style sheet is requested; 0: in one write with the pictures
"""
import json
import socket
import ssl
import sys
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS, PRIORITY = 1, 1, 4, 0x20
EXCLUSIVE = 1 << 31
# The windows of Chromium, of a stream and of a connection.
STREAM_WINDOW, WINDOW = 6 << 20, 15 << 20


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def text(value):
    return bytes([len(value)]) + value.encode()


def get(stream, name, path, urgency, parent, weight):
    """A GET request, whose fields are literals of HPACK, none of them indexed."""
    fields = b"\x82\x87\x04" + text(path) + b"\x01" + text(name) + b"\x00" + text("priority") + text(urgency)
    dependency = (EXCLUSIVE | parent).to_bytes(4, "big") + bytes([weight - 1])
    return frame(HEADERS, END_STREAM | END_HEADERS | PRIORITY, stream, dependency + fields)


def frames(stream):
    """Type, flags, stream and payload of each frame that arrives."""
    data = bytearray()
    while piece := stream.recv(1 << 16):
        data += piece
        while len(data) >= 9 and len(data) >= (end := 9 + int.from_bytes(data[:3], "big")):
            yield data[3], data[4], int.from_bytes(data[5:9], "big"), bytes(data[9:end])
            del data[:end]
    sys.exit("urgent.py: the server has closed the connection")


def main(address, port, name, ca, pictures, picture, style, share):
    pictures, picture, style = int(pictures), int(picture), int(style)
    tls = ssl.create_default_context(cafile=ca)
    tls.set_alpn_protocols(["h2"])
    plain = socket.create_connection((address, int(port)), 60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = tls.wrap_socket(plain, server_hostname=name)
    start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"\x00\x02\x00\x00\x00\x00\x00\x04"
                                                        + STREAM_WINDOW.to_bytes(4, "big"))
    stream.sendall(start + frame(WINDOW_UPDATE, 0, 0, (WINDOW - 65_535).to_bytes(4, "big")))
    # Each picture depends on the one before it, and all of them on the style sheet once it is requested.
    numbers = [1 + 2 * number for number in range(pictures)]
    low = b"".join(get(number, name, f"/{number}.png", "u=5, i", max(number - 2, 0), 110) for number in numbers)
    urgent = 1 + 2 * pictures
    style_sheet = get(urgent, name, "/style.css", "u=0", 0, 256)
    begun = time.monotonic()
    asked = begun if float(share) == 0 else None
    stream.sendall(low + (style_sheet if asked else b""))
    missing = {**dict.fromkeys(numbers, picture), urgent: style}
    open_streams, arrived, unsaid, before, done = set(missing), 0, 0, 0, None
    for kind, flags, number, payload in frames(stream):
        if kind in (RST_STREAM, GOAWAY):
            sys.exit(f"urgent.py: the server has ended stream {number}: {payload.hex()}")
        if kind in (SETTINGS, PING) and not flags & ACK:
            stream.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        if kind == DATA:
            missing[number] -= len(payload)
            unsaid += len(payload)
            if number != urgent:
                arrived += len(payload)
                before += len(payload) if asked and not done else 0
            if unsaid >= WINDOW // 4:
                stream.sendall(frame(WINDOW_UPDATE, 0, 0, unsaid.to_bytes(4, "big")))
                unsaid = 0
            if asked is None and arrived >= float(share) * pictures * picture:
                asked = time.monotonic()
                stream.sendall(style_sheet)
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            open_streams.discard(number)
            if number == urgent:
                done = time.monotonic()
            if not open_streams:
                break
    if any(missing.values()):
        sys.exit(f"urgent.py: responses of a wrong length: {missing}")
    whole = time.monotonic() - begun
    print(json.dumps({"urgent": (done - asked) * 1e3, "total": whole * 1e3, "before": before}))


main(*sys.argv[1:])
