"""Compares the cost of attacks for brisk, nginx, HAProxy and Envoy.

Each server runs with its usual hardening (bench/hostile/servers) and one worker in front of the same upstream. The same code
attacks each of them, with a new process for each attack; the page describes the attacks. Takes about eleven minutes.
"""
import asyncio
import sys
import time

from hostile import attacks, multiplexed, servers
from hostile.frames import LARGEST_WINDOW
from hostile.upstream import BIG, Counting
from shared import programs
from shared.figures import mebibytes, number, page, show
from shared.processes import free_port
from shared.programs import TITLES

NEEDS = "strangers"
RESETTING, GONE, SILENT, UPLOADING, FLOODING, INTERIM = 5, 50, 20, 10, 3, 8
# Seconds that a request takes which streams that stand still get in the way of: more than they may (5 s).
WAITING = 9
DRIPPING = 25
# Uploads that come slowly, their length, and the bytes that come at once; they are below the length that all servers permit.
TRICKLING, LENGTH, FIRST = 200, 1_000_000, 64_000
# Clients that reset often, their rounds of 16 streams, the seconds until they reset, and others with a download from the same
# upstream.
OFTEN, ROUNDS, BEGUN, OTHERS = 3, 6, 0.05, 5
DOWNLOAD = multiplexed.PIECES * multiplexed.PIECE
# Bytes of the answers on streams 1 and 3 of `stalled`.
EXPECTED = {1: BIG, 3: len("late")}


async def alive(server):
    """A new client is served."""
    client = await attacks.asked(server.port, "/alive")
    answer = await client.receive(5)
    client.close()
    return "yes" if answer.startswith(b"HTTP/1.1 200") else "no"


class Held:
    """What a server and its upstream hold in addition to what they held before the attack."""

    def __init__(self, server, upstream):
        self.server, self.upstream = server, upstream
        self.memory, self.disk, self.sockets = server.shared(), server.on_disk(), server.sockets()
        self.connections = upstream.stats()["open_connections"]

    @classmethod
    async def before(cls, server, upstream):
        await alive(server)
        await asyncio.sleep(0.5)
        return cls(server, upstream)

    async def memory_within(self, seconds):
        """The most bytes of memory in this time."""
        most, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            most = max(most, self.server.shared() - self.memory)
            await asyncio.sleep(0.1)
        return most

    def on_disk(self):
        return self.server.on_disk() - self.disk

    async def places(self, waits, path=None):
        """Connections of clients after each of these times, and requests of the path at the upstream or its connections."""
        found = []
        for wait in waits:
            await asyncio.sleep(wait)
            to_upstream = max(0, self.upstream.stats()["open_connections"] - self.connections)
            work = self.upstream.path(path)["open"] if path else to_upstream
            found.append(f"{max(0, self.server.sockets() - self.sockets - to_upstream)} / {work}")
        return found


async def resets(server, upstream):
    """1. Paced rapid reset, by a client that stays and by one that comes again."""
    before, cpu = upstream.stats()["connections"], server.cpu()
    opened, seconds, end = await attacks.paced_resets(server.port, "/hang/once", RESETTING)
    await asyncio.sleep(0.5)
    cpu, connections = server.cpu() - cpu, upstream.stats()["connections"] - before
    reached = upstream.path("/hang/once")["requests"]
    again, came = await attacks.resets_again_and_again(server.port, "/hang/again", RESETTING)
    await asyncio.sleep(0.5)
    return [f"after {seconds:.2f} s: {end}" if end else f"not in {seconds:.0f} s", number(opened), number(reached),
            number(connections), f"{cpu * 1000:,.0f}", f"{number(again)} on {number(came)} connections",
            number(upstream.path("/hang/again")["requests"])]


async def floods(server, upstream):
    """2. Frames without effect, by kind."""
    cells = []
    for piece, begin in attacks.FLOODS.values():
        cpu = server.cpu()
        sent, seconds, end = await attacks.flood(server.port, piece, FLOODING, begin=begin)
        cut = f"after {seconds:.2f} s: {end}" if end else f"not in {FLOODING} s"
        cells.append(f"{cut}; {number(sent)} / {(server.cpu() - cpu) * 1000:,.0f}")
    return [*cells, await alive(server)]


