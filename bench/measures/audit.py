#!/usr/bin/env python3
"""Compares the findings of `brisk probe --audit` with those of testssl.sh.

Starts nginx and openssl s_server, each with one fault, and one server without a fault. Both programs examine each server, one
after the other. Writes a table (Markdown) with the findings of both for every fault, and the reason for each difference.
`make audit` calls this script.

usage: run [--only WORD] [--output FILE]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from processes import free_port, listens

CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))

# Settings of an nginx without a fault.
RIGHT = {"protocols": "TLSv1.2 TLSv1.3", "ciphers": "ECDHE+AESGCM:ECDHE+CHACHA20",
         "headers": "add_header Strict-Transport-Security max-age=31536000 always;", "more": ""}

NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {chain};
    ssl_certificate_key {key};
    ssl_protocols {protocols};
    ssl_ciphers {ciphers};
    {headers}
    {more}
    location / {{ return 200 "right"; }}
  }}
}}
"""

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
    ("staple that is stale", "staple-wrong", ["OCSP_stapling"], "testssl.sh 3.0.8 reports that there is a staple, and does not verify it"),
    ("Diffie-Hellman of 1024 bits", "dh-small", ["DH_groups", "LOGJAM", "LOGJAM-common_primes", "DHE_groups", "PFS_DHE_groups"], ""),
    ("renegotiation by clients", "renegotiation-by-client", ["secure_client_renego"], ""),
    ("early data, replayable", "early-data-replayed", [], "testssl.sh 3.0.8 sends no early data"),
    ("ticket key that stays", "ticket-keys-fixed", [], "testssl.sh 3.0.8 does not watch tickets"),
]


# Why one finds what the other does not, beside the faults.
WHY_ELSE = ["- `cert_revocation`: the CA of this run offers no revocation, as none does that is not public; brisk judges staples only.",
            "- `cipher_order`: every suite that clients may choose from is a good one, so brisk has nothing against their order.",
            "- `security_headers`: `headers-missing` of brisk, which is `info`.",
            "- `TLS1_1`: testssl.sh holds against a server that it has TLS 1.0 and not TLS 1.1; brisk holds TLS 1.0 against it.",
            "- `cert_chain_of_trust` of what has expired: brisk names the cause once.",
            "- `scheme-sha1`, `suite-client-order`, `suite-cbc-tls10`, `certificate-no-ecdsa`, `certificate-untrusted`: they come with the",
            "  settings that let OpenSSL have the fault (security level 0), or with its certificate; testssl.sh was asked for other sections."]


def run(*words, **more):
    return subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


class Authority:
    """A root, an intermediate, and what they sign."""

    def __init__(self, folder):
        self.folder = folder
        self.path("ca.cnf").write_text("[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n"
                                       "subjectKeyIdentifier=hash\n")
        self.key("root")
        run("openssl", "req", "-x509", "-key", self.path("root.key"), "-days", "3650", "-subj", "/CN=audit root",
            "-out", self.path("root.pem"), "-addext", "keyUsage=keyCertSign,cRLSign")
        self.issue("intermediate", "root", "ca", "/CN=audit intermediate")

    def path(self, name):
        return self.folder / name

    def key(self, name, rsa=False):
        kind = ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if rsa else ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
        run("openssl", "genpkey", "-algorithm", *kind, "-out", self.path(name + ".key"))

    def issue(self, name, issuer, section, subject, days="90", digest="-sha256", rsa=False):
        self.key(name, rsa)
        run("openssl", "req", "-new", "-key", self.path(name + ".key"), "-subj", subject, "-out", self.path(name + ".csr"))
        run("openssl", "x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path(issuer + ".pem"), "-CAkey",
            self.path(issuer + ".key"), "-CAcreateserial", "-days", days, digest, "-extfile", self.path("ca.cnf"),
            "-extensions", section, "-out", self.path(name + ".pem"))

    def leaf(self, name, host="localhost", extensions="", **more):
        with self.path("ca.cnf").open("a") as config:
            config.write(f"[{name}]\nsubjectAltName=DNS:{host}\nextendedKeyUsage=serverAuth\n"
                         f"authorityKeyIdentifier=keyid\n{extensions}\n")
        self.issue(name, "intermediate", name, f"/CN={host}", **more)

    def chain(self, name, *others):
        parts = [name, *(others or ["intermediate"])]
        file = self.path(name + "-chain.pem")
        file.write_text("".join(self.path(part + ".pem").read_text() for part in parts if part))
        return file

    def stale_staple(self, name):
        """An OCSP response that ends before this returns: a minute is the shortest life that openssl gives."""
        index = self.path("index.txt")
        serial = subprocess.run(["openssl", "x509", "-in", self.path(name + ".pem"), "-noout", "-serial"], check=True,
                                capture_output=True, text=True).stdout.strip().split("=")[1]
        index.write_text(f"V\t350101000000Z\t\t{serial}\tunknown\t/CN=localhost\n")
        request, response = self.path(name + ".req"), self.path(name + ".ocsp")
        issuer = self.path("intermediate.pem")
        run("openssl", "ocsp", "-issuer", issuer, "-cert", self.path(name + ".pem"), "-reqout", request)
        run("openssl", "ocsp", "-index", index, "-rsigner", issuer, "-rkey", self.path("intermediate.key"), "-CA", issuer,
            "-reqin", request, "-respout", response, "-nmin", "1")
        time.sleep(62)
        return response


