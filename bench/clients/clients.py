"""The clients of `run`: the command of each, and its report about connections."""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
LIMIT = 60

# What brisk answers with.
BODY = "agreed"


class Impossible(Exception):
    """The client cannot do this, or is not there."""


@dataclass
class Visit:
    """What a client is to do: `kind` is full, ticket, stored or early, and all but the first are two visits."""
    port: int
    ca: Path
    version: str
    kind: str
    path: str
    folder: Path
    page: str

    @property
    def url(self):
        return f"https://localhost:{self.port}{self.path}"

    @property
    def request(self):
        return f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    def scratch(self, name):
        """A file for one cell."""
        return self.folder / re.sub(r"[^A-Za-z0-9.]", "-", self.path + name)


@dataclass
class Client:
    """`stack` is the TLS library. `kinds` has what it can do, by version; `why` says why not more."""
    name: str
    stack: str
    program: str
    act: object
    kinds: dict
    why: str = ""
    mode: str | None = None
    fault: str = ""
    ready: object = None
    asked: tuple | None = None

    def version(self):
        """What its program says of itself, or nothing."""
        output = start(self.asked or [self.program, "--version"]).strip()
        found = re.search(r"\d+(\.\d+)+[a-z]?", output)
        return found.group(0) if found else ""

    @property
    def slug(self):
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def prepare(self):
        if shutil.which(self.program) is None and not Path(self.program).exists():
            raise Impossible(f"`{Path(self.program).name}` is not there")
        if self.ready:
            self.ready()

    def visit(self, visit):
        if visit.kind not in self.kinds.get(visit.version, ()):
            raise Impossible(self.why)
        return self.act(visit)


