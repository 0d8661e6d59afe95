"""Memory and time of `brisk capture` for 10 GB with a million connections.

One connection of curl with `brisk serve` is recorded and repeated from other addresses, 20,000 of them open at the same time. The
capture goes through a pipe, so it needs no disk.
"""
import json
import os
import struct
import subprocess
import sys
import time

from shared.figures import page, table
from shared.link import Namespace
from shared.programs import BRISK
from shared.servers import Server

from .recording import NAME, recorder

PORT = 8443
# Bytes of the response; a connection has about 10 kB.
SIZE = 7_000
CONNECTIONS = 1_000_000
# Connections that are open at the same time, and seconds until the next ones.
OPEN, INTERVAL = 20_000, 20


def template(folder):
    """Records of one connection: direction, time since the first packet, and bytes of the Ethernet frame."""
    (folder / "www").mkdir()
    (folder / "www/page").write_bytes(bytes(index * index // 7 % 256 for index in range(SIZE)))
    with Namespace() as inside:
        subprocess.run(inside.at("ip", "link", "set", "lo", "mtu", 1500), check=True)
        curl = inside.at("curl", "--silent", "--insecure", "--output", "/dev/null", "--resolve", f"{NAME}:{PORT}:127.0.0.1",
                         f"https://{NAME}:{PORT}/page")
        with Server("servers/capture.toml", folder, prefix=inside.at, ready=lambda: subprocess.run(curl).returncode == 0,
                    PORT=PORT, NAME=NAME,
                    CERTIFICATE=folder / NAME, ACCESS="", ROUTE=f'[[host.route]]\npath = "/"\nstatic = "{folder}/www"'), \
                recorder(inside.at, "lo", folder / "one.pcap", f"port {PORT}") as capture:
            subprocess.run(curl, check=True)
            time.sleep(1)
    recorded, place, packets = capture.read_bytes(), 24, []
    while place + 16 <= len(recorded):
        seconds, micros, length, _ = struct.unpack_from("<IIII", recorded, place)
        frame = recorded[place + 16:place + 16 + length]
        is_client = struct.unpack_from(">H", frame, 36)[0] == PORT
        packets.append((is_client, seconds * 1_000_000 + micros, frame))
        place += 16 + length
    return recorded[:24], [(is_client, at - packets[0][1], frame) for is_client, at, frame in packets]


def write(output, header, packets):
    """Writes the capture, and returns its size."""
    output.write(header)
    size = len(header)
    for first in range(0, CONNECTIONS, OPEN):
        addresses = [struct.pack(">I", 0x0b000000 + number) for number in range(first, first + OPEN)]
        for is_client, at, frame in packets:
            # 50 times slower: the packets of 20,000 connections are sent one after another.
            micros = 1_600_000_000_000_000 + first // OPEN * INTERVAL * 1_000_000 + at * 50
            head = struct.pack("<IIII", micros // 1_000_000, micros % 1_000_000, len(frame), len(frame))
            place = 26 if is_client else 30
            before, after = head + frame[:place], frame[place + 4:]
            block = before + (after + before).join(addresses) + after
            output.write(block)
            size += len(block)
    return size


def last_line(file):
    with open(file, "rb") as lines:
        lines.seek(max(0, file.stat().st_size - 100_000))
        return lines.read().splitlines()[-1]


def section(folder):
    """Markdown: memory and time."""
    header, packets = template(folder)
    rows = []
    for name, options in [("text", []), ("`--json`", ["--json"])]:
        began, result = time.monotonic(), folder / "result"
        with open(result, "wb") as target:
            capture = subprocess.Popen([BRISK, "capture", "-", *options], stdin=subprocess.PIPE, stdout=target)
            size = write(capture.stdin, header, packets)
            capture.stdin.close()
            _, status, usage = os.wait4(capture.pid, 0)
        capture.returncode = os.waitstatus_to_exitcode(status)
        if capture.returncode:
            sys.exit(f"brisk capture {options} ended with {capture.returncode}")
        seconds, counts = time.monotonic() - began, ["", ""]
        if options:
            summary = json.loads(last_line(result))
            if summary["connections"] != CONNECTIONS:
                sys.exit(f"{summary['connections']} connections are reported instead of {CONNECTIONS}")
            counts = [f"{summary['connections']:,}", f"{summary['evicted']:,}"]
        result.unlink()
        rows.append([name, f"{size / 1e9:.1f} GB", *counts, f"{seconds:.0f}", f"{size / 1e6 / seconds:.0f}",
                     f"{usage.ru_maxrss / 1024:.0f} MiB"])
    head = ["output", "capture", "connections", "reported early", "seconds", "MB/s", "peak memory"]
    return page("capture-many", packets=len(packets), connections=CONNECTIONS, open=OPEN, rows=table(head, rows))
