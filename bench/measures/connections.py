"""Measures latency and memory of thousands of HTTP/2 connections on one core, for minutes, at a given share of its capacity.

brisk with one worker answers requests itself, or with `--route page`, the default, compresses a response of an nginx for each
request, so that brisk has more work than the client. First the rate at which its core has the wanted load is searched, with all
connections open. The machine must be quiet.
"""
import resource
import statistics
import sys
import tempfile
import time

from hostile.servers import upstream as nginx
from shared import programs
from shared.figures import mebibytes, page
from shared.gateway import Brisk, route, upstream
from shared.load import bench, result
from shared.programs import BRISK

# For each route the path, options of the client, and what brisk does.
ROUTES = {"local": ("/local", [], "answers"),
          "page": ("/1k", ["-H", "Accept-Encoding: gzip"], "forwards, and compresses the responses of,")}
OPTIONS = [("--connections", 10000, "number of connections"),
           ("--load", 70.0, "share of its core's capacity that brisk uses, in percent"),
           ("--minutes", 10.0, "duration in minutes"), ("--route", "page", "what brisk does for each request",
                                                        {"choices": ROUTES}),
           ("--server-cores", "0", "core of brisk"), ("--client-cores", "1", "core of the client")]
NEEDS = "strangers"
# Longest time that a request may wait, in milliseconds.
LONGEST = 100
# Seconds in which all connections are opened; of a run that only searches the rate; and the number of such runs.
OPENING, SEARCH, RUNS = 20, 10, 3
# Requests per second of the first such run.
FIRST = 5000


def load(server, seconds, rate, arguments):
    path, options, _ = ROUTES[arguments.route]
    return bench(server.port, arguments.client_cores, path, seconds, "--tls", "1.3", "-c", arguments.connections, "--h2", 4,
                 "--rate", rate, *options, warmup=f"{OPENING}s")


def search(server, arguments):
    """The rate at which the core is busy for the wanted share of time."""
    rate = FIRST
    for number in range(RUNS):
        began = server.cpu(), time.monotonic()
        running = load(server, SEARCH, rate, arguments)
        # The connections are opened first; only what follows counts.
        time.sleep(OPENING)
        middle = server.cpu(), time.monotonic()
        time.sleep(SEARCH - 1)
        end = server.cpu(), time.monotonic()
        found = result(running)
        busy = (end[0] - middle[0]) / (end[1] - middle[1])
        print(f"{rate} requests per second: core {busy:.0%} busy, p99 {found.get('p99', 0):.1f} ms, {found['failed']} failed "
              f"{found['errors']}, {end[0] - began[0]:.1f} s of processor time", file=sys.stderr)
        rate = max(100, int(rate * arguments.load / 100 / max(busy, 0.01)))
    return rate


def written(found, minutes, rate, arguments):
    rows = [[number, f"{busy:.0%}", mebibytes(memory), f"{connections:,.0f}"]
            for number, (busy, memory, connections) in enumerate(minutes, 1)]
    return page("connections", arguments=arguments, does=ROUTES[arguments.route][2], rate=rate, found=found, longest=LONGEST,
                nginx="" if arguments.route == "local" else ", with nginx",
                busy=statistics.median(busy for busy, _, _ in minutes),
                errors="".join(f" {count} {error}." for error, count in found["errors"].items()),
                minutes=rows)


def run(arguments):
    programs.require(BRISK)
    # brisk accepts half as many connections as it may have descriptors, because a proxied one needs two.
    needed, (_, hard) = 2 * arguments.connections + 200, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < needed:
        sys.exit(f"connections: {needed} open files are needed and the hard limit (ulimit -Hn) is {hard}: raise it, or ask for "
                 "fewer with --connections")
    routes = (route("/local", 'respond = { body = "$body" }') + route("/", 'upstream = "app"', "compression = true") +
              upstream("app", '"http://127.0.0.1:$app"'))
    with tempfile.TemporaryDirectory() as folder, nginx(arguments.client_cores) as app, \
            Brisk(routes, folder, arguments.server_cores, body="x" * 1024, app=app) as server:
        rate = search(server, arguments)
        running = load(server, round(arguments.minutes * 60), rate, arguments)
        time.sleep(OPENING)
        minutes, left = [], arguments.minutes * 60
        while left > 0 and running.poll() is None:
            began = server.cpu(), time.monotonic()
            time.sleep(min(60, left))
            left -= 60
            busy = (server.cpu() - began[0]) / (time.monotonic() - began[1])
            minutes.append((busy, server.resident(), server.metrics().get("brisk_connections_open", 0)))
        found = result(running)
        if "p50" not in found:
            sys.exit(f"connections: the load did not run: {found}\n{server.log()[-2000:]}")
        return written(found, minutes, rate, arguments)
