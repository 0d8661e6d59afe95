"""Thousands of slow clients, resets and floods, from one process that needs little processor time.

Slow clients are sockets and timers: their data is encrypted in advance, and received data is never decrypted. A client whose
connection the server has closed reconnects immediately. Writes its counters to standard output as a line of JSON every two
seconds, and ends with SIGTERM or with the script that started it.
"""
import asyncio
import itertools
import json
import select
import sys
import time
from pathlib import Path

from . import attacks, frames
from .client import NAME, Client, Http2, ends_with_its_parent
from .servers import Helper

# Downloads and uploads that a connection of HTTP/2 carries; half of them come over HTTP/1.1, one for each connection.
STREAMS = 4
# Seconds between two turns of a slow client, and how often the turns of some of them are due.
TURN, TICK = 2.0, 0.04
# Bytes that readers take in a turn.
READS = (400, 8)
# Seconds after which readers come again, from the least to the most, so that they do not do it in step. brisk cuts them
# after 30 s without room in the socket, but the end of the connection is behind what they have not read.
HOLD = (24, 42)
# An upload drips for this many turns at most.
DRIPS = 60
# Seconds after which what comes to a dripping client is no longer part of its handshake.
SETTLED = 5
OPENING_AT_ONCE = 6
# Seconds between two of each: a client that resets streams until it is cut, one that sends PINGs until it is cut, a bare
# hello, a client that asks and is gone.
PACES = {"resets": 0.5, "pings": 1.0, "hellos": 0.05, "vanished": 0.05}


class Slow:
    """A kind of slow client: `wanted` connections of it at all times."""

    def __init__(self, crowd, wanted):
        self.crowd, self.wanted, self.members = crowd, wanted, {}
        self.turns = [set() for _ in range(round(TURN / TICK))]
        self.opened = self.cut = self.finished = self.failed = 0
        self.places = itertools.cycle(range(len(self.turns)))
        self.opening = asyncio.Semaphore(OPENING_AT_ONCE)

    def begin(self):
        for _ in range(self.wanted):
            self.crowd.start(self.keep_one())

    async def keep_one(self):
        """Opens one, and another when it is over."""
        while True:
            ended = asyncio.get_running_loop().create_future()
            async with self.opening:
                try:
                    member = await self.open()
                except (OSError, asyncio.TimeoutError, ValueError):
                    self.failed += 1
                    await asyncio.sleep(0.5)
                    continue
            self.opened += 1
            await self.live(member, ended)

    async def live(self, member, ended):
        member.ended, member.began, member.place = ended, time.monotonic(), next(self.places)
        descriptor = member.socket.fileno()
        self.members[descriptor] = member
        self.turns[member.place].add(descriptor)
        self.crowd.watch(descriptor, self)
        await ended
        self.turns[member.place].discard(descriptor)
        del self.members[descriptor]
        self.crowd.forget(descriptor)
        member.reset()

    def turn(self, place):
        for descriptor in list(self.turns[place]):
            member = self.members.get(descriptor)
            if member and not member.ended.done():
                try:
                    self.step(member)
                except BlockingIOError:
                    pass
                except OSError:
                    self.end(member, "cut")

    def end(self, member, how):
        if not member.ended.done():
            setattr(self, how, getattr(self, how) + 1)
            member.ended.set_result(how)

    def event(self, descriptor, events):
        member = self.members.get(descriptor)
        if member and events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
            self.end(member, "cut")
        elif member:
            self.readable(member)

    def readable(self, member):
        pass


class Readers(Slow):
    """Clients that ask for 1 MiB, over one stream or four, and take a few bytes at a time."""
    EVENTS = select.EPOLLRDHUP

    def __init__(self, crowd, wanted, protocol):
        super().__init__(crowd, wanted)
        self.protocol, self.kinds = protocol, itertools.cycle(itertools.product(READS, ("/file/1m", "/big/slow")))

    async def open(self):
        size, path = next(self.kinds)
        if self.protocol == "h2":
            member = await Http2.start(self.crowd.port, 2048, window=frames.LARGEST_WINDOW, open_window=0x70000000)
            await member.send(b"".join(frames.head(2 * number + 1, NAME, path) for number in range(STREAMS)))
        else:
            member = await Client.connect(self.crowd.port, receive_buffer=2048)
            await member.send(attacks.get(path))
        member.detach()
        member.size = size
        return member

    def step(self, member):
        if not member.socket.recv(member.size) or time.monotonic() - member.began > self.hold(member):
            self.end(member, "finished")

    def hold(self, member):
        return HOLD[0] + (HOLD[1] - HOLD[0]) * member.place / len(self.turns)


