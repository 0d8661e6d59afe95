#!/usr/bin/env python3
"""Compares `brisk probe` with `curl -w` (times) and with `openssl s_client -msg` (messages).

Six servers run at the far end of a link with a round trip of 20 ms (crates/base/link). curl and brisk probe alternately connect to
each of them and request a page again on the same connection. Medians agree if they differ by at most 5 % or 1 ms. Then both
programs list the handshake messages of the server with their bytes, for TLS 1.2 and 1.3. Servers that are not installed are
skipped. Writes a table (Markdown). `make probe` calls this script; it takes two minutes.

usage: probe [--rounds N] [--round-trip MS] [--output FILE]
"""
import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from browsing.link import CACHE, SERVER, Link

BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))
NAME, PORT = "site.test", 8443
NAMES = ["namelookup", "connect", "appconnect", "pretransfer", "starttransfer", "total"]
RELATIVE, ABSOLUTE = 0.05, 1.0
# Bytes that a share of ML-KEM-768 adds to a ServerHello, and by which signatures of ECDSA differ from one another.
CIPHERTEXT, SIGNATURE = 1088, 4
START = 15

CONFIGURATIONS = {
    "nginx": ("nginx.conf", """
daemon off; master_process off; pid FOLDER/nginx.pid; error_log stderr warn;
events {}
http { access_log off; client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p; fastcgi_temp_path FOLDER/f;
  uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
  server { listen ADDRESS ssl; ssl_certificate FOLDER/chain.pem; ssl_certificate_key FOLDER/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3; return 200 hello; } }
"""),
    "haproxy": ("haproxy.cfg", """
defaults
  mode http
  timeout client 30s
  timeout connect 1s
  timeout server 1s
frontend all
  bind ADDRESS ssl crt FOLDER/both.pem alpn http/1.1
  http-request return status 200 content-type text/plain string hello
"""),
    "caddy": ("Caddyfile", """
{
  admin off
  auto_https off
}
https://site.test:8443 {
  bind SERVER
  tls FOLDER/chain.pem FOLDER/key.pem
  respond hello
}
"""),
    "h2o": ("h2o.conf", """
listen: { host: SERVER, port: 8443, ssl: { certificate-file: FOLDER/chain.pem, key-file: FOLDER/key.pem } }
hosts: { default: { paths: { /: { file.dir: FOLDER/www } } } }
"""),
    "brisk": ("brisk.toml", """
server.https = ["ADDRESS"]
server.workers = 1
[[host]]
names = ["site.test"]
certificates = [{ chain = "FOLDER/chain.pem", key = "FOLDER/key.pem" }]
[[host.route]]
path = "/"
respond = { status = 200, body = "hello" }
"""),
    "openssl": (None, None),
}


def command(name, folder, file):
    return {
        "nginx": ["nginx", "-c", file, "-p", folder, "-e", "stderr"],
        "haproxy": ["haproxy", "-db", "-f", file],
        "caddy": ["caddy", "run", "--config", file, "--adapter", "caddyfile"],
        "h2o": ["h2o", "-c", file],
        "brisk": [BRISK, "serve", "--config", file],
        "openssl": ["openssl", "s_server", "-www", "-quiet", "-accept", f"{SERVER}:{PORT}", "-cert", folder / "chain.pem",
                    "-key", folder / "key.pem"],
    }[name]


def certificates(folder):
    """A certificate of its own authority."""
    make = lambda *words: subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    make("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / "ca.key",
         "-out", folder / "ca.pem", "-subj", "/CN=test authority", "-days", 30)
    make("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / "key.pem",
         "-out", folder / "request.pem", "-subj", f"/CN={NAME}")
    (folder / "names").write_text(f"subjectAltName=DNS:{NAME}\nbasicConstraints=CA:FALSE\n")
    make("x509", "-req", "-in", folder / "request.pem", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial",
         "-days", 30, "-extfile", folder / "names", "-out", folder / "chain.pem")
    (folder / "both.pem").write_text((folder / "chain.pem").read_text() + (folder / "key.pem").read_text())
    (folder / "www").mkdir()
    (folder / "www/index.html").write_text("hello")


