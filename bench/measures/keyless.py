"""Measures the cost of private keys on a key server or in a separate process.

Three measurements alternate in each round. First, signatures per second through the protocol, with the key server on one core and
the load on the other, in comparison with `brisk speed` (AWS-LC, one by one) on that core. Second, the time of a single operation
on an idle system, in comparison with a key in the same process. Third, full handshakes per second of a gateway on one core with
its keys on a key server on the other core, in a key process, and in the gateway itself. `brisk bench compare` cannot do this: two
of the loads are none of its own, and a plan counts the processor time of one server.
"""
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from shared import programs
from shared.figures import middle, page, ratio, show, table
from shared.gateway import Brisk, certificates, route
from shared.keys import KeyServer
from shared.load import HANDSHAKES, bench, failures, report
from shared.processes import pinned
from shared.programs import BRISK, KEY_LOAD

NEEDS, BUILDS = "flood", "--package brisk-keyless --example key_load"
OPTIONS = [("--rounds", 5, "number of rounds"), ("--seconds", 3.0, "duration of each measurement in each round, in seconds"),
           ("--server-core", 0, "core of the key server"), ("--load-core", 1, "core of the load"),
           ("--only", None, "restriction to one measurement, whose samples are printed",
            {"choices": ["protocol", "idle", "handshakes"]})]
# Operations under way: enough for full batches at any moment, as those of a few gateways under load are.
TOGETHER = {"rsa": 64, "ecdsa": 256}
ALGORITHM = {"rsa": "RSA-2048", "ecdsa": "P-256"}
SPEED = {"rsa": "rsa2048", "ecdsa": "p256"}
# Signatures with RSA-2048 a second that Cloudflare published for gokeyless on four virtual cores (c5.xlarge): 46,560 in 60 s.
GOKEYLESS = 46_560 / 60
PUBLISHED = "https://developers.cloudflare.com/ssl/keyless-ssl/reference/scaling-and-benchmarking/"

REMOTE = """
[keyserver.main]
servers = ["127.0.0.1:$keys"]
ca = "$fleet/ca.pem"
certificate = { chain = "$fleet/gateways/gateway-1.pem", key = "$fleet/gateways/gateway-1.key" }
"""
# Of keys of the gateway: the configuration, and the place of each key.
LOCAL = "$certificates/$kind.key"
PLACES = {"gateway": ("", LOCAL), "key process": ("[keys]\nisolate = true", LOCAL), "key server": (REMOTE, "keyserver:main")}


class Machine:
    """Certificates, the folder of a key server, and the loads."""

    def __init__(self, arguments, scratch):
        self.arguments, self.scratch, self.certificates, self.servers = arguments, Path(scratch), certificates(), 0

    def key_server(self, core):
        self.servers += 1
        return KeyServer(self.scratch / f"fleet-{self.servers}", self.certificates, ALGORITHM, core, "workers = 1\n")

    def gateway(self, core, place, keys):
        sections, key = PLACES[place]
        folder = tempfile.mkdtemp(dir=self.scratch)
        return Brisk(route("/", 'respond = { body = "x" }'), folder, core, pairs=("ecdsa", "rsa"), key=key, sections=sections,
                     keys=keys.port, fleet=keys.folder)

    def load(self, kind, mode, *words):
        command = [KEY_LOAD, mode, self.arguments.seconds, self.certificates / f"{kind}.pem", *words]
        done = subprocess.run(pinned(self.arguments.load_core, *command), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"keyless: {KEY_LOAD}: {done.stderr}")
        return json.loads(done.stdout)

    def remote(self, kind, mode, keys):
        """A load of the key server."""
        return self.load(kind, mode, f"127.0.0.1:{keys.port}", keys.folder / "ca.pem", f"{keys.gateway}.pem",
                         f"{keys.gateway}.key")

    def lone(self, kind):
        """Signatures a second of the server's core, one by one with AWS-LC."""
        words = ["speed", SPEED[kind], "--seconds", self.arguments.seconds / 2, "--core", self.arguments.server_core, "--json"]
        found = json.loads(subprocess.run([BRISK, *map(str, words)], capture_output=True, text=True, check=True).stdout)
        return next(row["per_s"] for row in found["operations"] if row["operation"] == "sign" and row["batch"] == 1)