async def vanished(server, upstream):
    """3. Clients that ask and reset their connection."""
    held = await Held.before(server, upstream)
    clients = await asyncio.gather(*(attacks.asked(server.port, "/hang/gone") for _ in range(GONE)))
    until = time.monotonic() + 5
    while (asked := upstream.path("/hang/gone")["open"]) < GONE and time.monotonic() < until:
        await asyncio.sleep(0.02)
    for client in clients:
        client.reset()
    return [number(asked), *await held.places((0.2, 0.8, 2, 2), "/hang/gone")]


async def silent(server, upstream, path, window, fields=()):
    """Clients that ask on all streams and permit `window` bytes of each, first one and then all: the clients and the cells."""
    held = await Held.before(server, upstream)
    clients = [await attacks.asking_on_all_streams(server.port, path, window, fields)]
    most_one = await held.memory_within(2)
    clients += [await attacks.asking_on_all_streams(server.port, path, window, fields) for _ in range(SILENT - 1)]
    most = await held.memory_within(3)
    return held, clients, [number(clients[0].streams), mebibytes(most_one), mebibytes(most / SILENT)]


async def unread(server, upstream):
    """4. Clients that ask on all streams and read nothing."""
    held, clients, cells = await silent(server, upstream, "/big/unread", LARGEST_WINDOW)
    cells += [mebibytes(held.on_disk() / SILENT), *await held.places((0, 7, 10)), await alive(server)]
    for client in clients:
        client.close()
    return cells


async def compressed(server, upstream):
    """15. Slow readers of compressed responses."""
    held, clients, cells = await silent(server, upstream, "/text/slow", 100, [("accept-encoding", "gzip")])
    opening = asyncio.create_task(attacks.open_windows(clients, DRIPPING))
    visitor = await attacks.Client.connect(server.port)
    await visitor.send(attacks.get("/text/visit", "Accept-Encoding: gzip"))
    answer = (await visitor.receive(5)).lower()
    visitor.close()
    is_compressed = b"content-encoding: gzip" in answer
    cells.append("no response" if b" 200 " not in answer else "compressed" if is_compressed else "not compressed")
    cells += await held.places((0, 7, 10))
    opening.cancel()
    for client in clients:
        client.close()
    return cells


def fate(streams, stream):
    end = streams.ends.get(stream)
    if end and end[0] == "complete" and streams.bytes.get(stream, 0) < EXPECTED[stream]:
        size = number(streams.bytes.get(stream, 0))
        return f"ended after {end[1]:.1f} s, short of its length ({streams.statuses.get(stream)}, {size} bytes)"
    if end:
        return f"{end[0]} after {end[1]:.1f} s"
    return f"lost: {streams.cut[0]} after {streams.cut[1]:.1f} s" if streams.cut else "still open"


async def stalled(server, upstream):
    """9. Streams that stand still, and what becomes of others on the same connection."""
    found = await asyncio.gather(*(attacks.stalled_beside(server.port, kind, f"/after/{WAITING}", WAITING + 6)
                                   for kind in ("/big/stalled", "/watch/idle")))
    cells = []
    for streams in found:
        answered = streams.ends.get(3, ("",))[0] == "complete" and streams.statuses.get(3) == 200
        cells += [fate(streams, 1), "answered" if answered else f"**{fate(streams, 3)}**"]
    return cells


async def dripping(server, upstream, paths=(("http/1.1", "/upload/h1"), ("h2", "/upload/h2"))):
    """12. Uploads that come byte by byte."""
    found = await asyncio.gather(*(attacks.drip(server.port, path, protocol, DRIPPING) for protocol, path in paths
                                   for _ in range(UPLOADING)))
    cells = []
    for (_, path), streams in zip(paths, found[::UPLOADING]):
        seen, end = upstream.path(path), streams.statuses.get(1) or streams.over()
        held = f"{number(seen['most_open'])} for {seen['longest_s']:.1f} s" if seen["requests"] else "none"
        cells += [f"{number(seen['open'])} for all {DRIPPING} s" if seen["open"] else held,
                  f"{end} after {streams.seconds():.1f} s" if end else "goes on"]
    return cells


async def dripping_buffered(server, upstream):
    return [*await dripping(server, upstream, [("http/1.1", "/upload/buffered/h1")]), "", ""]


