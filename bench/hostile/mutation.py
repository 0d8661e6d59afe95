"""Mutations of valid exchanges, drawn from a seeded generator."""

TOKENS = [b"\r\n", b"\n", b"\0", b"\r\n\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n",
          b"\r\nContent-Length: 18446744073709551616\r\n",
          b"\r\nContent-Length: 5\r\n", b"\r\nTransfer-Encoding: chunked\r\n",
          b"\r\nUpgrade: websocket\r\nConnection: upgrade\r\n",
          b"\r\nExpect: 100-continue\r\n", b"\r\nRange: bytes=0-0,1-1,-1\r\n",
          b"\r\nAccept-Encoding: zstd;q=1, br;q=0.5, gzip\r\n", b"%00%2f..%2f", b"\xff" * 16, b"&wait=1e308", b"=" * 100]


def mutate(choice, data, seeds, framed=None):
    """Another form of `data`. `framed` as for `split`; `seeds` are parts of splices."""
    if framed and choice.random() < 0.5:
        return mutate_frames(choice, split(data, framed))
    at, length = choice.randint(0, len(data)), choice.choice((1, 2, 4, 16, 64, 512))
    kind = choice.randrange(7)
    if kind == 0 and data:
        flipped = bytearray(data)
        for _ in range(choice.randint(1, 4)):
            flipped[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
        return bytes(flipped)
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at:at + length] * choice.choice((2, 3, 50)) + data[at + length:]
    if kind == 3:
        return data[:at] + data[at + length:]
    if kind == 4:
        other = choice.choice(seeds)
        return data[:at] + other[choice.randint(0, len(other)):]
    if kind == 5:
        size = choice.randint(1, 4)
        value = choice.choice((0, 1, 0x7F, 0x80, 0xFF, 0x4000, 0xFFFF, 1 << 24, (1 << 31) - 1, (1 << 32) - 1))
        return data[:at] + (value & (1 << 8 * size) - 1).to_bytes(size, "big") + data[at + size:]
    return data[:at] + choice.choice(TOKENS) + data[at:]


def split(data, framed):
    """The frames of `data`; `framed` gives the length of the frame at the beginning of some bytes. The rest is the last."""
    pieces = []
    while data:
        length = framed(data) or len(data)
        pieces.append(data[:length])
        data = data[length:]
    return pieces


def mutate_frames(choice, pieces):
    """Whole frames repeated, removed or exchanged, and fields of a frame's head changed."""
    at, kind = choice.randrange(len(pieces)) if pieces else 0, choice.randrange(4)
    if not pieces:
        return b""
    if kind == 0:
        pieces[at:at] = [pieces[at]] * choice.choice((1, 2, 40))
    elif kind == 1:
        del pieces[at]
    elif kind == 2:
        other = choice.randrange(len(pieces))
        pieces[at], pieces[other] = pieces[other], pieces[at]
    else:
        head = bytearray(pieces[at])
        head[choice.randrange(min(9, len(head)))] = choice.choice((0, 1, 2, 3, 4, 5, 8, 9, choice.randrange(256)))
        pieces[at] = bytes(head)
    return b"".join(pieces)


def http2_frame(data):
    return 9 + int.from_bytes(data[:3], "big") if len(data) >= 9 else None


def key_frame(data):
    return 8 + int.from_bytes(data[2:4], "big") if len(data) >= 8 else None


def tls_record(data):
    return 5 + int.from_bytes(data[3:5], "big") if len(data) >= 5 else None