def wait(port, process):
    if not listens(process, port, 10):
        ended = process.poll() is not None
        raise SystemExit(f"a server ended with {process.returncode}" if ended else "a server does not listen")


def nginx(ca, chain, key, **changes):
    port = free_port()
    text = NGINX.format(folder=ca.folder, port=port, chain=chain, key=key, **{**RIGHT, **changes})
    ca.path("nginx.conf").write_text(text)
    process = subprocess.Popen(["nginx", "-c", ca.path("nginx.conf"), "-p", ca.folder, "-e", "stderr"],
                               stderr=subprocess.DEVNULL)
    return process, port


def openssl(ca, chain, key, *options):
    port = free_port()
    words = ["openssl", "s_server", "-www", "-accept", f"127.0.0.1:{port}", "-cert", chain, "-cert_chain", ca.path("intermediate.pem"), "-key", key,
             *options]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), port


def start(fault, ca):
    """The server with this fault, and its port."""
    def own(name="own", **more):
        if not ca.path(name + ".pem").exists():
            ca.leaf(name, **more)
        return ca.path(name + ".key")

    key, chain = own(), ca.chain("own")
    if fault == "TLS 1.0":
        return nginx(ca, chain, key, protocols="TLSv1 TLSv1.2 TLSv1.3", ciphers="ECDHE:!eNULL:!aNULL:@SECLEVEL=0")
    if fault == "suites without forward secrecy":
        key = own("rsa", rsa=True)
        return nginx(ca, ca.chain("rsa"), key, ciphers="ECDHE+AESGCM:kRSA+AESGCM")
    if fault == "no HSTS":
        return nginx(ca, chain, key, headers="")
    if fault == "RSA certificate only":
        key = own("rsa", rsa=True)
        return nginx(ca, ca.chain("rsa"), key)
    if fault == "certificate expired":
        key = own("expired", days="-1")
        return nginx(ca, ca.chain("expired"), key)
    if fault == "certificate of another name":
        key = own("other", host="other.test")
        return nginx(ca, ca.chain("other"), key)
    if fault == "intermediate missing":
        # As those of public authorities, the certificate says where that of its issuer is. Without it, brisk reports no missing one.
        key = own("alone", extensions="authorityInfoAccess=caIssuers;URI:http://127.0.0.1:9/issuer")
        return nginx(ca, ca.chain("alone", ""), key)
    if fault == "chain in the wrong order":
        return nginx(ca, ca.chain("own", "root", "intermediate"), key)
    if fault == "a stray certificate":
        own("other", host="other.test")
        return nginx(ca, ca.chain("own", "intermediate", "other"), key)
    if fault == "certificate signed with SHA-1":
        key = own("sha1", digest="-sha1", rsa=True)
        return openssl(ca, ca.chain("sha1"), key, "-cipher", "ECDHE+AESGCM:@SECLEVEL=0")
    if fault == "staple that is stale":
        more = f"ssl_stapling on;\nssl_stapling_file {ca.stale_staple('own')};"
        return nginx(ca, chain, key, more=more)
    if fault == "Diffie-Hellman of 1024 bits":
        key = own("rsa", rsa=True)
        run("openssl", "dhparam", "-dsaparam", "-out", ca.path("dh.pem"), "1024")
        return nginx(ca, ca.chain("rsa"), key, ciphers="ECDHE+AESGCM:DHE+AESGCM:@SECLEVEL=0",
                     more=f"ssl_dhparam {ca.path('dh.pem')};")
    if fault == "renegotiation by clients":
        return openssl(ca, chain, key, "-client_renegotiation", "-cipher", "ECDHE+AESGCM")
    if fault == "early data, replayable":
        return nginx(ca, chain, key, more="ssl_early_data on;")
    if fault == "ticket key that stays":
        ca.path("ticket.key").write_bytes(bytes(80))
        return nginx(ca, chain, key, more=f"ssl_session_ticket_key {ca.path('ticket.key')};")
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="restriction to faults with this word in their name")
    parser.add_argument("--output", type=Path, help="file for the result [default: standard output]")
    arguments = parser.parse_args()
    rows, others, times = [], [], [0.0, 0.0]
    with tempfile.TemporaryDirectory(prefix="brisk-audit-") as folder:
        ca = Authority(Path(folder))
        for fault, own, theirs, why in CASES:
            if arguments.only not in fault:
                continue
            process, port = start(fault, ca)
            try:
                wait(port, process)
                audit, brisk_time = by_brisk(port, ca, own == "ticket-keys-fixed")
                sections = EVERYTHING if own is None else SECTIONS.get(next(iter(theirs), ""), ["-S"])
                bad, testssl_time = by_testssl(port, ca, sections)
            finally:
                process.terminate()
                process.wait()
            times = [times[0] + brisk_time, times[1] + testssl_time]
            ids = [one["id"] for one in audit["findings"]]
            above = [one["id"] for one in audit["findings"] if one["severity"] != "info"]
            same = [one for one in bad if one["id"].split(" ")[0] in theirs]
            brisk_found = own is None and not above or own in ids
            testssl_found = bool(same) if theirs else None
            agree = brisk_found and (own is None or testssl_found)
            said = "; ".join(sorted({f"{one['id'].split(' ')[0]}: {one['finding']}" for one in same}))[:120] or "-"
            rows.append((fault, own or "nothing", "yes" if brisk_found else "NO", said,
                         "yes" if agree else f"no: {why}" if why else "NO"))
            others.append((fault, [id for id in above if id != own],
                           sorted({one["id"].split(" ")[0] for one in bad if one not in same})))
            print(rows[-1], others[-1], f"{brisk_time:.0f} s, {testssl_time:.0f} s", file=sys.stderr, flush=True)
    lines = ["# What `brisk probe --audit` and testssl.sh find", "",
             "nginx 1.22 and openssl s_server 3.0 with one fault each, judged by `brisk probe --audit` and by testssl.sh 3.0.8 in the same",
             "run (`make audit`). [audit.md](../audit.md) says what the IDs mean. testssl.sh judges the right server by all of its sections, those with",
             "a fault by the sections that are about it.", "",
             "| fault | ID | brisk | testssl.sh | they agree |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines += ["", "## What else each found", "", "| fault | brisk, above `info` | testssl.sh, above INFO |", "|---|---|---|"]
    lines += [f"| {fault} | {', '.join(ours) or '-'} | {', '.join(theirs) or '-'} |" for fault, ours, theirs in others]
    lines += ["", *WHY_ELSE, "", f"All of it took brisk {times[0]:.0f} s and testssl.sh {times[1]:.0f} s.", ""]
    text = "\n".join(lines)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)
    sys.exit(any(row[2] == "NO" or row[4] == "NO" for row in rows))


if __name__ == "__main__":
    main()
