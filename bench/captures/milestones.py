"""Milestones of the same connections by `brisk serve`, `brisk bench` and the packets between them.

All three run on the loopback device of a network namespace, so they have one clock. `brisk capture --join` places the records of
both programs beside the packets; this module summarises the differences.
"""
import collections
import json
import os
import signal
import statistics
import subprocess
import time

NAME = "site.test"
PORT = 8443
# Name, options of brisk bench, and connections; 1,000 in all.
RUNS = [
    ("TLS 1.3, HTTP/1.1", ["--tls", "1.3"], 400),
    ("TLS 1.3, HTTP/2", ["--tls", "1.3", "--h2", "1"], 200),
    ("TLS 1.3, resumed", ["--tls", "1.3", "--mix", "psk"], 200),
    ("TLS 1.2", ["--tls", "1.2"], 200),
]
# Connections per second: queues would be part of the differences.
RATE = 100
# Before other programs of the machine, whose time would be part of the differences. Needs root.
PRIORITY = [] if os.getuid() else ["chrt", "--rr", "10"]
MILESTONES = ["tcp-established", "client-hello", "handshake-finished", "first-request", "first-response"]
SERVE = """
server.https = ["127.0.0.1:8443"]
server.workers = 1
access_log = { format = "json", file = "FOLDER/access.log", milestones = true }
[[host]]
names = ["site.test"]
certificates = [{ chain = "FOLDER/site.test.pem", key = "FOLDER/site.test.key" }]
"""


class Namespace:
    """A network namespace with a loopback device."""

    def __enter__(self):
        user = ["--user", "--map-root-user"] if os.getuid() else []
        words = ["unshare", *user, "--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]
        self.holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise SystemExit("this machine allows no network namespaces")
        return self

    def __exit__(self, *_):
        self.holder.stdin.close()
        self.holder.wait()

    def at(self, *command):
        """The command that runs this one in the namespace."""
        process = self.holder.pid
        users = [f"--user=/proc/{process}/ns/user", "--preserve-credentials"] if os.getuid() else []
        return ["nsenter", *users, f"--net=/proc/{process}/ns/net", "--", *map(str, command)]


def wait(ready, subject):
    until = time.monotonic() + 15
    while not ready():
        if time.monotonic() > until:
            raise SystemExit(f"{subject} does not start")
        time.sleep(0.05)


def record(brisk, folder):
    """Runs the load, and returns the lines of `brisk capture --json` of each run."""
    (folder / "serve.toml").write_text(SERVE.replace("FOLDER", str(folder)))
    keys, capture, log = folder / "keys", folder / "loopback.pcap", folder / "access.log"
    with Namespace() as inside:
        serve = subprocess.Popen(inside.at(*PRIORITY, "taskset", "-c", "0", brisk, "serve", "--config", folder / "serve.toml", "--keylog"),
                                 env={**os.environ, "SSLKEYLOGFILE": str(keys)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        tcpdump = subprocess.Popen(inside.at(*PRIORITY, "tcpdump", "-Z", "root", "-i", "lo", "-U", "-s", "0", "-w", capture), stderr=subprocess.DEVNULL)
        try:
            probe = ["curl", "--silent", "--insecure", "--output", "/dev/null", f"https://127.0.0.1:{PORT}/"]
            wait(lambda: subprocess.run(inside.at(*probe)).returncode == 0, "brisk serve")
            wait(lambda: capture.exists() and capture.stat().st_size > 24, "tcpdump")
            for index, (_, options, number) in enumerate(RUNS):
                words = [*PRIORITY, "taskset", "-c", os.cpu_count() - 1, brisk, "bench", f"https://127.0.0.1:{PORT}/", "--sni", NAME, "--insecure", "-r", "1"]
                words += ["--rate", RATE, "-n", number, "--records", folder / f"bench-{index}", *options]
                subprocess.run(inside.at(*words), check=True, stdout=subprocess.DEVNULL)
            time.sleep(1)
        finally:
            for process in (tcpdump, serve):
                process.send_signal(signal.SIGINT if process is tcpdump else signal.SIGTERM)
                process.wait()
    joined = [word for index in range(len(RUNS)) for word in ("--join", folder / f"bench-{index}")]
    words = [brisk, "capture", capture, "--json", "--keylog", keys, "--join", log, *joined]
    lines = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == "connection"]


def differences(connections):
    """Microseconds between two of the three, by run, pair and milestone; and the number of connections that all three have."""
    found, complete = collections.defaultdict(list), collections.Counter()
    for connection in connections:
        after = {record["source"]: record.get("after_packets_us", {}) for record in connection.get("records", [])}
        run = next((index for index in range(len(RUNS)) if f"bench-{index}" in after), None)
        if run is None:
            continue
        bench, serve = after[f"bench-{run}"], after.get("access.log", {})
        complete[run] += all(name in bench and name in serve for name in MILESTONES)
        for name in MILESTONES:
            if name in serve:
                found[run, "serve – packets", name].append(serve[name])
            if name in bench:
                found[run, "bench – packets", name].append(bench[name])
            if name in serve and name in bench:
                found[run, "serve – bench", name].append(serve[name] - bench[name])
    return found, complete


def section(brisk, folder):
    """Markdown: the agreement of the three."""
    folder.mkdir(exist_ok=True)
    found, complete = differences(record(brisk, folder))
    total, every = sum(number for *_, number in RUNS), [abs(value) for values in found.values() for value in values]
    within = sum(value <= 1000 for value in every)
    lines = [
        "## Agreement of serve, bench and capture", "",
        f"{total:,} connections with a request each, {RATE} per second, over the loopback device: the access log of `brisk serve` "
        f"(`milestones = true`), `brisk bench --records`, and `tcpdump`{', with real-time priority' if PRIORITY else ''}, joined by `brisk capture --join` with the gateway's key log. "
        f"{sum(complete.values()):,} of {total:,} connections have all {len(MILESTONES)} milestones in all three. "
        f"{within:,} of {len(every):,} differences are within 1 ms ({within / len(every):.2%}); the largest is {max(every) / 1000:.2f} ms.", "",
        "Differences in microseconds. A program notes a milestone after its packet has passed, so its time is later, by the time in the "
        "kernel and the scheduler; the client notes its `client-hello`, `handshake-finished` and `first-request` before the packet leaves. "
        "A client of TLS 1.2 has finished when the server's Finished arrives, a gateway and the packets when the client's does.", "",
        "| connections | difference | milestone | number | median | 1 % | 99 % | largest | within 1 ms |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (run, pair, name), values in sorted(found.items(), key=lambda item: (item[0][0], item[0][1], MILESTONES.index(item[0][2]))):
        cuts = statistics.quantiles(values, n=100) if len(values) > 1 else values * 99
        near, largest = sum(abs(value) <= 1000 for value in values), max(values, key=abs)
        lines.append(f"| {RUNS[run][0]} | {pair} | {name} | {len(values)} | {statistics.median(values):.0f} | {cuts[0]:.0f} | {cuts[-1]:.0f} | "
                     f"{largest} | {near / len(values):.1%} |")
    return lines + [""]