def curl(link, folder):
    """Times of a first and of a kept connection, in milliseconds. A connection before them has OpenSSL prepare what it needs once
    for a process, as brisk probe does before it begins."""
    form = " ".join("%{time_" + name + "}" for name in NAMES) + "\\n"
    url = f"https://{NAME}:{PORT}/"
    each = ["--silent", "--show-error", "--noproxy", "*", "--http1.1", "--tlsv1.3", "--no-sessionid", "--cacert", folder / "ca.pem",
            "--connect-to", f"::{SERVER}:", "--write-out", form, "--output", "/dev/null", url]
    words = ["curl", *each, "--header", "Connection: close", "--next", *each, "--next", *each]
    lines = subprocess.run(link.at("client", *words), check=True, capture_output=True, text=True).stdout.splitlines()
    return [[float(word) * 1000 for word in line.split()] for line in lines[1:]]


def probe(link, folder):
    words = [BRISK, "probe", f"https://{NAME}:{PORT}/", "--connect", SERVER, "--ca", folder / "ca.pem", "--http1", "--timing",
             "-n", 1, "--json"]
    done = subprocess.run(link.at("client", *words), check=True, capture_output=True, text=True)
    columns = {column["kind"]: [time["median"] for time in column["times"]] for column in json.loads(done.stdout)["columns"]}
    return [columns["first"], columns["kept"]]


