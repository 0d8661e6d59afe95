"""Compares `brisk probe` with `curl -w` (times) and with `openssl s_client -msg` (messages).

Six servers run at the far end of a link with a round trip of 20 ms (crates/base/link). curl and brisk probe alternately connect
to each of them and request a page again on the same connection. Medians agree if they differ by at most 5 % or 1 ms. Then both
programs list the handshake messages of the server with their bytes, for TLS 1.2 and 1.3. Servers that are not installed are
skipped. Takes two minutes.
"""
import json
import re
import statistics
import subprocess
import sys
import tempfile

from shared import certificates, programs
from shared.figures import page, table
from shared.link import SERVER, Link
from shared.processes import Process
from shared.programs import BRISK, LINK
from shared.servers import Server, program

NEEDS, BUILDS = "test peers", "--package brisk-link"
OPTIONS = [("--rounds", 21, "number of rounds"), ("--round-trip", 20.0, "round-trip time of the link in ms")]
NAME, PORT = "site.test", 8443
NAMES = ["namelookup", "connect", "appconnect", "pretransfer", "starttransfer", "total"]
RELATIVE, ABSOLUTE = 0.05, 1.0
# Bytes that a share of ML-KEM-768 adds to a ServerHello, and by which signatures of ECDSA differ from one another.
CIPHERTEXT, SIGNATURE = 1088, 4
TEMPLATES = {"nginx": "conf", "haproxy": "cfg", "caddy": "Caddyfile", "h2o": "h2o", "brisk": "toml", "openssl": None}


def server(name, link, folder):
    """A server at the far end of the link, which is ready when it responds to curl."""
    def ready():
        try:
            return curl(link, folder)
        except subprocess.CalledProcessError:
            return False
    certificate = folder / NAME
    if name == "openssl":
        command = ["openssl", "s_server", "-www", "-quiet", "-accept", f"{SERVER}:{PORT}", "-cert", f"{certificate}.pem",
                   "-cert_chain", folder / "intermediate.pem", "-key", f"{certificate}.key"]
        return Process(command, folder / "openssl.log", PORT, SERVER, ready, link.server)
    return Server(f"servers/probe.{TEMPLATES[name]}", folder / name, prefix=link.server, ready=ready, ADDRESS=SERVER, PORT=PORT,
                  NAME=NAME, CERTIFICATE=certificate, FILES=folder / "www")


def curl(link, folder):
    """Times of a first and of a kept connection, in milliseconds. A connection before them has OpenSSL prepare what it needs once
    for a process, as brisk probe does before it begins."""
    form = " ".join("%{time_" + name + "}" for name in NAMES) + "\\n"
    url = f"https://{NAME}:{PORT}/"
    each = ["--silent", "--show-error", "--noproxy", "*", "--http1.1", "--tlsv1.3", "--no-sessionid", "--cacert",
            folder / "root.pem", "--connect-to", f"::{SERVER}:", "--write-out", form, "--output", "/dev/null", url]
    words = ["curl", *each, "--header", "Connection: close", "--next", *each, "--next", *each]
    lines = subprocess.run(link.client(*words), check=True, capture_output=True, text=True).stdout.splitlines()
    return [[float(word) * 1000 for word in line.split()] for line in lines[1:]]


def probe(link, folder):
    words = [BRISK, "probe", f"https://{NAME}:{PORT}/", "--connect", SERVER, "--ca", folder / "root.pem", "--http1", "--timing",
             "-n", 1, "--json"]
    done = subprocess.run(link.client(*words), check=True, capture_output=True, text=True)
    columns = {column["kind"]: [time["median"] for time in column["times"]] for column in json.loads(done.stdout)["columns"]}
    return [columns["first"], columns["kept"]]


