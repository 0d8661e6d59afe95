"""Measures the effect of pipelines to a slow, incorrect, closing or dying upstream on the requests of other clients.

brisk with one worker, once with `pipeline = 8` and once without pipelines, in turn. Some clients request from the faulty
upstream, others at a fixed rate from nginx. The machine must be quiet.
"""
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hostile.pipelining import KINDS
from hostile.servers import Helper, upstream as nginx
from shared import programs
from shared.figures import alternating, page, ratio, show, table
from shared.gateway import Brisk, route, upstream
from shared.load import bench, result
from shared.programs import BRISK

NEEDS = "strangers"
OPTIONS = [("--rounds", 6, "rounds of each case"), ("--seconds", 3, "seconds of a round"),
           ("--server-cores", "0", "cores of brisk"), ("--client-cores", "1", "cores of clients and upstreams")]
ROUTES = (route("/faulty", 'upstream = "faulty"') + route("/", 'upstream = "app"') +
          upstream("faulty", '"http://127.0.0.1:$faulty"', more="pipeline = $pipeline") +
          upstream("app", '"http://127.0.0.1:$app"', more="pipeline = $pipeline"))
# Depth of the pipelines, and none.
DEPTHS = [8, 1]
# Requests per second to the faulty upstream, and of the other clients.
FAULTY, OTHERS = 400, 2000


def once(server, arguments):
    """Results of the requests to the faulty upstream, and of the others."""
    loads = [bench(server.port, arguments.client_cores, path, arguments.seconds, "--tls", "1.3", "-c", count, "--h2", 8,
                   "--rate", rate)
             for path, count, rate in (("/faulty", 4, FAULTY), ("/static", 16, OTHERS))]
    return [result(load) for load in loads]


def case(kind, app, arguments, folder):
    """The results of all rounds of both depths."""
    found = {depth: [] for depth in DEPTHS}
    with Helper("pipelining", kind, cores=arguments.client_cores) as faulty, ExitStack() as stack:
        gateways = {depth: stack.enter_context(Brisk(ROUTES, folder / f"{kind}-{depth}", arguments.server_cores,
                                                     faulty=faulty.port, app=app, pipeline=depth)) for depth in DEPTHS}
        for turn, depth in alternating(arguments.rounds, DEPTHS):
            show(f"{kind}: round {turn + 1}, depth {depth}")
            found[depth].append(once(gateways[depth], arguments))
        pipelined = gateways[8].metrics().get("brisk_upstream_pipelined_requests_total", 0)
    return found, pipelined


def values(rounds, load, what):
    return [one[load].get(what, 0) for one in rounds]


def bad(rounds, load):
    return sum(values(rounds, load, "failed") + values(rounds, load, "other"))


def row_of_others(kind, found):
    cells = [kind]
    for quantile in ("p50", "p99"):
        both = [values(rounds, 1, quantile) for rounds in found.values()]
        cells += [*(f"{statistics.median(one):.2f}" for one in both), ratio(*both, spread="range")]
    return [*cells, " and ".join(str(bad(rounds, 1)) for rounds in found.values())]


def row_of_faulty(kind, found, pipelined):
    pairs = ((f"{sum(values(rounds, 0, 'operations')):,}", f"{bad(rounds, 0):,}") for rounds in found.values())
    return [kind, *(cell for pair in pairs for cell in pair), f"{pipelined:,.0f}"]


def run(arguments):
    programs.require(BRISK)
    with nginx(arguments.client_cores) as app, tempfile.TemporaryDirectory() as folder:
        cases = {kind: case(kind, app, arguments, Path(folder)) for kind in KINDS}
    show()
    head = ["upstream", "p50 ms, pipelines", "p50 ms, none", "ratio", "p99 ms, pipelines", "p99 ms, none", "ratio", "failed"]
    others = table(head, (row_of_others(kind, found) for kind, (found, _) in cases.items()))
    head = ["upstream", "requests, pipelines", "without 200", "requests, none", "without 200", "pipelined"]
    faulty = table(head, (row_of_faulty(kind, *found) for kind, found in cases.items()))
    return page("pipelines", arguments=arguments, faulty_rate=FAULTY, other_rate=OTHERS, others=others, faulty=faulty)
