#!/usr/bin/env python3
"""Measures the cost of private keys on a key server or in a separate process.

Three measurements alternate in each round. First, signatures per second through the protocol, with the key server on one core
and the load on the other, in comparison with `brisk speed` (AWS-LC, one by one) on that core. Second, the time of a single
operation on an idle system, in comparison with a key in the same process. Third, full handshakes per second of a gateway on
one core with its keys on a key server on the other core, in a key process, and in the gateway itself. Writes a table
(Markdown). `make keyless` calls this script.

usage: keyless [--rounds N] [--seconds S] [--server-core N] [--load-core N] [--output FILE]
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from processes import free_port, listens

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))
LOAD = os.environ.get("KEY_LOAD", str(Path(BRISK).parent / "examples/key_load"))
NAME = "bench.test"
# Operations under way: enough for full batches at any moment, as those of a few gateways under load are.
TOGETHER = {"rsa": 64, "ecdsa": 256}
ALGORITHM = {"rsa": "RSA-2048", "ecdsa": "P-256"}
SPEED = {"rsa": "rsa2048", "ecdsa": "p256"}
# Signatures with RSA-2048 a second that Cloudflare published for gokeyless on four virtual cores (c5.xlarge): 46,560 in 60 s.
GOKEYLESS = 46_560 / 60
PUBLISHED = "https://developers.cloudflare.com/ssl/keyless-ssl/reference/scaling-and-benchmarking/"

GATEWAY = """
[server]
https = ["127.0.0.1:{port}"]
workers = 1
state_dir = "{folder}/state"

[access_log]
format = "off"

[admin]
listen = "127.0.0.1:{admin}"

[keys]
{keys}

[[host]]
names = ["{name}"]
certificates = [
  {{ chain = "{certificates}/ecdsa.pem", key = "{ecdsa}" }},
  {{ chain = "{certificates}/rsa.pem", key = "{rsa}" }},
]