def start(command, standard_input=b"", env=None, limit=LIMIT):
    """Runs a program; its output, standard error after it."""
    try:
        done = subprocess.run([str(part) for part in command], input=standard_input, capture_output=True, timeout=limit,
                              env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired as late:
        return ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace") + f"\nstill running after {limit} s"
    return (done.stdout + done.stderr).decode(errors="replace")


def converse(command, standard_input, limit=LIMIT):
    """Runs a program that would end with its input; its output."""
    with subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        watchdog = threading.Timer(limit, process.kill)
        watchdog.start()
        process.stdin.write(standard_input)
        process.stdin.flush()
        output = process.stdout.read()
        watchdog.cancel()
    return output.decode(errors="replace")


def status_in(output):
    """The status line of the last HTTP/1.1 answer in it."""
    found = re.findall(r"HTTP/1\.1 (\d{3})", output)
    return int(found[-1]) if found else None


def program(command, *arguments, env=None):
    """One of ours: prints a line of JSON for each visit."""
    def act(visit):
        output = start([*command, *(value(visit) for value in arguments)], env=env)
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        wanted = 1 if visit.kind == "full" else 2
        if len(lines) < wanted:
            return {"status": None, "output": output}
        return {**lines[-1], "output": output}
    return act


URL, CA, PORT, PATH = (lambda v: v.url), (lambda v: v.ca), (lambda v: v.port), (lambda v: v.path)
VERSION, KIND = (lambda v: v.version), (lambda v: v.kind)


def fixed(text):
    return lambda _visit: text


def curl(visit):
    urls = [visit.url] * (1 if visit.kind == "full" else 2)
    closing = [] if visit.kind == "full" else ["--http1.1", "--header", "Connection: close"]
    output = start(["curl", "-sSv", "--noproxy", "*", "--cacert", visit.ca, f"--tlsv{visit.version}", "--tls-max", visit.version,
                    "-w", "status=%{http_code}\n", *closing, *urls])
    statuses = re.findall(r"status=(\d+)", output)
    return {"status": int(statuses[-1]) if statuses else None, "output": output}


def openssl(visit):
    session, early = visit.scratch("session"), visit.scratch("early")
    early.write_bytes(visit.request)
    base = ["openssl", "s_client", "-connect", f"localhost:{visit.port}", "-servername", "localhost", "-CAfile", visit.ca,
            "-verify_return_error", "-ign_eof", f"-tls{visit.version.replace('.', '_')}", "-alpn", "http/1.1"]
    if (visit.version, visit.kind) == ("1.2", "stored"):
        base.append("-no_ticket")
    output = start([*base, "-sess_out", session], visit.request)
    if visit.kind != "full":
        # With early data the request is in it.
        more, text = (["-early_data", early], b"") if visit.kind == "early" else ([], visit.request)
        output = start([*base, "-sess_in", session, *more], text)
    return {"status": status_in(output), "resumed": "\nReused, " in output, "output": output}


def gnutls(visit):
    early = visit.scratch("early")
    early.write_bytes(visit.request)
    command = ["gnutls-cli", "--port", visit.port, "--x509cafile", visit.ca, "--alpn", "http/1.1",
               "--priority", gnutls_priority(visit)]
    if visit.kind != "full":
        command += ["--resume"] + (["--waitresumption"] if visit.version == "1.3" else [])
    if (visit.version, visit.kind) == ("1.2", "stored"):
        command.append("--noticket")
    text = visit.request
    if visit.kind == "early":
        command, text = [*command, "--earlydata", early], b""
    output = start([*command, "localhost"], text)
    resumed = "*** This is a resumed session" in output
    # The first of two connections asks for nothing.
    return {"status": status_in(output), "resumed": resumed, "requests": 1, "output": output}


def nss(visit):
    """tstclnt asks once on each connection, and speaks first."""
    database, request = visit.scratch("nss"), visit.scratch("request")
    database.mkdir(exist_ok=True)
    start(["certutil", "-N", "-d", database, "--empty-password"])
    start(["certutil", "-A", "-d", database, "-n", "root", "-t", "C,,", "-a", "-i", visit.ca])
    request.write_bytes(visit.request)
    command = ["tstclnt", "-4", "-h", "localhost", "-p", visit.port, "-d", database, "-v",
               "-V", f"tls{visit.version}:tls{visit.version}", "-A", request]
    if visit.kind != "full":
        command += ["-L", "2"]
    if visit.kind == "ticket":
        command.append("-u")
    if visit.kind == "early":
        command.append("-Z")
    output = start(command)
    hits = re.findall(r"(\d+) cache hits", output)
    return {"status": status_in(output), "resumed": hits[-1:] == ["1"] or (visit.kind != "full" and None), "output": output}


def bench(brisk, visit):
    """The only client here on rustls. A handshake of another kind than asked for is an error of its report."""
    kind = {"full": "full", "early": "0-rtt", "stored": "session-id" if visit.version == "1.2" else "psk",
            "ticket": "ticket" if visit.version == "1.2" else "psk"}[visit.kind]
    output = start([brisk, "bench", visit.url, "--ca", visit.ca, "--tls", visit.version, "--mix", kind, "-r", "1", "-n", "1",
                    "-c", "1", "--warmup", "0", "--json"])
    result = json.loads(output[output.index("{"):output.rindex("}") + 1])
    bad = result["errors"] or not result["operations"]
    return {"status": None if bad else 200, "refills": True, "output": output}


def botan(visit):
    command = ["botan", "tls_client", "localhost", f"--port={visit.port}", f"--trusted-cas={visit.ca}", "--tls1.2",
               "--next-protocols=http/1.1", f"--session-db={visit.scratch('sessions')}", "--session-db-pass=none"]
    output = ""
    for _ in range(1 if visit.kind == "full" else 2):
        output = converse(command, visit.request)
    return {"status": status_in(output), "output": output}


def simple(command):
    """A client that requests once and shows the status line."""
    def act(visit):
        output = start(command(visit))
        return {"status": status_in(output), "output": output}
    return act


def gnutls_priority(visit):
    return f"NORMAL:-VERS-ALL:+VERS-TLS{visit.version}"


wget = simple(lambda visit: ["wget", "-S", "-O", "-", "--no-hsts", "--ca-certificate", visit.ca, "--ciphers",
                             gnutls_priority(visit), visit.url])
aria2 = simple(lambda visit: ["aria2c", "--ca-certificate", visit.ca, f"--min-tls-version=TLSv{visit.version}", "--dir",
                              visit.folder, "--allow-overwrite=true", "--out", visit.scratch("body").name,
                              "--console-log-level=info", visit.url])
lftp = simple(lambda visit: ["lftp", "-c", f"set ssl:ca-file {visit.ca}; set ssl:priority {gnutls_priority(visit)}; debug 5; "
                                           f"cat {visit.url}"])


def chromium(visit):
    """The key is named, so that neither its own list of authorities nor Certificate Transparency matter."""
    profile = visit.scratch("profile")
    pin = start(["sh", "-c", f"openssl x509 -in {visit.folder.parent}/{visit.folder.name.split('-')[0]}.pem -noout -pubkey | "
                 "openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl base64"]).strip()
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               "--disable-background-networking", f"--user-data-dir={profile}", f"--ignore-certificate-errors-spki-list={pin}",
               f"--ssl-version-max=tls{visit.version}"]
    if visit.kind == "full":
        output = start([*command, "--dump-dom", visit.url], env={"HOME": str(visit.folder)})
        return {"status": 200 if BODY in output else None, "output": output}
    if visit.kind == "early":
        command.append("--enable-features=EnableTLS13EarlyData")
    url = f"https://localhost:{visit.port}{visit.page}"
    log, status = visit.folder / "access.log", None
    with subprocess.Popen([*map(str, command), "--remote-debugging-port=0", url], env={**os.environ, "HOME": str(visit.folder)},
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        for _ in range(10 * LIMIT):
            # The page asks again when its connection is closed, and reports what it got.
            report = re.search(re.escape(visit.page.partition("?")[2]) + r"&status=(\d+)", log.read_text() if log.exists()
                               else "")
            if report or browser.poll() is not None:
                status = int(report.group(1)) if report else None
                break
            time.sleep(0.1)
        browser.terminate()
    return {"status": status, "requests": 1, "output": ""}


BOTH = {"1.2": ("full", "ticket", "stored"), "1.3": ("full", "ticket", "stored")}
FULL = {"1.2": ("full",), "1.3": ("full",)}
EARLY = {**BOTH, "1.3": ("full", "ticket", "stored", "early")}
NO_IDS = {"1.2": ("full", "ticket"), "1.3": ("full", "ticket", "stored")}
NO_EARLY = "its API has no early data"
ALONE = "it makes one connection at a time and keeps no session"


def compiled(scratch, name, *libraries):
    def ready():
        output = start(["cc", "-O1", "-o", scratch / name, PROGRAMS / f"{name}.c", *(f"-l{library}" for library in libraries)])
        if not (scratch / name).exists():
            raise Impossible(f"{name}.c does not compile: {output.strip().splitlines()[:1]}")
    return ready


def packaged(folder, module):
    """Python packages that tools/setup put into a folder."""
    def ready():
        output = start([sys.executable, "-c", f"import {module}"], env={"PYTHONPATH": str(folder)})
        if output:
            raise Impossible(f"Python's {module} is not there")
    return ready


def go_ready(scratch):
    output = start(["go", "build", "-o", scratch / "go-client", PROGRAMS / "client.go"],
                   env={"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}, limit=300)
    if not (scratch / "go-client").exists():
        raise Impossible(f"client.go does not build: {output.strip().splitlines()[:1]}")


def every(cache, brisk, scratch):
    """All clients; those with C, Go or Python packages are prepared first."""
    def python(name, script, module, kinds, why, stack, *arguments):
        folder = cache / module[1] if module else None
        env = {"PYTHONPATH": str(folder)} if folder else None
        installed = ("sh", "-c", f"ls {folder} | grep -i '^{name.replace('-', '_')}-.*dist-info'")
        return Client(name, stack, sys.executable, program([sys.executable, PROGRAMS / script], *arguments, env=env), kinds, why,
                      ready=packaged(folder, module[0]) if module else None,
                      asked=installed if module else None)

    node = lambda api, env=None: program(["node", PROGRAMS / "node.mjs"], fixed(api), URL, CA, VERSION, KIND, env=env)
    java = lambda api: program(["java", PROGRAMS / "Client.java"], fixed(api), URL, CA, VERSION, KIND)

    def fetch(visit):
        flags = [f"--tls-min-v{visit.version}", f"--tls-max-v{visit.version}"]
        return program(["node", *flags, PROGRAMS / "node.mjs"], fixed("fetch"), URL, CA, VERSION, KIND,
                       env={"NODE_EXTRA_CA_CERTS": str(visit.ca)})(visit)

    wolfssl = program([scratch / "wolfssl"], PORT, CA, VERSION, KIND, PATH)
    mbedtls = program([scratch / "mbedtls"], PORT, CA, VERSION, KIND, PATH)
    return [
        Client("curl", "OpenSSL 3", "curl", curl, {"1.2": ("full", "stored"), "1.3": ("full", "ticket", "stored")},
               "curl 7.88 switches tickets of TLS 1.2 off and has no early data"),
        Client("openssl s_client", "OpenSSL 3", "openssl", openssl, EARLY, asked=("openssl", "version")),
        Client("gnutls-cli", "GnuTLS", "gnutls-cli", gnutls, EARLY),
        Client("wget", "GnuTLS", "wget", wget, FULL, ALONE),
        Client("lftp", "GnuTLS", "lftp", lftp, FULL, ALONE),
        Client("aria2", "GnuTLS", "aria2c", aria2, {"1.3": ("full",)}, "it has a least version only, and keeps no session"),
        Client("tstclnt", "NSS", "tstclnt", nss, EARLY, asked=("dpkg-query", "-W", "-f", "${Version}", "libnss3-tools")),
        Client("wolfSSL", "wolfSSL", "cc", wolfssl, {"1.2": ("full", "ticket", "stored"), "1.3": ("full",)},
               "without a first ticket there is nothing to resume", ready=compiled(scratch, "wolfssl", "wolfssl"),
               asked=("dpkg-query", "-W", "-f", "${Version}", "libwolfssl-dev"),
               fault="TLS 1.3: wolfSSL ends the connection at a ticket whose nonce has more than 8 bytes, which RFC 8446 section "
                     "4.6.1 allows (docs/wolfssl.md)"),
        Client("wolfSSL (tickets_per_handshake = 0)", "wolfSSL", "cc", wolfssl, {"1.3": ("full",)},
               "the server sends no tickets to this client", mode="no-1.3-tickets", ready=compiled(scratch, "wolfssl", "wolfssl"),
               asked=("dpkg-query", "-W", "-f", "${Version}", "libwolfssl-dev")),
        Client("mbed TLS", "mbed TLS", "cc", mbedtls, {"1.2": ("full", "ticket", "stored")}, "Debian's 2.28 has no TLS 1.3",
               ready=compiled(scratch, "mbedtls", "mbedtls", "mbedx509", "mbedcrypto"),
               asked=("dpkg-query", "-W", "-f", "${Version}", "libmbedtls-dev")),
        Client("botan tls_client", "Botan", "botan", botan, {"1.2": ("full", "ticket")},
               "Debian's 2.19 has no TLS 1.3, and its program has no switch for tickets"),
        Client("Go net/http", "Go crypto/tls", "go", program([scratch / "go-client"], URL, CA, VERSION, KIND), NO_IDS,
               "Go resumes TLS 1.2 by ticket only, and has no early data", ready=functools.partial(go_ready, scratch),
               asked=("go", "version")),
        Client("Node https", "OpenSSL 3", "node", node("https"), {"1.2": ("full", "ticket"), "1.3": ("full", "ticket", "stored")},
               "Node has no switch for tickets of TLS 1.2, and no early data"),
        Client("Node http2", "OpenSSL 3", "node", node("http2"), NO_IDS,
               "Node has no switch for tickets of TLS 1.2, and no early data"),
        Client("Node fetch (undici)", "OpenSSL 3", "node", fetch, FULL, "it keeps no sessions that a program could choose"),
        Client("Java HttpsURLConnection", "JSSE", "java", java("HttpsURLConnection"), BOTH, NO_EARLY),
        Client("Java HttpClient", "JSSE", "java", java("HttpClient"), FULL, "it keeps its connection"),
        Client("brisk bench", "rustls", brisk, functools.partial(bench, brisk), EARLY),
        Client("Chromium", "BoringSSL", "chromium", chromium,
               {"1.2": ("full", "ticket"), "1.3": ("full", "ticket", "stored", "early")},
               "it always asks for tickets in TLS 1.2"),
        python("curl_cffi", "boringssl.py", ("curl_cffi", "boringssl"), NO_IDS,
               "it always asks for tickets in TLS 1.2, and has no early data",
               "BoringSSL", URL, CA, VERSION, KIND),
        python("Python ssl", "stdlib.py", None, BOTH, NO_EARLY, "OpenSSL 3", URL, CA, VERSION, KIND),
        python("pyOpenSSL", "pyopenssl.py", ("OpenSSL", "openssl11"), BOTH, NO_EARLY, "OpenSSL 1.1.1", URL, CA, VERSION, KIND),
        python("tlslite-ng", "tlslite_ng.py", ("tlslite", "tlslite"), NO_IDS,
               "its client asks for tickets, and has no early data", "tlslite-ng", URL, CA, VERSION, KIND),
        python("awscrt", "s2n.py", ("awscrt", "s2n"), {"1.3": ("full",)}, "it shows neither versions nor sessions", "s2n-tls",
               URL, CA, VERSION),
        Client("Perl IO::Socket::SSL", "OpenSSL 3", "perl",
               program(["perl", PROGRAMS / "perl.pl"], PORT, CA, VERSION, KIND, PATH), BOTH, NO_EARLY),
        Client("Ruby OpenSSL", "OpenSSL 3", "ruby",
               program(["ruby", PROGRAMS / "ruby.rb"], URL, CA, VERSION, KIND), BOTH, NO_EARLY),
        Client("PHP streams", "OpenSSL 3", "php", program(["php", PROGRAMS / "php.php"], URL, CA, VERSION), FULL,
               "they keep no session"),
    ]