async def trickling(server, upstream):
    """14. Many uploads that the server buffers, whose rest comes slowly."""
    def upload(first, seconds):
        return attacks.drip(server.port, path, "http/1.1", seconds, b"x" * first, LENGTH, b"x" * 500, 0.5)
    held = await Held.before(server, upstream)
    path = "/upload/buffered/slow" if server.name == "brisk" else "/upload/slow"
    uploads = [asyncio.create_task(upload(FIRST, DRIPPING)) for _ in range(TRICKLING)]
    cells = [mebibytes(await held.memory_within(4)), mebibytes(held.on_disk()), number(upstream.path(path)["open"])]
    other = await upload(LENGTH, 10)
    cells.append(f"{other.statuses.get(1) or other.over()} after {other.ends.get(1, (0, other.seconds()))[1]:.1f} s")
    ends = {}
    for streams in await asyncio.gather(*uploads):
        ends.setdefault(streams.statuses.get(1) or streams.over(), []).append((streams.ends.get(1) or streams.cut or (0, 0))[1])
    return [*cells, ", ".join(f"{len(times)} times {end} after {sum(times) / len(times):.1f} s" if end else f"{len(times)} go on"
                              for end, times in ends.items())]


async def shared(server, upstream):
    """16. Resets of some clients before an upstream that ends connections with many of them."""
    listening, counts = await multiplexed.serve(server.multiplexed)
    downloads = [asyncio.create_task(attacks.watched(server.port, "/shared/download", "h2", 30)) for _ in range(OTHERS)]
    await asyncio.sleep(1)
    found = await asyncio.gather(*(attacks.paced_resets(server.port, "/shared/reset", 30, BEGUN, ROUNDS) for _ in range(OFTEN)))
    got = [(streams.bytes.get(1, 0), streams.over() or "no end") for streams in await asyncio.gather(*downloads)]
    listening.close()
    whole, ends = got.count((DOWNLOAD, "complete")), {end for size, end in got if (size, end) != (DOWNLOAD, "complete")}
    broken = f": {', '.join(sorted(ends))}" if ends else ""
    return [number(sum(opened for opened, _, _ in found)), number(sum(bool(end) for _, _, end in found)),
            number(counts["requests"]), number(counts["resets"]), f"{number(counts['connections'])} / {number(counts['ended'])}",
            f"{whole} of {OTHERS}{broken}"]


async def interim(server, upstream):
    """13. An upstream that sends 103 without end."""
    held, cells, paths = await Held.before(server, upstream), [], {"http/1.1": "/interim/h1", "h2": "/interim/h2"}
    for protocol, path in paths.items():
        streams = await attacks.watched(server.port, path, protocol, INTERIM)
        end = streams.statuses.get(1) or streams.over()
        cells.append(f"{f'{end} after {streams.seconds():.1f} s' if end else 'goes on'}, {streams.interim:,} interim responses")
    await asyncio.sleep(0.5)
    work = sum(upstream.path(path)["open"] for path in paths.values())
    return [*cells, number(work), mebibytes(max(0, server.shared() - held.memory)), await alive(server)]


ATTACKS = {attack.__name__: attack for attack in (resets, floods, vanished, unread, stalled, dripping, dripping_buffered,
                                                  trickling, compressed, shared, interim)}
OPTIONS = [("--server", [], "restriction to this server", {"choices": servers.FILES}),
           ("--attack", [], "restriction to this attack; the tables of the others have no rows then", {"choices": ATTACKS})]


async def measure(server, attack, upstream):
    try:
        return await asyncio.wait_for(ATTACKS[attack](server, upstream), 90)
    except (asyncio.TimeoutError, OSError) as error:
        sys.exit(f"\nstrangers: {attack} against {server.name}: {type(error).__name__}: {error}\n{server.log()[-2000:]}")


def rows(attack, names):
    """A row for each server."""
    for name in names:
        is_buffered, port = attack == "dripping_buffered", free_port()
        if is_buffered and name != "brisk":
            continue
        show(f"{attack}: {TITLES[name]}")
        with Counting() as upstream, servers.Hardened(name, UPSTREAM=upstream.port, MULTIPLEXED=port) as server:
            server.multiplexed = port
            cells = asyncio.run(measure(server, attack, upstream))
        yield [TITLES[name] + (", `buffer_request`" if is_buffered else ""), *cells]


def run(arguments):
    names, wanted = programs.chosen(arguments.server, servers.FILES), arguments.attack or ATTACKS
    found = {attack: list(rows(attack, names)) if attack in wanted else [] for attack in ATTACKS}
    show()
    found["dripping"] += found.pop("dripping_buffered")
    return page("strangers", servers=[f"- {TITLES[name]}: {programs.version(name)}" for name in names], attacks=attacks,
                multiplexed=multiplexed, this=sys.modules[__name__], download=multiplexed.PIECES * multiplexed.PAUSE, **found)
