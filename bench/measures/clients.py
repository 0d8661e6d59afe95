"""Tests TLS clients with brisk and lists the negotiated parameters.

Runs every installed client (clients/clients.py) with TLS 1.2 and 1.3, with an ECDSA and an RSA certificate, and with every kind
of resumption that it supports. A cell passes if the client reports status 200 and, if it can, resumption, and if brisk's access
log contains the same request with the intended version, certificate and kind of resumption.
"""
import json
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from clients import clients
from shared import programs
from shared.certificates import AUTHORITY, sign
from shared.figures import page
from shared.gateway import Brisk, route
from shared.processes import wait
from shared.programs import BRISK, CACHE

NEEDS = "clients"
OPTIONS = [("--only", "", "restriction to clients with this word in their name")]
CERTIFICATES = ["ecdsa", "rsa"]
VERSIONS = ["1.2", "1.3"]
KINDS = ["full", "ticket", "stored", "early"]

# Names of the kinds in the access log.
LOGGED = {("1.2", "full"): "full", ("1.2", "ticket"): "ticket", ("1.2", "stored"): "session-id",
          ("1.3", "full"): "full", ("1.3", "ticket"): "psk", ("1.3", "stored"): "psk", ("1.3", "early"): "0-rtt"}

# The port is also that of ::1, which some clients prefer.
SERVER = """
timeouts.idle = "500ms"
[tls]
$tls
"""
ROUTES = (route("/", 'early_data = "$early"', 'respond = { body = "$body" }') +
          route("/return", 'respond = { content_type = "text/html", body = $page }'))

# Sessions as tickets; sessions in the store, which early data needs; and without sessions of TLS 1.3.
MODES = {"tickets": ("", "no"), "store": ("tickets = false", "safe"), "no-1.3-tickets": ("tickets_per_handshake = 0", "no")}

# For browsers: asks for the page again when the connection has been closed.
PAGE_AGAIN = """<!doctype html><title>waiting</title><script>
setTimeout(() => fetch('/' + location.search, {cache: 'no-store'})
  .then(answer => fetch('/reported' + location.search + '&status=' + answer.status)), 2000)</script>"""


def make_certificates(folder):
    """A root of its own, and a certificate of each kind for localhost."""
    sign(folder, "root", "brisk clients root", None, AUTHORITY, days=120)
    extensions = ["subjectAltName=DNS:localhost,IP:127.0.0.1", "extendedKeyUsage=serverAuth",
                  "basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature,keyEncipherment"]
    for kind in CERTIFICATES:
        sign(folder, kind, "localhost", "root", extensions, 2048 if kind == "rsa" else None, days=90)


class Server(Brisk):
    """brisk with one certificate, in one mode."""

    def __init__(self, certificate, mode, scratch):
        tls, early = MODES[mode]
        self.ca = scratch / "root.pem"
        super().__init__(ROUTES, scratch / f"{certificate}-{mode}", None, name="localhost", certificates=scratch,
                         pairs=(certificate,), access='format = "json"\nfile = "$folder/access.log"', server=SERVER, tls=tls,
                         early=early, body=clients.BODY, page=json.dumps(PAGE_AGAIN), second=', "[::1]:$port"')

    def lines(self, query):
        """The lines of the access log of requests with this query."""
        text = (self.folder / "access.log").read_text() if (self.folder / "access.log").exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if line.get("path") == "/?" + query]

    def awaited(self, query, visits):
        """The lines, which are written a moment after what they report."""
        wait(lambda: len(self.lines(query)) >= visits, 2)
        return self.lines(query)


def judge(cell, said, lines):
    """What speaks against the cell; nothing if it passes."""
    version, kind, certificate = cell
    complaints = []
    if said.get("status") != 200:
        complaints.append(f"the client says status {said.get('status')}")
    if said.get("resumed") is not None and said["resumed"] != (kind != "full"):
        complaints.append(f"the client says resumed: {said['resumed']}")
    if not lines:
        return [*complaints, "no line in brisk's access log"]
    # A load generator refills its sessions beside what it was asked for, and itself checks that this is what it got.
    refills = [line for line in lines if said.get("refills") and line["resumption"] == LOGGED[version, kind]]
    last = (refills or lines)[-1]
    wanted = {"status": 200, "tls": f"TLS {version}", "resumption": LOGGED[version, kind]}
    for key, value in wanted.items():
        if last.get(key) != value:
            complaints.append(f"brisk's log says {key} {last.get(key)}, not {value}")
    schemes = [line["scheme"] for line in lines if "scheme" in line]
    if any(not scheme.startswith(certificate) for scheme in schemes):
        complaints.append(f"signed with {schemes}")
    return complaints