def measure_protocol(machine, samples):
    for kind in ALGORITHM:
        samples[f"{kind} lone"].append(machine.lone(kind))
        with machine.key_server(machine.arguments.server_core) as keys:
            samples[f"{kind} flood"].append(machine.remote(kind, TOGETHER[kind], keys)["per_s"])
            line = re.search(r"RSA on [^\n]*", re.sub(r"\x1b\[[0-9;]*m", "", keys.log()))
            samples["says"] = line.group(0) if line else "the log does not say"


def measure_idle(machine, samples):
    for kind in ALGORITHM:
        samples[f"{kind} local"].append(machine.load(kind, "local", machine.certificates / f"{kind}.key")["us"])
        with machine.key_server(machine.arguments.server_core) as keys:
            samples[f"{kind} idle"].append(machine.remote(kind, "idle", keys)["us"])


def measure_handshakes(machine, samples):
    """The gateway on the server's core; a key server on the core of the load, whose processor time is counted apart."""
    arguments = machine.arguments
    for place in PLACES:
        with machine.key_server(arguments.load_core) as keys, machine.gateway(arguments.server_core, place, keys) as gateway:
            time.sleep(0.5)
            for kind in ALGORITHM:
                before = gateway.cpu(), keys.cpu()
                found = report(bench(gateway.port, arguments.load_core, "/", arguments.seconds, *HANDSHAKES, "--cert", kind,
                                     "-c", 64))
                spent = gateway.cpu() - before[0], keys.cpu() - before[1]
                # With the warm-up, as the processor times are.
                count = found["rate_per_s"] * (arguments.seconds + 1)
                samples[f"{kind} {place}"].append([found["rate_per_s"], *(seconds / count * 1e6 for seconds in spent),
                                                   failures(found)])


def rows_of_handshakes(samples):
    for kind, name in ALGORITHM.items():
        local = [sample[0] for sample in samples[f"{kind} gateway"]]
        for place in PLACES:
            rates, gateway, keys, failed = map(list, zip(*samples[f"{kind} {place}"]))
            note = f" ({sum(failed)} failed)" if sum(failed) else ""
            yield [name, f"in the {place}{note}", middle(rates), ratio(rates, local), middle(gateway), middle(keys)
                   if place == "key server" else ""]


def written(samples, arguments):
    of = lambda what: {kind: samples[f"{kind} {what}"] for kind in ALGORITHM}
    flood, lone, local, idle = map(of, ("flood", "lone", "local", "idle"))
    signatures = ([name, TOGETHER[kind], middle(flood[kind]), middle(lone[kind]), ratio(flood[kind], lone[kind])]
                  for kind, name in ALGORITHM.items())
    alone = ([name, middle(local[kind]), middle(idle[kind]), middle(b - a for a, b in zip(local[kind], idle[kind]))]
             for kind, name in ALGORITHM.items())
    return page(
        "keyless", arguments=arguments, says=samples["says"], gokeyless=GOKEYLESS, published=PUBLISHED,
        signatures=table(["", "operations under way", "signatures /s", "AWS-LC alone on that core, one by one", "ratio"],
                         signatures),
        alone=table(["", "key in the process, us", "on the key server, us", "more, us"], alone),
        handshakes=table(["certificate", "keys", "handshakes /s", "beside keys in the gateway", "gateway, us of processor",
                          "key server, us of processor"], rows_of_handshakes(samples), left=2))


def run(arguments):
    programs.require(BRISK, KEY_LOAD)
    samples = defaultdict(list)
    measures = {"protocol": measure_protocol, "idle": measure_idle, "handshakes": measure_handshakes}
    with tempfile.TemporaryDirectory() as scratch:
        machine = Machine(arguments, scratch)
        for turn in range(arguments.rounds):
            for name, measure in measures.items():
                if arguments.only in (None, name):
                    show(f"round {turn + 1} of {arguments.rounds}: {name}")
                    measure(machine, samples)
    show()
    if arguments.only:
        return print(json.dumps(samples, indent=1))
    return written(samples, arguments)