[[host.route]]
path = "/"
respond = {{ body = "x" }}
"""

REMOTE = """
[keyserver.main]
servers = ["127.0.0.1:{port}"]
ca = "{fleet}/ca.pem"
certificate = {{ chain = "{fleet}/gateways/gateway-1.pem", key = "{fleet}/gateways/gateway-1.key" }}
"""


class Process:
    """A brisk on one core, from `with` to the end of it."""

    def __init__(self, core, port, log, *words):
        self.core, self.port, self.log, self.words = core, port, log, words

    def __enter__(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["taskset", "-c", str(self.core), BRISK, *map(str, self.words)], stdout=log, stderr=log)
        if listens(self.process, self.port, 10):
            return self
        self.__exit__()
        sys.exit(f"keyless: brisk does not serve:\n{Path(self.log).read_text(errors='replace')}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def seconds(self):
        """Processor time so far, with that of the processes that it started."""
        return sum(processor_time(process) for process in family(self.process.pid))

    def says(self, pattern):
        line = re.search(pattern, re.sub(r"\x1b\[[0-9;]*m", "", Path(self.log).read_text(errors="replace")))
        return line.group(0) if line else "the log does not say"


def family(process):
    """A process and its descendants."""
    found = [process]
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def processor_time(process):
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Machine:
    """Certificates, the folder of a key server, and what is measured with them."""

    def __init__(self, arguments, scratch):
        self.arguments, self.scratch = arguments, Path(scratch)
        prepared = subprocess.run([HERE / "peers/prepare"], capture_output=True, text=True, check=True).stdout
        self.ca = dict(line.split("=", 1) for line in prepared.splitlines())["ca"]
        self.certificates = Path(self.ca).parent
        self.fleet = self.scratch / "fleet"
        subprocess.run([BRISK, "keyserver", "init", self.fleet], check=True, stdout=subprocess.DEVNULL)
        self.keys = free_port()
        for kind in ALGORITHM:
            (self.fleet / "keys" / f"{kind}.key").write_bytes((self.certificates / f"{kind}.key").read_bytes())
            (self.fleet / "keys" / f"{kind}.key").chmod(0o600)
        config = (self.fleet / "keyserver.toml").read_text()
        config = config.replace("0.0.0.0:8444", f"127.0.0.1:{self.keys}").replace("127.0.0.1:9444", "127.0.0.1:0")
        (self.fleet / "keyserver.toml").write_text(config.replace("key_folder", "workers = 1\nkey_folder"))

    def key_server(self, core):
        return Process(core, self.keys, self.scratch / "keyserver.log", "keyserver", "--config", self.fleet / "keyserver.toml")

    def gateway(self, core, keys, kind):
        port, folder = free_port(), Path(tempfile.mkdtemp(dir=self.scratch))
        place = {k: "keyserver:main" if kind == "key server" else f"{self.certificates}/{k}.key" for k in ALGORITHM}
        text = GATEWAY.format(port=port, admin=free_port(), folder=folder, keys=keys, name=NAME, certificates=self.certificates, **place)
        if kind == "key server":
            text += REMOTE.format(port=self.keys, fleet=self.fleet)
        (folder / "brisk.toml").write_text(text)
        return Process(core, port, folder / "log", "serve", "--config", folder / "brisk.toml")

    def load(self, kind, mode, *key):
        client = self.fleet / "gateways/gateway-1"
        remote = [f"127.0.0.1:{self.keys}", self.fleet / "ca.pem", f"{client}.pem", f"{client}.key"]
        words = [mode, self.arguments.seconds, self.certificates / f"{kind}.pem", *(key or remote)]
        done = subprocess.run(["taskset", "-c", str(self.arguments.load_core), LOAD, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"keyless: {LOAD}: {done.stderr}")
        return json.loads(done.stdout)

    def lone(self, kind):
        """Signatures a second of the server's core, one by one with AWS-LC."""
        words = ["speed", SPEED[kind], "--seconds", self.arguments.seconds / 2, "--core", self.arguments.server_core, "--json"]
        report = json.loads(subprocess.run([BRISK, *map(str, words)], capture_output=True, text=True, check=True).stdout)
        return next(row["per_s"] for row in report["operations"] if row["operation"] == "sign" and row["batch"] == 1)

    def handshakes(self, server, kind):
        words = ["bench", f"https://{NAME}/", "--connect", f"127.0.0.1:{server.port}", "--ca", self.ca, "--json", "--handshake-only",
                 "--tls", "1.3", "--group", "X25519", "--suite", "TLS_AES_128_GCM_SHA256", "--cert", kind, "-c", 64,
                 "-d", f"{self.arguments.seconds}s"]
        done = subprocess.run(["taskset", "-c", str(self.arguments.load_core), BRISK, *map(str, words)], capture_output=True, text=True)
        if not done.stdout:
            sys.exit(f"keyless: brisk bench: {done.stderr}")
        return json.loads(done.stdout)


def measure_protocol(machine, samples):
    for kind in ALGORITHM:
        samples[f"{kind} lone"].append(machine.lone(kind))
        with machine.key_server(machine.arguments.server_core) as server:
            samples[f"{kind} flood"].append(machine.load(kind, TOGETHER[kind])["per_s"])
            samples["says"] = server.says(r"RSA on [^\n]*")


def measure_idle(machine, samples):
    for kind in ALGORITHM:
        samples[f"{kind} local"].append(machine.load(kind, "local", machine.certificates / f"{kind}.key")["us"])
        with machine.key_server(machine.arguments.server_core):
            samples[f"{kind} idle"].append(machine.load(kind, "idle")["us"])


def measure_handshakes(machine, samples):
    """The gateway on the server's core; a key server on the core of the load, whose processor time is counted apart."""
    arguments = machine.arguments
    for place, keys in (("gateway", ""), ("key process", "isolate = true"), ("key server", "")):
        with machine.key_server(arguments.load_core) as key_server, machine.gateway(arguments.server_core, keys, place) as gateway:
            time.sleep(0.5)
            for kind in ALGORITHM:
                before = gateway.seconds(), key_server.seconds()
                report = machine.handshakes(gateway, kind)
                spent = gateway.seconds() - before[0], key_server.seconds() - before[1]
                # With the warm-up, as the processor times are.
                count = report["rate_per_s"] * (arguments.seconds + 1)
                sample = [report["rate_per_s"], *(seconds / count * 1e6 for seconds in spent)]
                samples[f"{kind} {place}"].append([*sample, sum(error["count"] for error in report["errors"])])


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def middle(values):
    values = sorted(values)
    spread = f" ({number(values[0])}–{number(values[-1])})" if len(values) > 1 else ""
    return number(statistics.median(values)) + spread


