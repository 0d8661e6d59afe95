"""Compares the findings of `brisk probe --audit` with those of testssl.sh.

Starts nginx and openssl s_server, each with one fault, and one server without a fault. Both programs examine each server, one
after the other. The table has the findings of both for every fault, and the reason for each difference.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shared import programs
from shared.certificates import AUTHORITY, openssl as run_openssl, server, sign
from shared.figures import page, table
from shared.processes import Process, free_port
from shared.programs import BRISK
from shared.servers import Server

NEEDS = "test"
OPTIONS = [("--only", "", "restriction to faults with this word in their name")]
# Settings of an nginx without a fault.
RIGHT = {"PROTOCOLS": "TLSv1.2 TLSv1.3", "CIPHERS": "ECDHE+AESGCM:ECDHE+CHACHA20",
         "HEADERS": "add_header Strict-Transport-Security max-age=31536000 always;", "MORE": ""}

# Sections of testssl.sh: all of it takes minutes for each server. The right server gets all.
SECTIONS = {"TLS1": ["-p"], "HSTS": ["-h"], "DH_groups": ["-P", "-f", "-J"], "secure_client_renego": ["-R"],
            "cipherlist_AVERAGE": ["-s"]}
EVERYTHING = ["-p", "-s", "-f", "-P", "-S", "-h", "-U"]

# Fault, the ID of brisk, IDs of testssl.sh that stand for the same (none: it does not look), and why they differ if they do.
CASES = [
    ("none", None, [], ""),
    ("TLS 1.0", "protocol-tls10", ["TLS1"], ""),
    ("suites without forward secrecy", "suite-no-forward-secrecy", ["cipherlist_AVERAGE", "cipherlist_OBSOLETED"],
     "testssl.sh counts CBC suites, not the missing forward secrecy of those with GCM"),
    ("no HSTS", "hsts-missing", ["HSTS"], ""),
    ("RSA certificate only", "certificate-no-ecdsa", [], "testssl.sh has no such advice: it is about cost, not security"),
    ("certificate expired", "certificate-expired", ["cert_expirationStatus", "cert_notAfter", "cert_validityPeriod"], ""),
    ("certificate of another name", "certificate-name", ["cert_trust"], ""),
    ("intermediate missing", "chain-incomplete", ["cert_chain_of_trust"], ""),
    ("chain in the wrong order", "chain-order", ["certs_list_ordering_problem"], ""),
    ("a stray certificate", "chain-stray", ["certs_list_ordering_problem"], ""),
    ("certificate signed with SHA-1", "certificate-sha1", ["cert_signatureAlgorithm"], ""),
    ("staple that is stale", "staple-wrong", ["OCSP_stapling"],
     "testssl.sh 3.0.8 reports that there is a staple, and does not verify it"),
    ("Diffie-Hellman of 1024 bits", "dh-small", ["DH_groups", "LOGJAM", "LOGJAM-common_primes", "DHE_groups", "PFS_DHE_groups"],
     ""),
    ("renegotiation by clients", "renegotiation-by-client", ["secure_client_renego"], ""),
    ("early data, replayable", "early-data-replayed", [], "testssl.sh 3.0.8 sends no early data"),
    ("ticket key that stays", "ticket-keys-fixed", [], "testssl.sh 3.0.8 does not watch tickets"),
]


class Authority:
    """A root, an intermediate, and what they sign."""

    def __init__(self, folder):
        self.folder = folder
        sign(folder, "root", "audit root", None, AUTHORITY, days=3650)
        sign(folder, "intermediate", "audit intermediate", "root", AUTHORITY, days=90)

    def path(self, name):
        return self.folder / name

    def leaf(self, name, host="localhost", extensions=(), **more):
        extensions = server(host, "authorityKeyIdentifier=keyid", *extensions)
        sign(self.folder, name, host, "intermediate", extensions, **{"days": 90, **more})

    def chain(self, name, *others):
        parts = [name, *(others or ["intermediate"])]
        file = self.path(name + "-chain.pem")
        file.write_text("".join(self.path(part + ".pem").read_text() for part in parts if part))
        return file

    def stale_staple(self, name):
        """An OCSP response that ends before this returns: a minute is the shortest life that openssl gives."""
        index = self.path("index.txt")
        serial = run_openssl(self.folder, "x509", "-in", f"{name}.pem", "-noout", "-serial").stdout.decode().strip().split("=")[1]
        index.write_text(f"V\t350101000000Z\t\t{serial}\tunknown\t/CN=localhost\n")
        issuer = "intermediate.pem"
        run_openssl(self.folder, "ocsp", "-issuer", issuer, "-cert", f"{name}.pem", "-reqout", "request")
        run_openssl(self.folder, "ocsp", "-index", index, "-rsigner", issuer, "-rkey", "intermediate.key", "-CA", issuer,
                    "-reqin", "request", "-respout", "response", "-nmin", "1")
        time.sleep(62)
        return self.path("response")


def nginx(ca, chain, key, **changes):
    return Server("servers/audit.conf", ca.folder, CHAIN=chain, KEY=key, **{**RIGHT, **changes})


def openssl(ca, chain, key, *options):
    port = free_port()
    words = ["openssl", "s_server", "-www", "-accept", f"127.0.0.1:{port}", "-cert", chain, "-cert_chain",
             ca.path("intermediate.pem"), "-key", key, *options]
    return Process(words, ca.path("log"), port)


def start(fault, ca):
    """The server with this fault."""
    def own(name="own", **more):
        if not ca.path(name + ".pem").exists():
            ca.leaf(name, **more)
        return ca.path(name + ".key")

    key, chain = own(), ca.chain("own")
    if fault == "TLS 1.0":
        return nginx(ca, chain, key, PROTOCOLS="TLSv1 TLSv1.2 TLSv1.3", CIPHERS="ECDHE:!eNULL:!aNULL:@SECLEVEL=0")
    if fault == "suites without forward secrecy":
        key = own("rsa", bits=2048)
        return nginx(ca, ca.chain("rsa"), key, CIPHERS="ECDHE+AESGCM:kRSA+AESGCM")
    if fault == "no HSTS":
        return nginx(ca, chain, key, HEADERS="")
    if fault == "RSA certificate only":
        key = own("rsa", bits=2048)
        return nginx(ca, ca.chain("rsa"), key)
    if fault == "certificate expired":
        key = own("expired", days="-1")
        return nginx(ca, ca.chain("expired"), key)
    if fault == "certificate of another name":
        key = own("other", host="other.test")
        return nginx(ca, ca.chain("other"), key)
    if fault == "intermediate missing":
        # As those of public authorities, the certificate has the URL of its issuer. Without it, brisk reports no missing one.
        key = own("alone", extensions=["authorityInfoAccess=caIssuers;URI:http://127.0.0.1:9/issuer"])
        return nginx(ca, ca.chain("alone", ""), key)
    if fault == "chain in the wrong order":
        return nginx(ca, ca.chain("own", "root", "intermediate"), key)
    if fault == "a stray certificate":
        own("other", host="other.test")
        return nginx(ca, ca.chain("own", "intermediate", "other"), key)
    if fault == "certificate signed with SHA-1":
        key = own("sha1", digest="sha1", bits=2048)
        return openssl(ca, ca.chain("sha1"), key, "-cipher", "ECDHE+AESGCM:@SECLEVEL=0")
    if fault == "staple that is stale":
        more = f"ssl_stapling on;\nssl_stapling_file {ca.stale_staple('own')};"
        return nginx(ca, chain, key, MORE=more)
    if fault == "Diffie-Hellman of 1024 bits":
        key = own("rsa", bits=2048)
        run_openssl(ca.folder, "dhparam", "-dsaparam", "-out", "dh.pem", "1024")
        return nginx(ca, ca.chain("rsa"), key, CIPHERS="ECDHE+AESGCM:DHE+AESGCM:@SECLEVEL=0",
                     MORE=f"ssl_dhparam {ca.path('dh.pem')};")
    if fault == "renegotiation by clients":
        return openssl(ca, chain, key, "-client_renegotiation", "-cipher", "ECDHE+AESGCM")
    if fault == "early data, replayable":
        return nginx(ca, chain, key, MORE="ssl_early_data on;")
    if fault == "ticket key that stays":
        ca.path("ticket.key").write_bytes(bytes(80))
        return nginx(ca, chain, key, MORE=f"ssl_session_ticket_key {ca.path('ticket.key')};")
    return nginx(ca, chain, key)


def by_brisk(port, ca, watch):
    words = [BRISK, "probe", f"https://localhost:{port}/", "--audit", "--json", "--connect", "127.0.0.1", "--http-port", "0",
             "--ca", ca.path("root.pem"), "--timeout", "300", *(["--watch", "3s"] if watch else [])]
    begun = time.monotonic()
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{words}: {ended.stderr}")
    audit = json.loads(ended.stdout)
    return audit, time.monotonic() - begun


def by_testssl(port, ca, sections):
    report = ca.path("testssl.json")
    report.unlink(missing_ok=True)
    words = ["testssl", "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none", "--ip", "127.0.0.1", "--add-ca",
             ca.path("root.pem"), "--jsonfile", report, *sections, f"localhost:{port}"]
    begun = time.monotonic()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ca.folder,
                   env={**os.environ, "TERM": "dumb"})
    found = json.loads(report.read_text())
    bad = [one for one in found if one["severity"] in ("LOW", "MEDIUM", "HIGH", "CRITICAL")]
    return bad, time.monotonic() - begun


def examine(fault, own, theirs, why, ca):
    """The row of the fault, the row of other findings, and the seconds of both programs."""
    with start(fault, ca) as target:
        audit, brisk_time = by_brisk(target.port, ca, own == "ticket-keys-fixed")
        sections = EVERYTHING if own is None else SECTIONS.get(next(iter(theirs), ""), ["-S"])
        bad, testssl_time = by_testssl(target.port, ca, sections)
    ids = [one["id"] for one in audit["findings"]]
    above = [one["id"] for one in audit["findings"] if one["severity"] != "info"]
    same = [one for one in bad if one["id"].split(" ")[0] in theirs]
    brisk_found = own is None and not above or own in ids
    agree = brisk_found and (own is None or bool(same))
    said = "; ".join(sorted({f"{one['id'].split(' ')[0]}: {one['finding']}" for one in same}))[:120] or "-"
    row = [fault, own or "nothing", "yes" if brisk_found else "NO", said, "yes" if agree else f"no: {why}" if why else "NO"]
    others = sorted({one["id"].split(" ")[0] for one in bad if one not in same})
    return row, [fault, ", ".join(one for one in above if one != own) or "-", ", ".join(others)
                 or "-"], [brisk_time, testssl_time]


def run(arguments):
    programs.require(BRISK)
    with tempfile.TemporaryDirectory(prefix="brisk-audit-") as folder:
        ca, found = Authority(Path(folder)), []
        for case in CASES:
            if arguments.only in case[0]:
                found.append(examine(*case, ca))
                print(*found[-1], file=sys.stderr, flush=True)
    rows, others, times = zip(*found)
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    text = page("audit", rows=table(["fault", "ID", "brisk", "testssl.sh", "they agree"], escaped, left=5),
                others=table(["fault", "brisk, above `info`", "testssl.sh, above INFO"], others, left=3),
                brisk=sum(brisk for brisk, _ in times), testssl=sum(testssl for _, testssl in times))
    return text, "some findings are missing" if any("NO" in (row[2], row[4]) for row in rows) else None
