"""HTTP/2 frames and header blocks (RFC 9113, RFC 7541) that no available client sends."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CANCEL = 8
ERRORS = ["NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
          "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"]
# Settings: size of the table for header compression, streams at one time, window of a stream.
TABLE_SIZE, MAX_STREAMS, INITIAL_WINDOW = 1, 3, 4
LARGEST_WINDOW = 0x7FFFFFFF
# Bytes of a frame that every peer takes.
LARGEST_FRAME = 16384


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def preface(**settings):
    """What a client says first. `window` is that of each stream, `table` the size for header compression."""
    values = {"window": INITIAL_WINDOW, "table": TABLE_SIZE}
    payload = b"".join(values[name].to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in settings.items())
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, payload=payload)


def window(increment, stream=0):
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def reset(stream, code=CANCEL):
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def text(value):
    """A string literal without Huffman coding."""
    length = len(value)
    if length < 127:
        return bytes([length]) + value.encode()
    # RFC 7541 section 5.1.
    prefix, length = bytearray([127]), length - 127
    while length >= 128:
        prefix.append(length % 128 + 128)
        length //= 128
    return bytes(prefix) + bytes([length]) + value.encode()


def head(stream, authority, path, method="GET", headers=(), end=True, fields=b""):
    """A request. Its fields are literals that enter no table, so that any number of them can be written beforehand. `fields`:
    encoded fields that follow."""
    known = {"GET": b"\x82", "POST": b"\x83"}
    block = known[method] + b"\x87\x04" + text(path) + b"\x01" + text(authority)
    block += b"".join(b"\0" + text(name) + text(value) for name, value in headers) + fields
    first, *others = [block[at:at + LARGEST_FRAME] for at in range(0, len(block), LARGEST_FRAME)]
    pieces = [(HEADERS, END_STREAM if end else 0, first), *((CONTINUATION, 0, piece) for piece in others)]
    last = len(pieces) - 1
    return b"".join(frame(kind, flags | (END_HEADERS if number == last else 0), stream, piece)
                    for number, (kind, flags, piece) in enumerate(pieces))


def data(stream, payload, end=False):
    """A body, or a part of it."""
    pieces = [payload[at:at + LARGEST_FRAME] for at in range(0, len(payload), LARGEST_FRAME)]
    return b"".join(frame(DATA, END_STREAM if end and number == len(pieces) - 1 else 0, stream, piece)
                    for number, piece in enumerate(pieces))


def take(received):
    """Takes the whole frames off a bytearray: kind, flags, stream, payload."""
    frames, at = [], 0
    while len(received) - at >= 9:
        end = at + 9 + int.from_bytes(received[at:at + 3], "big")
        if end > len(received):
            break
        stream = int.from_bytes(received[at + 5:at + 9], "big") & LARGEST_WINDOW
        frames.append((received[at + 3], received[at + 4], stream, bytes(received[at + 9:end])))
        at = end
    del received[:at]
    return frames


def status(block):
    """The status of an answer whose client allows no table. All servers at hand put it first."""
    while block and block[0] & 0xE0 == 0x20:
        block = block[1:]
    if not block:
        return None
    # RFC 7541 appendix A.
    static = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
    if block[0] in static:
        return static[block[0]]
    # A literal with the name of :status, in one of three kinds.
    if block[0] in (0x08, 0x18, 0x48):
        length, code = block[1] & 0x7F, block[2:2 + (block[1] & 0x7F)]
        return huffman_digits(code) if block[1] & 0x80 else int(code[:length])
    return None


def huffman_digits(code):
    """Three digits (RFC 7541 appendix B): five bits for 0 to 2, six for the others."""
    bits = "".join(f"{byte:08b}" for byte in code)
    number = 0
    for _ in range(3):
        five, bits = int(bits[:5], 2), bits[5:]
        if five >= 3:
            five, bits = 2 * five + int(bits[0]) - 22, bits[1:]
        number = 10 * number + five
    return number


def error(payload):
    """The name of the error code that ends a payload of RST_STREAM or stands in one of GOAWAY."""
    code = int.from_bytes(payload[-4:] if len(payload) == 4 else payload[4:8], "big")
    return ERRORS[code] if code < len(ERRORS) else f"error {code}"
