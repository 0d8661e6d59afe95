"""Compares the cost of attacks for brisk, nginx, HAProxy and Envoy.

Each server runs with its usual hardening (bench/hostile/servers) and one worker in front of the same upstream. The same code
attacks each of them, with a new process for each attack. Takes about eleven minutes.
"""
import asyncio
import sys
import time

from hostile import attacks, multiplexed, servers
from hostile.client import Client
from hostile.upstream import BIG, Counting
from shared import programs
from shared.figures import mebibytes, number, page, show, table
from shared.processes import free_port
from shared.programs import TITLES

NEEDS = "strangers"

RESETTING, GONE, SILENT, UPLOADING, FLOODING, INTERIM = 5, 50, 20, 10, 3, 8
# Seconds that a request takes which streams that stand still get in the way of: more than they may (5 s).
WAITING = 9
DRIPPING = 25
# Uploads that come slowly, their length, and the bytes that come at once; they are below the length that all servers permit.
TRICKLING, LENGTH, FIRST = 200, 1_000_000, 64_000
# Clients that reset often, their rounds of 16 streams, and others with a download from the same upstream.
OFTEN, ROUNDS, OTHERS = 3, 6, 5
DOWNLOAD = multiplexed.PIECES * multiplexed.PIECE


async def alive(server):
    """A new client is served."""
    client = await Client.connect(server.port)
    await client.send(attacks.get("/alive"))
    answer = await client.receive(5)
    client.close()
    return answer.startswith(b"HTTP/1.1 200")


