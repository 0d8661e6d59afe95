"""Thousands of slow clients, and floods beside them, from one process that needs little processor time.

Slow clients are sockets and timers: their data is encrypted in advance, and received data is never decrypted. A client whose
connection has ended reconnects. `hostile.holders` has the kinds of clients, and runs a crowd.
"""
import asyncio
import itertools
import json
import select
import time
from pathlib import Path

from .servers import Helper

# Seconds between two turns of a slow client, and how often the turns of some of them are due.
TURN, TICK = 2.0, 0.04
# Seconds after which clients come again, from the least to the most, so that they do not do it in step. brisk cuts readers
# after 30 s without room in the socket, but the end of the connection is behind what they have not read.
HOLD = (24, 42)
OPENING_AT_ONCE = 6


class Slow:
    """A kind of slow client: `wanted` connections of it at all times, each on at most `streams` streams. `ask` opens a connection
    and sends everything that can be sent at once; `step` is its turn. A client keeps the connection for `hold_for` seconds,
    by its place among the others, and comes again after `again` seconds."""
    EVENTS = select.EPOLLRDHUP

    def __init__(self, crowd, wanted, streams, hold_for=HOLD, again=0.5):
        self.crowd, self.wanted, self.streams, self.members = crowd, wanted, streams, {}
        self.hold_for, self.again = hold_for, again
        self.turns = [set() for _ in range(round(TURN / TICK))]
        self.opened = self.cut = self.finished = self.failed = 0
        self.places, self.numbers = itertools.cycle(range(len(self.turns))), itertools.count()
        self.opening = asyncio.Semaphore(OPENING_AT_ONCE)

    async def ask(self):
        raise NotImplementedError

    def step(self, member):
        least, most = self.hold_for
        if time.monotonic() - member.began > least + (most - least) * member.place / len(self.turns):
            self.end(member, "finished")

    def readable(self, member):
        pass

    async def keep_one(self):
        """Opens one, and another when it is over."""
        while True:
            async with self.opening:
                try:
                    if self.opened + self.failed >= self.wanted:
                        await asyncio.sleep(self.again)
                    member = await self.ask()
                    member.detach()
                except (OSError, asyncio.TimeoutError, ValueError):
                    self.failed += 1
                    await asyncio.sleep(0.5)
                    continue
            self.opened += 1
            await self.live(member)

    async def live(self, member):
        member.ended, member.began = asyncio.get_running_loop().create_future(), time.monotonic()
        member.place, descriptor = next(self.places), member.socket.fileno()
        self.members[descriptor] = member
        self.turns[member.place].add(descriptor)
        self.crowd.watch(descriptor, self)
        await member.ended
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


class Crowd:
    """Kinds of slow clients against one port, and floods that are repeated beside them. `kinds` and `floods` are set after the
    start: the former are `Slow`, the latter pairs of seconds and a coroutine. `counts` has the number of floods by name, and what
    they count themselves."""

    def __init__(self, port):
        self.port, self.tasks, self.epoll, self.watched = port, set(), select.epoll(), {}
        self.kinds, self.floods, self.counts = {}, {}, {}

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

    def count(self, name, number=1):
        self.counts[name] = self.counts.get(name, 0) + number

    async def run(self):
        asyncio.get_running_loop().add_reader(self.epoll.fileno(), self.events)
        for kind in self.kinds.values():
            for _ in range(kind.wanted):
                self.start(kind.keep_one())
        for name, (pace, act) in self.floods.items():
            self.start(self.again_and_again(name, pace, act))
        self.start(self.report())
        for place in itertools.cycle(range(round(TURN / TICK))):
            for kind in self.kinds.values():
                kind.turn(place)
            await asyncio.sleep(TICK)

    async def again_and_again(self, name, pace, act):
        async def once():
            try:
                await act(self)
                self.count(name)
            except (OSError, asyncio.TimeoutError):
                self.count("failed")
        while True:
            self.start(once())
            await asyncio.sleep(pace)

    async def report(self):
        """Writes all counts to standard output every two seconds, as a line of JSON."""
        while True:
            line = {name: {"now": len(kind.members), "wanted": kind.wanted, "opened": kind.opened, "cut": kind.cut,
                           "finished": kind.finished, "failed": kind.failed} for name, kind in self.kinds.items()}
            print(json.dumps({"slow": line, "floods": self.counts}), flush=True)
            await asyncio.sleep(2)


class Attackers(Helper):
    """A crowd with the settings of `holders.main` on `cores`, from `with` to the end of it."""

    def __init__(self, settings, cores, folder, gives_way):
        self.file = Path(folder) / "attackers"
        self.output = open(self.file, "w")
        super().__init__("holders", json.dumps(settings), cores=cores, gives_way=gives_way, output=self.output)

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
