"""Measures the effect of a flood of RSA handshakes on requests on existing connections.

brisk with one worker serves requests at a fixed rate on kept connections, while new clients make full handshakes with an RSA
certificate, at 80 % of its capacity. Three cases alternate in each round: no flood; the flood, with RSA on engine threads (the
default); the flood, with RSA on the worker itself (`[keys] offload = []`). `brisk bench compare` cannot do this: a plan has no
second load beside the one that is measured.
"""
import re
import signal
import statistics
import sys
import tempfile
import time

from shared import programs
from shared.figures import alternating, middle, number, page, show
from shared.gateway import Brisk, route
from shared.load import HANDSHAKES, bench, failures, report
from shared.programs import BRISK

NEEDS, PAGE = "flood", "rsa-flood"
OPTIONS = [("--rounds", 7, "number of rounds"), ("--seconds", 20, "duration of each case in each round, in seconds"),
           ("--load", 0.8, "load of the flood as a share of the capacity"), ("--rate", 500, "requests per second"),
           ("--server-cores", "0", "cores of the server"), ("--client-cores", "1", "cores of the clients")]
RSA = [*HANDSHAKES, "--cert", "rsa"]
# Number of connections for requests, and maximum number of connections of the flood.
KEPT, FLOODING = 32, 256
# Seconds. The flood begins this long before the requests do; it is told to end when they have ended, and would end by
# itself this long after what is measured, which leaves time for their start, their warm-up and their last answers.
LEAD, SLACK = 1.5, 5

# Name, what the configuration says of keys, and whether there is a flood.
CASES = [
    ("no flood", "", False),
    ("flood, RSA on engine threads", "", True),
    ("flood, RSA on the worker", "[keys]\noffload = []\n", True),
]


def brisk(case, arguments, scratch):
    """brisk as this case has it."""
    return Brisk(route("/", 'respond = { body = "$body" }'), tempfile.mkdtemp(dir=scratch), arguments.server_cores,
                 sections=case[1], pairs=("ecdsa", "rsa"), body="x" * 1024)


def engine(server):
    """The line of the log on the way in which RSA is performed."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", server.log())
    line = re.search(r"RSA (on \d+ threads?|by the workers themselves): [^\n]*", log)
    return line.group(0) if line else sys.exit(f"flood: the log does not state how RSA is performed:\n{log}")


def capacity(server, cores):
    """Full RSA handshakes per second without a limit of the rate."""
    runs = [report(bench(server.port, cores, "/", 3, *RSA, "-c", 64)) for _ in range(3)]
    return statistics.median(run["rate_per_s"] for run in runs)


def measure(server, rate, arguments):
    """One case once: the latency of the requests, and the rate of the handshakes beside them."""
    flood = None
    if rate:
        # The probe shares its core with the flood and precedes it, so that it waits for the server only.
        flood = bench(server.port, arguments.client_cores, "/", LEAD + arguments.seconds + SLACK, *RSA, "--rate", rate, "-c",
                      FLOODING, warmup="0", nice=5)
        time.sleep(LEAD)
    requests = report(bench(server.port, arguments.client_cores, "/", arguments.seconds, "-c", KEPT, "--rate", arguments.rate,
                            "--tls", "1.3", "--server-pid", server.process.pid))
    sample = {"handshakes": 0.0, "busy": requests["server"]["busy"] * 100,
              "failed": failures(requests), "unstarted": requests["unstarted"], "flood failed": 0}
    sample |= {quantile: requests["latency_us"]["total"][quantile] / 1e3 for quantile in ("p50", "p99", "p999", "max")}
    if flood:
        flood.send_signal(signal.SIGINT)
        handshakes = report(flood)
        sample |= {"handshakes": handshakes["rate_per_s"], "flood failed": failures(handshakes)}
    return sample


def rows(samples, rates):
    quiet = samples[CASES[0][0]]
    for name, _, floods in CASES:
        rounds = samples[name]
        above = middle([own["p99"] - base["p99"] for own, base in zip(rounds, quiet)]) if floods else ""
        handshakes = f"{middle([r['handshakes'] for r in rounds])} of {number(rates[name])} asked for" if floods else ""
        yield [name, handshakes, *(middle([r[key] for r in rounds]) for key in ("busy", "p50", "p99", "p999", "max")), above]


def failed_in(samples):
    """A line for each case in which anything failed."""
    lines = []
    for name, *_ in CASES:
        failed, unstarted, flood = (sum(sample[what] for sample in samples[name])
                                    for what in ("failed", "unstarted", "flood failed"))
        if failed or unstarted or flood:
            lines.append(f"- Failures in all rounds, {name}: {failed} requests, {unstarted} more that were not started "
                         f"in time, {flood} handshakes of the flood")
    return lines


def run(arguments):
    programs.require(BRISK)
    samples, rates, engines = {name: [] for name, *_ in CASES}, {}, []
    with tempfile.TemporaryDirectory() as scratch:
        for case in CASES:
            if case[2]:
                with brisk(case, arguments, scratch) as server:
                    show(f"capacity: {case[0]}")
                    rates[case[0]] = round(arguments.load * capacity(server, arguments.client_cores), 1)
                    engines.append(f"- {case[0][0].upper()}{case[0][1:]}: `{engine(server)}`")
        for turn, case in alternating(arguments.rounds, CASES):
            show(f"round {turn + 1} of {arguments.rounds}: {case[0]}")
            with brisk(case, arguments, scratch) as server:
                samples[case[0]].append(measure(server, rates.get(case[0]), arguments))
    show()
    return page("rsa-flood", arguments=arguments, kept=KEPT, facts=[*engines, *failed_in(samples)],
                rows=list(rows(samples, rates)))