class Drippers(Slow):
    """Clients that send an upload of 100 kB byte by byte."""
    EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET

    def __init__(self, crowd, wanted, protocol):
        super().__init__(crowd, wanted)
        self.protocol = protocol

    async def open(self):
        if self.protocol == "h2":
            member = await Http2.start(self.crowd.port, 4096)
            numbers = range(1, 2 * STREAMS, 2)
            fields = [("content-length", "100000")]
            await member.send(b"".join(frames.head(number, NAME, "/upload/slow", "POST", fields, end=False)
                                       for number in numbers))
            drip = b"".join(frames.frame(frames.DATA, 0, number, b"x") for number in numbers)
        else:
            member = await Client.connect(self.crowd.port, receive_buffer=4096)
            await member.send(attacks.post("/upload/slow", 100000))
            drip = b"x"
        member.drips = [member.sealed(drip) for _ in range(DRIPS)]
        member.drips.reverse()
        member.detach()
        return member

    def step(self, member):
        if member.drips:
            member.socket.send(member.drips.pop())
        else:
            self.end(member, "finished")

    def readable(self, member):
        try:
            received = member.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received or time.monotonic() - member.began > SETTLED:
            self.end(member, "cut")


class Crowd:
    """Kinds of slow clients against one port, and actions that are repeated beside them."""

    def __init__(self, port, paces=None):
        self.port, self.paces, self.tasks, self.epoll, self.watched = port, paces or {}, set(), select.epoll(), {}
        self.kinds, self.floods = {}, dict.fromkeys(self.paces, 0) | {"failed": 0}

    def start(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def watch(self, descriptor, kind):
        self.watched[descriptor] = kind
        self.epoll.register(descriptor, kind.EVENTS)

    def forget(self, descriptor):
        self.epoll.unregister(descriptor)
        del self.watched[descriptor]

    def events(self):
        for descriptor, events in self.epoll.poll(0, 256):
            if descriptor in self.watched:
                self.watched[descriptor].event(descriptor, events)

    async def run(self):
        asyncio.get_running_loop().add_reader(self.epoll.fileno(), self.events)
        for kind in self.kinds.values():
            kind.begin()
        for name in self.paces:
            self.start(self.again_and_again(name))
        self.start(self.report())
        for place in itertools.cycle(range(round(TURN / TICK))):
            for kind in self.kinds.values():
                kind.turn(place)
            await asyncio.sleep(TICK)

    async def again_and_again(self, name):
        while True:
            self.start(self.once(name))
            await asyncio.sleep(self.paces[name])

    async def once(self, name):
        try:
            await self.act(name)
            self.floods[name] += 1
        except (OSError, asyncio.TimeoutError):
            self.floods["failed"] += 1

    async def act(self, name):
        """The action of this name, once."""
        raise NotImplementedError

    async def report(self):
        while True:
            line = {name: {"now": len(kind.members), "wanted": kind.wanted, "opened": kind.opened, "cut": kind.cut,
                           "finished": kind.finished, "failed": kind.failed} for name, kind in self.kinds.items()}
            print(json.dumps({"slow": line, "floods": self.floods}), flush=True)
            await asyncio.sleep(2)


class Strangers(Crowd):
    """The crowd of the measurement soak."""

    def __init__(self, port, readers, drippers):
        super().__init__(port, PACES)
        self.kinds = {
            "readers h1": Readers(self, readers // 2, "http/1.1"), "readers h2": Readers(self, readers // 2 // STREAMS, "h2"),
            "drippers h1": Drippers(self, drippers // 2, "http/1.1"),
            "drippers h2": Drippers(self, drippers // 2 // STREAMS, "h2")}
        self.floods |= {"streams reset": 0, "pings sent": 0, "cut": 0}
        self.hello = attacks.hello()

    async def act(self, name):
        if name == "resets":
            streams, _, end = await attacks.paced_resets(self.port, "/hang/reset", 2)
            self.floods["streams reset"] += streams
            self.floods["cut"] += end is not None
        elif name == "pings":
            pings, _, end = await attacks.flood(self.port, attacks.PING_FLOOD, 2)
            self.floods["pings sent"] += pings
            self.floods["cut"] += end is not None
        elif name == "hellos":
            await attacks.bare_hello(self.port, self.hello)
        else:
            await attacks.ask_and_vanish(self.port, "/hang/vanished")


class Attackers(Helper):
    """The crowd of a module on `cores`, from `with` to the end of it."""

    def __init__(self, module, arguments, cores, folder, gives_way):
        self.file = Path(folder) / module
        self.output = open(self.file, "w")
        super().__init__(module, *arguments, cores=cores, gives_way=gives_way, output=self.output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        super().__exit__()
        self.output.close()

    def counts(self):
        """Counts that they last wrote, or None."""
        lines = [line for line in self.file.read_text().splitlines() if line.endswith("}")]
        return json.loads(lines[-1]) if lines else None


async def act_alone(make):
    """Runs the crowd from `make` until the script that started it ends."""
    await ends_with_its_parent()
    await make().run()


if __name__ == "__main__":
    asyncio.run(act_alone(lambda: Strangers(*map(int, sys.argv[1:4]))))
