#!/usr/bin/env python3
"""Tests TLS clients with brisk and lists the negotiated parameters.

Runs every installed client (clients.py) with TLS 1.2 and 1.3, with an ECDSA and an RSA certificate, and with every kind of
resumption that it supports. A cell passes if the client reports status 200 and, if it can, resumption, and if brisk's access
log contains the same request with the intended version, certificate and kind of resumption. Then sslyze and testssl.sh
examine brisk. Writes a table (Markdown). `make clients` calls this script.

usage: run [--only WORD] [--output FILE] [--no-scanners]
"""
import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import clients  # noqa: E402
import report  # noqa: E402

CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))
CERTIFICATES = ["ecdsa", "rsa"]
VERSIONS = ["1.2", "1.3"]
KINDS = ["full", "ticket", "stored", "early"]

# Names of the kinds in the access log.
LOGGED = {("1.2", "full"): "full", ("1.2", "ticket"): "ticket", ("1.2", "stored"): "session-id",
          ("1.3", "full"): "full", ("1.3", "ticket"): "psk", ("1.3", "stored"): "psk", ("1.3", "early"): "0-rtt"}

CONFIGURATION = """
[server]
https = ["127.0.0.1:{port}", "[::1]:{port}"]
workers = 1
state_dir = "{folder}/state"
timeouts.idle = "{idle}"

[tls]
{tls}

[access_log]
format = "json"
file = "{folder}/access.log"

[[host]]
names = ["localhost"]
certificates = [{{ chain = "{certificates}/{certificate}.pem", key = "{certificates}/{certificate}.key" }}]
hsts = {{ max_age = "365d" }}

[[host.route]]
path = "/"
early_data = "{early}"
respond = {{ body = "{body}" }}

[[host.route]]
path = "/return"
respond = {{ content_type = "text/html", body = {page} }}
"""

# Sessions as tickets; sessions in the store, which early data needs; without sessions of TLS 1.3; and for scanners.
MODES = {"tickets": ("", "no"), "store": ("tickets = false", "safe"), "no-1.3-tickets": ("tickets_per_handshake = 0", "no"),
         "scanned": ("", "no")}

# For browsers: asks for the page again when the connection has been closed.
PAGE = """<!doctype html><title>waiting</title><script>
setTimeout(() => fetch('/' + location.search, {cache: 'no-store'})
  .then(answer => fetch('/reported' + location.search + '&status=' + answer.status)), 2000)</script>"""


def make_certificates(folder):
    """A root of its own, and a certificate of each kind for localhost."""
    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, cwd=folder, capture_output=True)
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "root.key")
    openssl("req", "-x509", "-new", "-key", "root.key", "-subj", "/CN=brisk clients root", "-days", "120", "-out", "root.pem",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ecdsa.key")
    openssl("genrsa", "-out", "rsa.key", "2048")
    (folder / "extensions").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n"
                                       "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n")
    for kind in CERTIFICATES:
        openssl("req", "-new", "-key", f"{kind}.key", "-subj", "/CN=localhost", "-out", f"{kind}.csr")
        openssl("x509", "-req", "-in", f"{kind}.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", "90",
                "-sha256", "-extfile", "extensions", "-out", f"{kind}.pem")
    os.chmod(folder / "rsa.key", 0o600)
    os.chmod(folder / "ecdsa.key", 0o600)


class Server:
    """brisk with one certificate, in one mode."""

    def __init__(self, certificate, mode, scratch):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.certificate, self.mode, self.ca = certificate, mode, scratch / "root.pem"
        self.folder = scratch / f"{certificate}-{mode}"
        self.folder.mkdir()
        tls, early = MODES[mode]
        text = CONFIGURATION.format(port=self.port, folder=self.folder, certificates=scratch, certificate=certificate, tls=tls,
                                    early=early, body=clients.BODY, idle="1m" if mode == "scanned" else "500ms", page=json.dumps(PAGE))
        (self.folder / "brisk.toml").write_text(text)
        log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen([BRISK, "serve", "--config", self.folder / "brisk.toml"], stdout=log, stderr=log)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"clients: brisk does not serve:\n{(self.folder / 'log').read_text(errors='replace')}")

    def close(self):
        self.process.terminate()
        self.process.wait()

    def lines(self, query):
        """What the access log has of requests with this query."""
        text = (self.folder / "access.log").read_text() if (self.folder / "access.log").exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if line.get("path") == "/?" + query]

    def awaited(self, query, visits):
        """The lines, which are written a moment after what they report."""
        for _ in range(40):
            lines = self.lines(query)
            if len(lines) >= visits:
                break
            time.sleep(0.05)
        return lines


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


def machine():
    release = Path("/etc/debian_version")
    system = f"Debian {release.read_text().strip()}" if release.exists() else platform.system()
    return f"{system}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].strip())
    parser.add_argument("--only", default="", help="restriction to clients with this word in their name")
    parser.add_argument("--output", help="file for the result [default: standard output]")
    parser.add_argument("--no-scanners", action="store_true", help="skip sslyze and testssl.sh")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brisk-clients-") as scratch:
        scratch = Path(scratch)
        make_certificates(scratch)
        servers = {(kind, mode): Server(kind, mode, scratch) for kind in CERTIFICATES for mode in MODES}
        results, missing = [], []
        try:
            for client in clients.every(CACHE, BRISK, scratch):
                if arguments.only not in client.slug:
                    continue
                try:
                    client.prepare()
                except clients.Impossible as reason:
                    missing.append((client.name, str(reason)))
                    continue
                cells = {}
                for version in VERSIONS:
                    for certificate in CERTIFICATES:
                        for kind in KINDS:
                            if (version, kind) in LOGGED:
                                cells[version, kind, certificate] = run_cell(client, (version, kind, certificate), servers)
                                state = cells[version, kind, certificate]
                                print(f"{client.slug} {version} {kind} {certificate}: {state['state']} "
                                      f"{'; '.join(state.get('complaints', []))}", file=sys.stderr)
                client.found = client.version()
                results.append((client, cells))
            scans = [] if arguments.no_scanners else report.scans(servers["ecdsa", "scanned"], servers["rsa", "scanned"], CACHE)
        finally:
            for server in servers.values():
                server.close()
    text = report.page(results, missing, scans, machine())
    if arguments.output:
        Path(arguments.output).write_text(text)
    else:
        print(text)
    failed = [client.name for client, cells in results if not client.fault
              for cell in cells.values() if cell["state"] == "fail"]
    if failed:
        sys.exit(f"clients: {len(failed)} cells failed: {', '.join(sorted(set(failed)))}")


if __name__ == "__main__":
    main()