def run_cell(client, cell, servers):
    """Runs one client once: the result for the report."""
    version, kind, certificate = cell
    mode = client.mode or ("store" if kind in ("stored", "early") else "tickets")
    server = servers[certificate, mode]
    query = f"{client.slug}.{version}.{kind}.{certificate}"
    visit = clients.Visit(server.port, server.ca, version, kind, f"/?{query}", server.folder, f"/return?{query}")
    try:
        said = client.visit(visit)
    except clients.Impossible as reason:
        return {"state": "cannot", "reason": str(reason)}
    except Exception as error:  # Whatever a client does is a result.
        said = {"status": None, "output": f"{type(error).__name__}: {error}"}
    lines = server.awaited(query, said.get("requests", 1 if kind == "full" else 2))
    complaints = judge(cell, said, lines)
    agreed = {key: lines[-1].get(key) for key in ("tls", "suite", "alpn")} if lines else {}
    agreed["group"] = next((line["group"] for line in lines if "group" in line), None)
    state = "pass" if not complaints else "fail"
    return {"state": state, "agreed": agreed, "complaints": complaints, "output": said.get("output", "")}


def cells_of(client, servers):
    cells = {}
    for cell in ((version, kind, certificate) for version in VERSIONS for certificate in CERTIFICATES for kind in KINDS):
        if cell[:2] in LOGGED:
            cells[cell] = found = run_cell(client, cell, servers)
            print(client.slug, *cell, found["state"], "; ".join(found.get("complaints", [])), file=sys.stderr)
    return cells


def suite(agreed):
    return re.sub(r"^TLS_(ECDHE_(ECDSA|RSA)_WITH_)?", "", agreed.get("suite") or "?")


def mark(cell):
    if cell is None:
        return ""
    return {"pass": "ok", "cannot": "-", "fail": "**FAIL**"}[cell["state"]]


def client_rows(client, cells):
    """A line for each version that the client has."""
    for version in ("1.2", "1.3"):
        own = {key: cell for key, cell in cells.items() if key[0] == version}
        ran = [cell for cell in own.values() if cell["state"] != "cannot" and cell["agreed"].get("suite")]
        if not any(cell["state"] != "cannot" for cell in own.values()):
            continue
        seen = lambda what: ", ".join(dict.fromkeys(filter(None, (what(cell["agreed"]) for cell in ran)))) or "none"
        marks = [mark(own.get((version, kind, certificate))) for certificate in ("ecdsa", "rsa") for kind in KINDS]
        yield [f"{client.name} {client.found}".strip(), client.stack, version, seen(suite),
               seen(lambda agreed: agreed.get("group")), seen(lambda agreed: agreed.get("alpn")), *marks]


def notes(results):
    lines = []
    for client, cells in results:
        reasons = [cell["reason"] for cell in cells.values() if cell["state"] == "cannot" and cell["reason"]]
        if reasons:
            lines.append(f"- {client.name}: {reasons[0]}")
    return lines


def failures(results):
    """Every cell that failed, and why; equal complaints of a client together."""
    lines = []
    for client, cells in results:
        grouped = {}
        for (version, kind, certificate), cell in cells.items():
            if cell["state"] == "fail":
                evidence = [line.strip() for line in cell["output"].splitlines() if re.search(r"error|fail|alert", line, re.I)]
                text = "; ".join(cell["complaints"]) + (f" (`{evidence[-1][:160]}`)" if evidence else "")
                grouped.setdefault(text, []).append(f"{version} {kind} {certificate}")
        lines += [f"- {client.name}, {', '.join(names)}: {text}" for text, names in grouped.items()]
        if grouped and client.fault:
            lines.append(f"  - the client's own fault. {client.fault}")
    return lines


def written(results, missing):
    ran = [cell["state"] for _, cells in results for cell in cells.values() if cell["state"] != "cannot"]
    rows = [cells for client, of_client in results for cells in client_rows(client, of_client)]
    return page("clients", clients=len(results), ran=len(ran), good=ran.count("pass"), rows=rows, notes=notes(results),
                failures=failures(results) or ["Nothing."],
                missing=[f"- {name}: {reason}" for name, reason in missing] or ["None."])


def run(arguments):
    programs.require(BRISK)
    results, missing = [], []
    with tempfile.TemporaryDirectory(prefix="brisk-clients-") as scratch, ExitStack() as stack:
        scratch = Path(scratch)
        make_certificates(scratch)
        servers = {(kind, mode): stack.enter_context(Server(kind, mode, scratch)) for kind in CERTIFICATES for mode in MODES}
        for client in clients.every(CACHE, BRISK, scratch):
            if arguments.only not in client.slug:
                continue
            try:
                client.prepare()
            except clients.Impossible as reason:
                missing.append((client.name, str(reason)))
                continue
            results.append((client, cells_of(client, servers)))
            client.found = client.version()
    failed = [client.name for client, cells in results if not client.fault for cell in cells.values() if cell["state"] == "fail"]
    text = written(results, missing)
    return text, f"{len(failed)} cells failed: {', '.join(sorted(set(failed)))}" if failed else None