def ratio(values, others):
    return f"{statistics.median(a / b for a, b in zip(values, others)):.2f}"


def cpu():
    name = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} cores {name}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def page(samples, arguments):
    text = [
        "# Keys on key servers and in processes of their own", "",
        f"{arguments.rounds} rounds of all measurements in turns, {arguments.seconds} s each; medians, and the least and the most. "
        "`make keyless` repeats it.", "",
        f"- Machine: {cpu()}",
        f"- The key server: `{samples['says']}`",
        f"- gokeyless, as Cloudflare published it: {GOKEYLESS:.0f} RSA-2048 signatures a second on four virtual cores "
        f"([scaling and benchmarking]({PUBLISHED})); another machine, so a figure to stand beside these and no comparison", "",
        "## Signatures through the protocol", "",
        f"A key server on core {arguments.server_core}, the load on core {arguments.load_core}, over one connection.", "",
        "| | operations under way | signatures /s | AWS-LC alone on that core, one by one | ratio |", "|---|---:|---:|---:|---:|"]
    for kind, name in ALGORITHM.items():
        flood, lone = samples[f"{kind} flood"], samples[f"{kind} lone"]
        text.append(f"| {name} | {TOGETHER[kind]} | {middle(flood)} | {middle(lone)} | {ratio(flood, lone)} |")
    text += ["", "## One operation while nothing else is done", "", "| | key in the process, us | on the key server, us | more, us |", "|---|---:|---:|---:|"]
    for kind, name in ALGORITHM.items():
        local, idle = samples[f"{kind} local"], samples[f"{kind} idle"]
        more = [b - a for a, b in zip(local, idle)]
        text.append(f"| {name} | {middle(local)} | {middle(idle)} | {middle(more)} |")
    text += ["", "## Full handshakes", "",
             f"TLS 1.3 with X25519. The gateway has one worker, on core {arguments.server_core}, and so does its key process. The load is on core "
             f"{arguments.load_core}, and the key server too.", "",
             "| certificate | keys | handshakes /s | beside keys in the gateway | gateway, us of processor | key server, us of processor |",
             "|---|---|---:|---:|---:|---:|"]
    for kind, name in ALGORITHM.items():
        local = [sample[0] for sample in samples[f"{kind} gateway"]]
        for place in ("gateway", "key process", "key server"):
            rates, gateway, server, failed = map(list, zip(*samples[f"{kind} {place}"]))
            note = f" ({sum(failed)} failed)" if sum(failed) else ""
            last = middle(server) if place == "key server" else ""
            text.append(f"| {name} | in the {place}{note} | {middle(rates)} | {ratio(rates, local)} | {middle(gateway)} | {last} |")
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=3, help="duration of each measurement in each round, in seconds [default: %(default)s]")
    parser.add_argument("--server-core", type=int, default=0, help="core of the key server [default: %(default)s]")
    parser.add_argument("--load-core", type=int, default=1, help="core of the load [default: %(default)s]")
    parser.add_argument("--only", choices=["protocol", "idle", "handshakes"], help="restriction to one measurement")
    parser.add_argument("--output", type=Path, help="file for the result [default: standard output]")
    arguments = parser.parse_args()
    for program in (BRISK, LOAD):
        if not Path(program).exists():
            sys.exit(f"keyless: no {program}; `make keyless` makes it")
    samples = {f"{kind} {what}": [] for kind in ALGORITHM
               for what in ("lone", "flood", "local", "idle", "gateway", "key process", "key server")}
    measures = {"protocol": measure_protocol, "idle": measure_idle, "handshakes": measure_handshakes}
    with tempfile.TemporaryDirectory() as scratch:
        machine = Machine(arguments, scratch)
        for turn in range(arguments.rounds):
            for name, measure in measures.items():
                if arguments.only in (None, name):
                    print(f"\r\033[Kround {turn + 1} of {arguments.rounds}: {name}", end="", file=sys.stderr, flush=True)
                    measure(machine, samples)
        print("\r\033[K", end="", file=sys.stderr)
    if arguments.only:
        print(json.dumps(samples, indent=1))
    elif arguments.output:
        arguments.output.write_text(page(samples, arguments))
    else:
        print(page(samples, arguments), end="")


if __name__ == "__main__":
    main()
