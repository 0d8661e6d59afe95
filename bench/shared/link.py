"""Two network namespaces with a link between them, by the program brisk-link (crates/base/link)."""
import os
import subprocess
import sys
import time

from .programs import LINK

CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
# Bytes that wait for a direction at most: what 10 Mbit/s carry in 200 ms.
QUEUE = 250_000


class Link:
    """A link with this round trip and rate (bits per second) in both directions, from `with` to the end of it. `faults` are
    added to each direction, for example loss=1%,reorder=1%."""

    def __init__(self, round_trip_ms, rate, queue=QUEUE, faults=""):
        self.half = f"delay={round_trip_ms / 2}ms,rate={rate},queue={queue},{faults}"

    def __enter__(self):
        command = [LINK, "--to-client", self.half, "--to-server", self.half]
        before = (["unshare", "--user", "--map-root-user", "--"] if os.getuid() else [])
        self.helper = subprocess.Popen([*before, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
        words = self.helper.stdout.readline().split()
        if len(words) != 2:
            sys.exit(f"this machine allows no network namespaces or TUN devices: {self.helper.stderr.read().strip()}")
        self.ends = dict(zip(("client", "server"), words))
        # Or the kernel would remember from one connection how large the window of the next may be.
        for end in self.ends:
            subprocess.run(self.at(end, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save"), check=True)
        return self

    def __exit__(self, *_):
        self.helper.kill()
        self.helper.wait()

    def advance(self, packets):
        """Sends so many packets in both directions, each of which may be lost like others."""
        send = ("import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM)\n"
                "for _ in range(int(sys.argv[2])): s.sendto(b'', (sys.argv[1], 9))")
        for end, address in (("client", SERVER), ("server", CLIENT)):
            subprocess.run(self.at(end, sys.executable, "-c", send, address, packets), check=True)
        time.sleep(0.2)

    def at(self, end, *command):
        """The command that runs this one at an end, `client` or `server`."""
        users = [f"--user=/proc/{self.helper.pid}/ns/user", "--preserve-credentials"] if os.getuid() else []
        return ["nsenter", *users, f"--net=/proc/{self.helper.pid}/fd/{self.ends[end]}", "--", *map(str, command)]

    def client(self, *command):
        return self.at("client", *command)

    def server(self, *command):
        return self.at("server", *command)