async def settled(count, wanted, seconds):
    """Waits until `count()` is `wanted`, or the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if count() >= wanted:
            return
        await asyncio.sleep(0.02)


async def resets(server, upstream):
    """1. Paced rapid reset, by a client that stays and by one that comes again."""
    before = upstream.stats()["connections"]
    cpu = server.cpu()
    opened, seconds, end = await attacks.paced_resets(server.port, "/hang/once", RESETTING)
    await asyncio.sleep(0.5)
    cpu = server.cpu() - cpu
    counts = upstream.stats()
    reached, connections = counts["paths"].get("/hang/once", {}).get("requests", 0), counts["connections"] - before
    again, came = await attacks.resets_again_and_again(server.port, "/hang/again", RESETTING)
    await asyncio.sleep(0.5)
    reached_again = upstream.path("/hang/again")["requests"]
    return [f"after {seconds:.2f} s: {end}" if end else f"not in {seconds:.0f} s", number(opened), number(reached),
            number(connections), f"{cpu * 1000:,.0f}", f"{number(again)} on {number(came)} connections", number(reached_again)]


async def floods(server, upstream):
    """2. Frames without effect, by kind."""
    row = []
    for piece, begin in attacks.FLOODS.values():
        cpu = server.cpu()
        sent, seconds, end = await attacks.flood(server.port, piece, FLOODING, begin=begin)
        cut = f"after {seconds:.2f} s: {end}" if end else f"not in {FLOODING} s"
        row.append(f"{cut}; {number(sent)} / {(server.cpu() - cpu) * 1000:,.0f}")
    return [*row, "yes" if await alive(server) else "no"]


async def vanished(server, upstream):
    """3. Clients that ask and reset their connection."""
    await alive(server)
    await asyncio.sleep(0.3)
    before = server.sockets()
    open_before = upstream.stats()["open_connections"]
    clients = await attacks.asking(server.port, "/hang/gone", GONE)
    await settled(lambda: upstream.path("/hang/gone")["open"], GONE, 5)
    asked = upstream.path("/hang/gone")["open"]
    for client in clients:
        client.reset()
    row = [number(asked)]
    for wait in (0.2, 0.8, 2, 2):
        await asyncio.sleep(wait)
        held = upstream.stats()["open_connections"] - open_before
        row.append(f"{max(0, server.sockets() - before - held)} / {upstream.path('/hang/gone')['open']}")
    return row


async def unread(server, upstream):
    """4. Clients that ask on all streams and read nothing."""
    await alive(server)
    await asyncio.sleep(0.5)
    before, disk, sockets = server.shared(), server.on_disk(), server.sockets()
    upstream_before = upstream.stats()["open_connections"]
    clients = [await attacks.reading_nothing(server.port, "/big/unread")]
    most_one = await grown(server, before, 2)
    clients += [await attacks.reading_nothing(server.port, "/big/unread") for _ in range(SILENT - 1)]
    most = await grown(server, before, 3)
    row = [number(clients[0].streams), mebibytes(most_one), mebibytes(most / SILENT),
           mebibytes((server.on_disk() - disk) / SILENT)]
    for wait in (0, 7, 10):
        await asyncio.sleep(wait)
        held = max(0, upstream.stats()["open_connections"] - upstream_before)
        row.append(f"{max(0, server.sockets() - sockets - held)} / {held}")
    served = await alive(server)
    for client in clients:
        client.close()
    return [*row, "yes" if served else "no"]


async def grown(server, before, seconds):
    """The most memory above `before` in this time."""
    most, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        most = max(most, server.shared() - before)
        await asyncio.sleep(0.1)
    return most


# Bytes of the answers on streams 1 and 3 of `stalled`.
EXPECTED = {1: BIG, 3: len("late")}


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
    kinds = ["/big/stalled", "/watch/idle"]
    found = await asyncio.gather(*(attacks.stalled_beside(server.port, kind, f"/after/{WAITING}", WAITING + 6)
                                   for kind in kinds))
    row = []
    for streams in found:
        answered = streams.ends.get(3, ("",))[0] == "complete" and streams.statuses.get(3) == 200
        row += [fate(streams, 1), "answered" if answered else f"**{fate(streams, 3)}**"]
    return row


async def dripping(server, upstream):
    """12. Uploads that come byte by byte."""
    paths = {"http/1.1": "/upload/h1", "h2": "/upload/h2"}
    if server.name == "brisk":
        paths["buffered"] = "/upload/buffered/h1"
    uploads = {kind: [asyncio.create_task(attacks.drip(server.port, path, "h2" if kind == "h2" else "http/1.1", DRIPPING))
                      for _ in range(UPLOADING)] for kind, path in paths.items()}
    results = {kind: await asyncio.gather(*tasks) for kind, tasks in uploads.items()}
    counts = upstream.stats()["paths"]
    rows = []
    for kind, path in paths.items():
        seen = counts.get(path, {"requests": 0, "most_open": 0, "longest_s": 0, "open": 0})
        status, end, seconds = results[kind][0]
        held = f"{number(seen['most_open'])} for {seen['longest_s']:.1f} s" if seen["requests"] else "none"
        if seen["open"]:
            held = f"{number(seen['open'])} for all {DRIPPING} s"
        got = f"{status} after {seconds:.1f} s" if status else f"{end} after {seconds:.1f} s" if end else "goes on"
        rows.append((kind, held, got))
    return rows


async def trickling(server, upstream):
    """14. Many uploads that the server buffers, whose rest comes slowly."""
    await alive(server)
    await asyncio.sleep(0.5)
    path = "/upload/buffered/slow" if server.name == "brisk" else "/upload/slow"
    before, disk = server.shared(), server.on_disk()
    uploads = [asyncio.create_task(attacks.trickle(server.port, path, FIRST, LENGTH, DRIPPING)) for _ in range(TRICKLING)]
    most = await grown(server, before, 4)
    row = [mebibytes(most), mebibytes(server.on_disk() - disk), number(upstream.path(path)["open"])]
    status, taken = await attacks.trickle(server.port, path, LENGTH, LENGTH, 10)
    row.append(f"{status} after {taken:.1f} s")
    found = await asyncio.gather(*uploads)
    ends = {}
    for end, taken in found:
        ends.setdefault(end, []).append(taken)
    row.append(", ".join(f"{len(times)} times {end} after {sum(times) / len(times):.1f} s" if end else f"{len(times)} go on"
                         for end, times in ends.items()))
    return row


async def compressed(server, upstream):
    """15. Slow readers of compressed responses."""
    await alive(server)
    await asyncio.sleep(0.5)
    before, sockets = server.shared(), server.sockets()
    upstream_before = upstream.stats()["open_connections"]
    clients = [await attacks.reading_slowly(server.port, "/text/slow")]
    opening = [asyncio.create_task(attacks.open_windows(clients, DRIPPING))]
    most_one = await grown(server, before, 2)
    others = [await attacks.reading_slowly(server.port, "/text/slow") for _ in range(SILENT - 1)]
    opening.append(asyncio.create_task(attacks.open_windows(others, DRIPPING)))
    most = await grown(server, before, 3)
    row = [number(clients[0].streams), mebibytes(most_one), mebibytes(most / SILENT)]
    visitor = await Client.connect(server.port)
    await visitor.send(attacks.get("/text/visit").replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip\r\n\r\n"))
    answer = (await visitor.receive(5)).lower()
    visitor.close()
    is_compressed = b"content-encoding: gzip" in answer
    row.append("no response" if b" 200 " not in answer else "compressed" if is_compressed else "not compressed")
    for wait in (0, 7, 10):
        await asyncio.sleep(wait)
        held = max(0, upstream.stats()["open_connections"] - upstream_before)
        row.append(f"{max(0, server.sockets() - sockets - held)} / {held}")
    for task in opening:
        task.cancel()
    for client in clients + others:
        client.close()
    return row


async def shared(server, upstream):
    """16. Resets of some clients before an upstream that ends connections with many of them."""
    listening, counts = await multiplexed.serve(server.multiplexed)
    downloads = [asyncio.create_task(attacks.download(server.port, "/shared/download", 30)) for _ in range(OTHERS)]
    await asyncio.sleep(1)
    found = await asyncio.gather(*(attacks.resetting_often(server.port, "/shared/reset", ROUNDS) for _ in range(OFTEN)))
    got = await asyncio.gather(*downloads)
    listening.close()
    whole = sum(end == "complete" and size == DOWNLOAD for size, end in got)
    ends = {end for size, end in got if size != DOWNLOAD or end != "complete"}
    broken = "" if whole == OTHERS else f": {', '.join(sorted(ends))}"
    return [number(sum(streams for streams, _ in found)), number(sum(bool(end) for _, end in found)), number(counts["requests"]),
            number(counts["resets"]), f"{number(counts['connections'])} / {number(counts['ended'])}",
            f"{whole} of {OTHERS}{broken}"]


async def interim(server, upstream):
    """13. An upstream that sends 103 without end."""
    await alive(server)
    row, before = [], server.shared()
    for protocol in ("http/1.1", "h2"):
        row.append(await attacks.endless_interim(server.port, f"/interim/{protocol}", protocol, INTERIM))
    await asyncio.sleep(0.5)
    held = sum(upstream.path(f"/interim/{protocol}")["open"] for protocol in ("http/1.1", "h2"))
    return [*row, number(held), mebibytes(max(0, server.shared() - before)), "yes" if await alive(server) else "no"]


ATTACKS = {
    "resets": (resets, "Rapid reset at a measured pace",
               f"One HTTP/2 client asks on {attacks.BURST} streams, waits {attacks.PAUSE * 1000:.0f} ms, so that the server has "
               f"accepted them, resets them, and again, for {RESETTING} s (CVE-2023-44487). The upstream never answers. Then the "
               f"same for {RESETTING} s by a client that connects again whenever it was cut.",
               ["connection cut", "streams opened", "requests at the upstream", "upstream connections made",
                "processor time, ms", "coming again: streams", "requests at the upstream"]),
    "floods": (floods, "Frames without effect",
               f"One HTTP/2 client sends the same frame for {FLOODING} s, in bursts of 100: PING, SETTINGS, unrequested "
               "acknowledgements of SETTINGS, and DATA that consists of padding (CVE-2019-9512, CVE-2019-9515, CVE-2019-9518). "
               "Each cell: the time and manner of the cut; frames sent / processor time in ms.",
               [*attacks.FLOODS, "others are served"]),
    "vanished": (vanished, "Clients that ask and are gone",
                 f"{GONE} HTTP/1.1 clients ask for something that takes the upstream long and reset their connections. Places: "
                 "sockets of clients that the server still holds; work: requests that the upstream still works on.",
                 ["requests at the upstream", "places / work after 0.2 s", "after 1 s", "after 3 s", "after 5 s"]),
    "unread": (unread, "Answers that nobody reads",
               f"HTTP/2 clients ask for 1 MiB from the upstream on {attacks.STREAMS} streams, or as many as the server allows, "
               f"with windows as large as can be, and read nothing: one, and then {SILENT}. Memory is the proportional set size "
               "of the server's processes.",
               ["streams", "MiB for the first client", f"MiB for each of {SILENT}", "MiB on disk for each",
                "connections of clients / to the upstream after 3 s", "after 10 s", "after 20 s", "others are served"]),
    "stalled": (stalled, "Streams that stand still",
                "On one HTTP/2 connection a bystander waits for an answer that takes the upstream "
                f"{WAITING} s. Another stream gets an answer for which the client opens no window; on a second connection it is "
                "a stream in both directions, as a gRPC watch, on which nothing is said. Timeouts are 5 s.",
                ["download that is paused", "its bystander", "idle stream in both directions", "its bystander"]),
    "dripping": (dripping, "Uploads that come byte by byte",
                 f"{UPLOADING} uploads of 100 kB over HTTP/1.1 and {UPLOADING} over HTTP/2, of which a byte comes every 0.3 s, "
                 f"for {DRIPPING} s.",
                 ["HTTP/1.1: upstream held", "the client got", "HTTP/2: upstream held", "the client got"]),
    "trickling": (trickling, "Buffered uploads that come slowly",
                  f"{TRICKLING} uploads of 1 MB over HTTP/1.1 to a path where the server buffers requests, if it can (brisk: "
                  f"`buffer_request`). {FIRST // 1000} kB of each come at once, and then 1 kB a second for {DRIPPING} s. In the "
                  f"meantime "
                  "another client sends an upload without a pause.",
                  ["MiB more", "MiB on disk", "uploads at the upstream", "upload of the other client", "the slow clients got"]),
    "compressed": (compressed, "Slow readers of compressed responses",
                   f"HTTP/2 clients ask for 1 MiB of text, compressed with gzip, on {attacks.STREAMS} streams, or as many as the "
                   f"server "
                   f"allows. They permit 100 bytes of each response, and 200 more each second: one client, and then {SILENT}. "
                   "In the meantime another client asks for such a text.",
                   ["streams", "MiB for the first client", f"MiB for each of {SILENT}", "the other client's response",
                    "connections of clients / to the upstream after 3 s", "after 10 s", "after 20 s"]),
    "shared": (shared, "Resets that reach an upstream connection of others",
               f"An upstream over HTTP/2 ends a connection with {multiplexed.RESETS} resets. {OFTEN} clients open {ROUNDS} times "
               f"{attacks.BURST} streams each and reset them when their responses have begun. {OTHERS} others have a download of "
               f"{multiplexed.PIECES * multiplexed.PAUSE:.0f} s from this upstream. nginx has HTTP/2 towards upstreams for gRPC "
               f"only "
               "(`grpc_pass`).",
               ["streams opened", "attackers cut", "requests at the upstream", "resets there",
                "upstream connections made / ended by the upstream", "downloads of others that were whole"]),
    "interim": (interim, "Interim responses without end",
                f"The upstream responds to one request over HTTP/1.1 and one over HTTP/2 with 103 a thousand times a second, and "
                f"never finally. Clients leave after {INTERIM} s.",
                ["HTTP/1.1: the client got", "HTTP/2: the client got", "requests at the upstream after 0.5 s", "MiB more",
                 "others are served"]),
}


OPTIONS = [("--server", [], "restriction to this server", {"choices": servers.FILES}),
           ("--attack", [], "restriction to this attack", {"choices": ATTACKS})]


async def measure(server, attack, upstream):
    try:
        return await asyncio.wait_for(ATTACKS[attack][0](server, upstream), 90)
    except (asyncio.TimeoutError, OSError) as error:
        sys.exit(f"\nstrangers: {attack} against {server.name}: {type(error).__name__}: {error}\n{server.log()[-2000:]}")


def measured(names, wanted):
    """Rows by attack and server."""
    for attack in wanted:
        for name in names:
            show(f"{attack}: {TITLES[name]}")
            port = free_port()
            with Counting() as upstream, servers.Hardened(name, UPSTREAM=upstream.port, MULTIPLEXED=port) as server:
                server.multiplexed = port
                yield (attack, name), asyncio.run(measure(server, attack, upstream))
    show()


def rows(found, names, attack):
    for name in names:
        row = found[attack, name]
        if attack != "dripping":
            yield [TITLES[name], *row]
            continue
        yield [TITLES[name], *(cell for kind, *cells in row if kind != "buffered" for cell in cells)]
        yield from ([f"{TITLES[name]}, `buffer_request`", *cells, "", ""] for kind, *cells in row if kind == "buffered")


def run(arguments):
    names, wanted = programs.chosen(arguments.server, servers.FILES), arguments.attack or ATTACKS
    found, text = dict(measured(names, wanted)), []
    for attack in wanted:
        _, title, about, columns = ATTACKS[attack]
        text += ["", f"## {title}", "", about, "", *table(["", *columns], rows(found, names, attack), left=1 + len(columns))]
    return page("strangers", servers=[f"- {TITLES[name]}: {programs.version(name)}" for name in names], attacks=text)