def messages(link, folder, version):
    """The messages of a handshake as `brisk probe` and as `openssl s_client` list them: name and bytes. Left out is what OpenSSL
    before 3.5 has no word for: the share of ML-KEM, and tickets of TLS 1.3, for which s_client does not wait. OpenSSL
    before 3.2 takes no compressed certificates."""
    words = [BRISK, "probe", f"https://{NAME}:{PORT}/", "--connect", SERVER, "--ca", folder / "root.pem", "--tls", version,
             "--json"]
    done = subprocess.run(link.client(*words), check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    tls, other = report["tls"], ("application_data", "change_cipher_spec")
    ours = [(step["name"], step["bytes"]) for step in report["steps"]
            if step["from"] == "server" and step["name"] not in other and not step["name"].startswith("alert")]
    words = ["openssl", "s_client", "-msg", "-tls" + version.replace(".", "_"), "-alpn", "h2,http/1.1", "-status", "-groups",
             "X25519:P-256",
             *(["-ciphersuites", tls["suite"]] if version == "1.3" else []), "-servername", NAME, "-connect", f"{SERVER}:{PORT}"]
    done = subprocess.run(link.client(*words), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    theirs = [(name, int(length, 16)) for length, name in
              re.findall(r"^<<< TLS [0-9.]+, Handshake \[length ([0-9a-f]+)\], (\w+)", done.stdout, re.M)]
    if version == "1.3":
        ours, theirs = ([message for message in side if message[0] != "NewSessionTicket"] for side in (ours, theirs))
        if theirs and tls["group"] == "X25519MLKEM768":
            theirs[0] = (theirs[0][0], theirs[0][1] + CIPHERTEXT)
    return ours, theirs


def same(ours, theirs):
    """Whether both are the same. The length of a certificate that either side got compressed is not compared: they take other
    algorithms."""
    kinds = ("Certificate", "CompressedCertificate")
    if any(name == kinds[1] for name, _ in ours + theirs):
        ours, theirs = ([(kinds[0], 0) if message[0] in kinds else message for message in side] for side in (ours, theirs))

    def near(one, other):
        signed = one[0] in ("ServerKeyExchange", "CertificateVerify")
        return one[0] == other[0] and abs(one[1] - other[1]) <= (SIGNATURE if signed else 0)
    return len(ours) == len(theirs) > 3 and all(map(near, ours, theirs))


def measure(name, link, folder, rounds):
    with server(name, link, folder):
        turns = [(curl(link, folder), probe(link, folder)) for _ in range(rounds)]
        lists = [(name, version, *messages(link, folder, version)) for version in ("1.2", "1.3")]
    median = lambda tool, kind, index: statistics.median(turn[tool][kind][index] for turn in turns)
    kinds = range(1 if name == "openssl" else 2)
    return [(name, ["first", "kept"][kind], NAMES[index], median(0, kind, index), median(1, kind, index))
            for kind in kinds for index in range(len(NAMES)) if not (kind and index < 3)], lists


def agree(ours, theirs):
    return abs(ours - theirs) <= max(ABSOLUTE, RELATIVE * theirs)


def answer(right, otherwise="NO"):
    return "yes" if right else otherwise


def run(options):
    programs.require(BRISK, LINK)
    rows, lists = [], []
    with tempfile.TemporaryDirectory() as folder, Link(options.round_trip, 100_000_000) as link:
        folder = certificates.make(folder, [NAME])
        (folder / f"{NAME}.both").write_text((folder / f"{NAME}.pem").read_text() + (folder / f"{NAME}.key").read_text())
        (folder / "www").mkdir()
        (folder / "www/index.html").write_text("hello")
        for name in TEMPLATES:
            if name != "brisk" and not program(name):
                print(f"{name} is not installed and is skipped", file=sys.stderr)
                continue
            times, seen = measure(name, link, folder, options.rounds)
            rows, lists = rows + times, lists + seen
    times = ([server, kind, name, f"{theirs:.2f}", f"{ours:.2f}", f"{ours - theirs:+.2f}", answer(agree(ours, theirs))]
             for server, kind, name, theirs, ours in rows)
    sent = [[server, version, ", ".join(f"{name} {size}" for name, size in ours), answer(same(ours, theirs), f"NO: {theirs}")]
            for server, version, ours, theirs in lists]
    first = lambda *words: programs.output(*words).split(" (")[0].strip()
    text = page("probe", options=options, relative=RELATIVE, absolute=ABSOLUTE, ciphertext=CIPHERTEXT,
                brisk=first(BRISK, "--version") + (", not optimized" if "/debug/" in BRISK else ""),
                curl=first("curl", "--version"),
                openssl=first("openssl", "version"), sent=table(["server", "TLS", "messages", "agrees"], sent, left=4),
                times=table(["server", "connection", "time", "curl", "brisk probe", "difference", "agrees"], times, left=3))
    right = all(agree(ours, theirs) for *_, theirs, ours in rows) and all(same(ours, theirs) for *_, ours, theirs in lists)
    return text, None if right else "some results do not agree"
