#!/usr/bin/env python3
"""Measures the cost of a hundred thousand certificates for brisk, nginx and HAProxy.

Each server gets a folder of certificates by name. Measured are the time from its start to the first handshake, its resident
memory, the latency of handshakes for random names at a fixed rate, and the replacement of a thousand certificates under that
load: the time until all new certificates are in use, and the number of failed handshakes. Writes a page in Markdown.
`make many-certificates` calls this script; the machine must be quiet.

usage: many-certificates [--names N] [--changed N] [--rate N] [--seconds N] [--server NAME] [--folder DIR] [--output FILE]
"""
import argparse
import collections
import datetime
import hashlib
import json
import os
import platform
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
from hostile.servers import BRISK
from processes import free_port

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 300
THREADS = 4

BRISK_TOML = """
[server]
https = ["127.0.0.1:{port}"]
workers = 1
state_dir = "{folder}/state"
unknown_host = "refuse"
[access_log]
format = "off"
[tls]
tickets = false
[[host]]
names = ["service.test"]
certificate_folder = "{names}"
[[host.route]]
path = "/"
respond = {{ body = "hello" }}
"""

NGINX_CONF = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log; user root;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_session_tickets off;
    ssl_certificate {names}/$ssl_server_name.pem;
    ssl_certificate_key {names}/$ssl_server_name.pem;
    return 200 hello;
  }}
}}
"""

HAPROXY_CFG = """
global
  maxconn 1000
  nbthread 1
  stats socket {folder}/haproxy.sock level admin
  ssl-default-bind-options no-tls-tickets
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout client 30s
  timeout connect 5s
  timeout server 30s
frontend main
  bind 127.0.0.1:{port} ssl crt {names}
  http-request return status 200 content-type text/plain string hello
"""


class Unable(Exception):
    """A server that does not serve so many certificates."""


class Server:
    """One server, started with the certificates of a folder."""

    def __init__(self, kind, folder, names):
        self.kind, self.folder, self.names, self.port = kind, folder, names, free_port()
        values = {"port": self.port, "folder": folder, "names": names}
        template, file = {
            "brisk": (BRISK_TOML, "brisk.toml"),
            "nginx": (NGINX_CONF, "nginx.conf"),
            "haproxy": (HAPROXY_CFG, "haproxy.cfg"),
        }[kind]
        configuration = folder / file
        configuration.write_text(template.format(**values))
        command = {
            "brisk": [BRISK, "serve", "--config", configuration],
            "nginx": [shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), "-p", folder, "-c", configuration],
            "haproxy": [shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin"), "-f", configuration],
        }[kind]
        started = time.monotonic()
        self.log = open(folder / f"{kind}.out", "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        try:
            self.wait(started)
        except BaseException:
            self.stop()
            raise
        self.start = time.monotonic() - started

    def wait(self, started):
        """Returns with the first handshake."""
        while True:
            if self.process.poll() is not None:
                text = (self.folder / f"{self.kind}.out").read_text().strip()
                raise Unable(f"it ended: {text.splitlines()[-1] if text else self.process.returncode}")
            try:
                return shake(self.port, "0.test")
            except OSError as error:
                if time.monotonic() - started > START_LIMIT:
                    raise Unable(f"no handshake within {START_LIMIT} seconds: {error}") from error
                time.sleep(0.01)

    def resident(self):
        """Bytes of memory of the process and its children, as far as they are its own or shared."""
        pids = [self.process.pid] + children(self.process.pid)
        return sum(field(pid, "Pss:") for pid in pids)

    def exchange(self, changed):
        """Puts the new files in the place of the old ones, in the way of this server."""
        for file in changed:
            shutil.copy(file, self.names / (file.name + ".new"))
            os.rename(self.names / (file.name + ".new"), self.names / file.name)
            if self.kind == "haproxy":
                text = file.read_text()
                self.runtime(f"set ssl cert {self.names / file.name} <<\n{text}\n")
                self.runtime(f"commit ssl cert {self.names / file.name}\n")

    def runtime(self, command):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.folder / "haproxy.sock"))
            control.sendall(command.encode())
            answer = b""
            while piece := control.recv(4096):
                answer += piece
        if b"error" in answer.lower() or b"can't" in answer.lower():
            raise Unable(answer.decode().strip())

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def field(pid, name):
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


CONTEXT = ssl.create_default_context()
CONTEXT.check_hostname = False
CONTEXT.verify_mode = ssl.CERT_NONE


def shake(port, name):
    """One full handshake; the certificate that was shown."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as tcp:
        with CONTEXT.wrap_socket(tcp, server_hostname=name) as tls:
            return tls.getpeercert(binary_form=True)


