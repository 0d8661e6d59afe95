"""Measures the cost of a hundred thousand certificates for brisk, nginx and HAProxy.

Each server gets a folder of certificates by name. Measured are the time from its start to the first handshake, its resident
memory, the latency of handshakes for random names at a fixed rate, and the replacement of a thousand certificates under that
load: the time until all new certificates are in use, and the number of failed handshakes. The machine must be quiet.
"""
import collections
import hashlib
import os
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

from shared import programs
from shared.figures import MIB, page, quantile, table
from shared.servers import Server

NEEDS = "strangers"
TEMPLATES = {"brisk": "toml", "nginx": "conf", "haproxy": "cfg"}
OPTIONS = [("--names", 100_000, "number of certificates"), ("--changed", 1000, "number of replaced certificates"),
           ("--rate", 200.0, "handshakes per second"), ("--seconds", 15.0, "duration of the load in seconds"),
           ("--server", [], "restriction to this server", {"choices": TEMPLATES}),
           ("--folder", None, "folder with certificates of an earlier run", {"type": Path})]
START_LIMIT = 300
THREADS = 4


class Unable(Exception):
    """A server that does not serve so many certificates."""


class Many(Server):
    """A server with the certificates of a folder, which is ready with the first handshake."""

    def __init__(self, kind, folder, names):
        self.names = names
        super().__init__(f"servers/many.{TEMPLATES[kind]}", folder, ready=self.shaken, NAMES=names)
        self.limit = START_LIMIT

    def __enter__(self):
        started = time.monotonic()
        try:
            super().__enter__()
        except SystemExit:
            text = self.log().strip()
            raise Unable(f"it ended: {text.splitlines()[-1] if text else self.process.returncode}") from None
        self.start = time.monotonic() - started
        return self

    def shaken(self):
        try:
            return shake(self.port, "0.test")
        except OSError:
            return False

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
        with Many(kind, Path(folder), names) as server:
            return server.shared()


def measure(kind, made, options):
    with tempfile.TemporaryDirectory(prefix="brisk-many-", dir=made) as folder:
        folder = Path(folder)
        names = folder / "names"
        names.mkdir()
        for number in range(options.names):
            os.link(made / "names" / f"{number}.test.pem", names / f"{number}.test.pem")
        changed = [made / "changed" / f"{number}.test.pem" for number in range(options.changed)]
        wanted = {file.stem: shown(file) for file in changed}
        with Many(kind, folder, names) as server:
            row = {"server": kind, "start": server.start, "before": server.shared(), "alone": alone(kind, made)}
            load = Load(server.port, options.names, options.rate)
            time.sleep(options.seconds)
            load.end()
            row |= {"p50": quantile(load.took, 0.5), "p99": quantile(load.took, 0.99), "count": len(load.took)}
            row |= {"failed": sum(load.failed.values()), "after": server.shared()}
            # All that are changed were shown before.
            for name in wanted:
                shake(server.port, name)
            load = Load(server.port, options.names, options.rate)
            time.sleep(1)
            begin, left = time.monotonic(), dict(wanted)
            server.exchange(changed)
            while left and time.monotonic() - begin < 120:
                for name in list(left):
                    if hashlib.sha256(shake(server.port, name)).hexdigest() == left[name]:
                        del left[name]
            row["exchange"] = time.monotonic() - begin if not left else None
            time.sleep(1)
            load.end()
            return row | {"exchange_failed": sum(load.failed.values()), "exchange_count": len(load.took),
                          "exchange_p99": quantile(load.took, 0.99)}


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
    program = programs.example(["--workspace"], "many-certificates")
    subprocess.run([program, folder, str(options.names), str(options.changed)], check=True)


def mib(size):
    return f"{size / MIB:,.0f}"


def ms(seconds):
    return f"{seconds * 1000:.1f}"


def run(options):
    rows = []
    with tempfile.TemporaryDirectory(prefix="brisk-many-") as made:
        made = options.folder or Path(made)
        make(made, options)
        for kind in options.server or TEMPLATES:
            try:
                rows.append(measure(kind, made, options))
            except Unable as error:
                rows.append({"server": kind, "error": str(error)})
            print(rows[-1], file=sys.stderr)
    served = [row for row in rows if "error" not in row]
    head = ["server", "start, s", "memory after the start, MiB", "for each name, KiB", "p50, ms", "p99, ms", "failed",
            "memory then, MiB"]
    lines = table(head, (
        [row["server"], f"{row['start']:.2f}", mib(row["before"]),
         f"{(row['before'] - row['alone']) / options.names / 1024:.2f}", ms(row["p50"]),
         ms(row["p99"]), f"{row['failed']} of {row['failed'] + row['count']:,}", mib(row["after"])] for row in served))
    lines += [f"\n{row['server']} does not serve them: {row['error']}" for row in rows if "error" in row]
    exchanged = table(["server", "all new after, s", "failed handshakes", "p99 meanwhile, ms"], (
        [row["server"], f"{row['exchange']:.1f}" if row["exchange"] else "not within 120",
         f"{row['exchange_failed']} of {row['exchange_failed'] + row['exchange_count']:,}", ms(row["exchange_p99"])]
        for row in served))
    versions = "; ".join(programs.version(kind) for kind in TEMPLATES)
    return page("many-certificates", options=options, rows=lines, exchanged=exchanged, versions=versions)