def messages(link, folder, version):
    """The messages of a handshake as `brisk probe` and as `openssl s_client` list them: name and bytes. Left out is what OpenSSL
    before 3.5 has no word for: the share of ML-KEM, and tickets of TLS 1.3, for which s_client does not wait. OpenSSL
    before 3.2 takes no compressed certificates."""
    words = [BRISK, "probe", f"https://{NAME}:{PORT}/", "--connect", SERVER, "--ca", folder / "ca.pem", "--tls", version, "--json"]
    done = subprocess.run(link.at("client", *words), check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    tls, other = report["tls"], ("application_data", "change_cipher_spec")
    ours = [(step["name"], step["bytes"]) for step in report["steps"]
            if step["from"] == "server" and step["name"] not in other and not step["name"].startswith("alert")]
    words = ["openssl", "s_client", "-msg", "-tls" + version.replace(".", "_"), "-alpn", "h2,http/1.1", "-status", "-groups", "X25519:P-256",
             *(["-ciphersuites", tls["suite"]] if version == "1.3" else []), "-servername", NAME, "-connect", f"{SERVER}:{PORT}"]
    done = subprocess.run(link.at("client", *words), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    theirs = [(name, int(length, 16)) for length, name in
              re.findall(r"^<<< TLS [0-9.]+, Handshake \[length ([0-9a-f]+)\], (\w+)", done.stdout, re.M)]
    if version == "1.3":
        ours, theirs = ([message for message in side if message[0] != "NewSessionTicket"] for side in (ours, theirs))
        if theirs and tls["group"] == "X25519MLKEM768":
            theirs[0] = (theirs[0][0], theirs[0][1] + CIPHERTEXT)
    return ours, theirs


def same(ours, theirs):
    """Whether both are the same. The length of a certificate that either side got compressed is not compared: they take other algorithms."""
    kinds = ("Certificate", "CompressedCertificate")
    if any(name == kinds[1] for name, _ in ours + theirs):
        ours, theirs = ([(kinds[0], 0) if message[0] in kinds else message for message in side] for side in (ours, theirs))

    def near(one, other):
        signed = one[0] in ("ServerKeyExchange", "CertificateVerify")
        return one[0] == other[0] and abs(one[1] - other[1]) <= (SIGNATURE if signed else 0)
    return len(ours) == len(theirs) > 3 and all(map(near, ours, theirs))


def wait(link, folder, server, log):
    for _ in range(START * 10):
        if server.poll() is not None:
            sys.exit(f"a server ended: {log.read_text(errors='replace')}")
        try:
            curl(link, folder)
            return
        except subprocess.CalledProcessError:
            time.sleep(0.1)
    sys.exit("a server does not answer")


def measure(name, link, folder, rounds):
    file, text = CONFIGURATIONS[name]
    if file:
        file = folder / file
        text = text.replace("ADDRESS", f"{SERVER}:{PORT}").replace("SERVER", SERVER).replace("FOLDER", str(folder))
        file.write_text(text)
    words = link.at("server", *command(name, folder, file))
    with open(folder / f"{name}.log", "w") as log:
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait(link, folder, server, Path(log.name))
            turns = [(curl(link, folder), probe(link, folder)) for _ in range(rounds)]
            lists = [(name, version, *messages(link, folder, version)) for version in ("1.2", "1.3")]
        finally:
            server.kill()
            server.wait()
    median = lambda tool, kind, index: statistics.median(turn[tool][kind][index] for turn in turns)
    kinds = range(1 if name == "openssl" else 2)
    return [(name, ["first", "kept"][kind], NAMES[index], median(0, kind, index), median(1, kind, index))
            for kind in kinds for index in range(len(NAMES)) if not (kind and index < 3)], lists


def agree(ours, theirs):
    return abs(ours - theirs) <= max(ABSOLUTE, RELATIVE * theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=21, help="number of rounds [default: %(default)s]")
    parser.add_argument("--round-trip", type=float, default=20, help="round-trip time of the link in ms [default: %(default)s]")
    parser.add_argument("--output", type=Path, help="file for the result [default: standard output]")
    options = parser.parse_args()
    rows, lists = [], []
    with tempfile.TemporaryDirectory() as folder, Link(options.round_trip, 100_000_000) as link:
        folder = Path(folder)
        certificates(folder)
        for name in CONFIGURATIONS:
            if name != "brisk" and not shutil.which(name):
                print(f"{name} is not installed", file=sys.stderr)
                continue
            times, seen = measure(name, link, folder, options.rounds)
            rows, lists = rows + times, lists + seen
    version = subprocess.run([BRISK, "--version"], capture_output=True, text=True).stdout.strip()
    lines = [
        "# `brisk probe --timing` beside `curl -w`", "",
        f"Round trip {options.round_trip:g} ms; {options.rounds} connections of each to each server, in turns; medians since the "
        f"beginning, in milliseconds. \"kept\" is a second request on the connection. They agree when they differ by {RELATIVE:.0%} "
        f"or {ABSOLUTE:g} ms at most. `make probe` repeats it.", "",
        f"- {os.cpu_count()} cores, Linux {platform.release()}, {time.strftime('%Y-%m-%d')}", f"- {version}{', not optimized' if '/debug/' in BRISK else ''}",
        f"- {subprocess.run(['curl', '--version'], capture_output=True, text=True).stdout.split(' (')[0]}", "",
        "| server | connection | time | curl | brisk probe | difference | agrees |", "|---|---|---|---:|---:|---:|---|",
    ]
    lines += [f"| {server} | {kind} | {name} | {theirs:.2f} | {ours:.2f} | {ours - theirs:+.2f} | {'yes' if agree(ours, theirs) else 'NO'} |"
              for server, kind, name, theirs, ours in rows]
    lines += [
        "", "## Messages beside `openssl s_client -msg`", "",
        "What each server sends in a full handshake, in bytes of each message, as `brisk probe` lists it. OpenSSL lists the same; signatures of ECDSA "
        f"differ in length from one another. Where OpenSSL lacks the group, {CIPHERTEXT} bytes of X25519MLKEM768 were added to its ServerHello; before "
        "3.2 it asks for no compressed certificates, so lengths of these are not compared; and it does not wait for the tickets of TLS 1.3.", "",
        f"- {subprocess.run(['openssl', 'version'], capture_output=True, text=True).stdout.split(' (')[0].strip()}", "",
        "| server | TLS | messages | agrees |", "|---|---|---|---|",
    ]
    lines += [f"| {server} | {version} | {', '.join(f'{name} {bytes}' for name, bytes in ours)} | {'yes' if same(ours, theirs) else f'NO: {theirs}'} |"
              for server, version, ours, theirs in lists]
    text = "\n".join(lines) + "\n"
    if options.output:
        options.output.write_text(text)
    print(text, end="")
    right = all(agree(ours, theirs) for *_, theirs, ours in rows) and all(same(ours, theirs) for *_, ours, theirs in lists)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