class Load:
    """Handshakes for random names at a fixed rate, each begun when it is due."""

    def __init__(self, port, names, rate):
        self.port, self.names, self.rate = port, names, rate
        self.took, self.failed = [], collections.Counter()
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(THREADS)]
        self.begin = time.monotonic()
        for thread in self.threads:
            thread.start()

    def run(self, number):
        chance, turn = random.Random(number), number
        while not self.stopped.is_set():
            due = self.begin + turn / self.rate
            turn += THREADS
            time.sleep(max(0, due - time.monotonic()))
            try:
                shake(self.port, f"{chance.randrange(self.names)}.test")
            except OSError as error:
                self.failed[type(error).__name__] += 1
                continue
            # From when it was due: a server that holds up one handshake is not spared the next.
            self.took.append(time.monotonic() - due)

    def end(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        return self


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def shown(certificate):
    """The fingerprint of the first certificate of a file."""
    text = certificate.read_text()
    first = text[: text.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()


def alone(kind, made):
    """The memory of a server with one certificate."""
    with tempfile.TemporaryDirectory(prefix="brisk-one-", dir=made) as folder:
        names = Path(folder) / "names"
        names.mkdir()
        os.link(made / "names" / "0.test.pem", names / "0.test.pem")
        server = Server(kind, Path(folder), names)
        try:
            return server.resident()
        finally:
            server.stop()


def measure(kind, made, options):
    with tempfile.TemporaryDirectory(prefix="brisk-many-", dir=made) as folder:
        folder = Path(folder)
        names = folder / "names"
        names.mkdir()
        for number in range(options.names):
            os.link(made / "names" / f"{number}.test.pem", names / f"{number}.test.pem")
        changed = [made / "changed" / f"{number}.test.pem" for number in range(options.changed)]
        wanted = {file.stem: shown(file) for file in changed}
        server = Server(kind, folder, names)
        try:
            row = {"server": kind, "start": server.start, "before": server.resident(), "alone": alone(kind, made)}
            load = Load(server.port, options.names, options.rate)
            time.sleep(options.seconds)
            load.end()
            row |= {"p50": percentile(load.took, 0.5), "p99": percentile(load.took, 0.99), "count": len(load.took)}
            row |= {"failed": sum(load.failed.values()), "after": server.resident()}
            # All that are changed were shown before.
            for name in wanted:
                shake(server.port, name)
            load = Load(server.port, options.names, options.rate)
            time.sleep(1)
            begin = time.monotonic()
            server.exchange(changed)
            left = dict(wanted)
            while left and time.monotonic() - begin < 120:
                for name in list(left):
                    if hashlib.sha256(shake(server.port, name)).hexdigest() == left[name]:
                        del left[name]
            row["exchange"] = time.monotonic() - begin if not left else None
            time.sleep(1)
            load.end()
            row |= {"exchange_failed": sum(load.failed.values()), "exchange_count": len(load.took)}
            row["exchange_p99"] = percentile(load.took, 0.99)
            return row
        finally:
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=100_000, help="number of certificates [default: %(default)s]")
    parser.add_argument("--changed", type=int, default=1000, help="number of replaced certificates [default: %(default)s]")
    parser.add_argument("--rate", type=float, default=200, help="handshakes per second [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=15, help="duration of the load in seconds [default: %(default)s]")
    parser.add_argument("--server", action="append", choices=["brisk", "nginx", "haproxy"], help="restriction to this server; can be repeated")
    parser.add_argument("--folder", type=Path, help="folder with certificates of an earlier run")
    parser.add_argument("--output", type=Path, help="file for the result [default: standard output]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brisk-many-") as made:
        made = options.folder or Path(made)
        make(made, options)
        rows = []
        for kind in options.server or ["brisk", "nginx", "haproxy"]:
            print(kind, file=sys.stderr)
            try:
                rows.append(measure(kind, made, options))
            except Unable as error:
                rows.append({"server": kind, "error": str(error)})
            print(rows[-1], file=sys.stderr)
    text = page(rows, options)
    if options.output:
        options.output.write_text(text)
    else:
        print(text)


def make(folder, options):
    """Makes the certificates, if they are not there."""
    for kind, count in [("names", options.names), ("changed", options.changed)]:
        last = folder / kind / f"{count - 1}.test.pem"
        if (folder / kind).is_dir() and not last.is_file():
            sys.exit(f"many-certificates: {folder} has fewer certificates than asked for: {last} is missing")
    if (folder / "names").is_dir():
        return
    print(f"making {options.names} certificates", file=sys.stderr)
    # Of the whole workspace: otherwise its dependencies would be built again with other features.
    build = ["cargo", "build", "--quiet", "--locked", "--workspace", "--example", "many-certificates",
             "--message-format", "json"]
    built = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    artifacts = [json.loads(line) for line in built.splitlines()]
    program = next(one["executable"] for one in artifacts if one.get("target", {}).get("name") == "many-certificates")
    subprocess.run([program, folder, str(options.names), str(options.changed)], check=True)


def versions():
    first = lambda command: subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[:1]
    nginx = subprocess.run(["/usr/sbin/nginx", "-v"], capture_output=True, text=True).stderr.strip()
    return ", ".join([*first([BRISK, "--version"]), nginx, *first(["/usr/sbin/haproxy", "-v"])])


def page(rows, options):
    mib = lambda value: f"{value / 2**20:,.0f}"
    ms = lambda value: f"{value * 1000:.1f}"
    lines = [
        "# Many certificates",
        "",
        f"{options.names:,} certificates of ECDSA P-256, each with a key of its own, in a folder by name; one worker; full",
        f"handshakes of TLS 1.3 for random names, {options.rate:g} per second, by a client in Python on the same machine. brisk has",
        "them as `certificate_folder`, nginx by `ssl_certificate` with the name as a variable, which reads the file in every",
        "handshake, HAProxy with `crt` on the folder, which reads all of them at its start. Latency is counted from when a handshake",
        "was due, and includes the client. For each name is the memory after the start beyond that of the same server with one",
        "certificate, divided by the names.",
        "",
        "| server | start, s | memory after the start, MiB | for each name, KiB | p50, ms | p99, ms | failed | memory then, MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    served = [row for row in rows if "error" not in row]
    for row in served:
        each = f"{(row['before'] - row['alone']) / options.names / 1024:.2f}"
        cells = [row["server"], f"{row['start']:.2f}", mib(row["before"]), each, ms(row["p50"]), ms(row["p99"])]
        cells += [f"{row['failed']} of {row['failed'] + row['count']:,}", mib(row["after"])]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\n{row['server']} does not serve them: {row['error']}" for row in rows if "error" in row]
    lines += [
        "",
        f"## {options.changed:,} of them exchanged under that load",
        "",
        "New files are renamed over the old ones; HAProxy is given each over its socket as well. The time is until every one of",
        "these names is shown with its new certificate, as seen by handshakes for all of them in turn.",
        "",
        "| server | all new after, s | failed handshakes | p99 meanwhile, ms |",
        "|---|---:|---:|---:|",
    ]
    for row in served:
        took = f"{row['exchange']:.1f}" if row["exchange"] else "not within 120"
        failed = f"{row['exchange_failed']} of {row['exchange_failed'] + row['exchange_count']:,}"
        lines.append(f"| {row['server']} | {took} | {failed} | {ms(row['exchange_p99'])} |")
    day = datetime.date.today()
    lines += ["", f"{day}; {platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; {versions()}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
