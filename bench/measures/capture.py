"""Compares `brisk capture` with tshark, packet by packet, over recordings of real programs.

curl, openssl s_client and Chromium request files from nginx, brisk and openssl s_server over links with delay, loss, reordering
and short queues (crates/base/link). tcpdump records at both ends. For every packet both programs report the number of the
connection, the expert information of TCP (tcp.analysis.*), the acknowledged packet, its round trip time and the bytes in flight.
Then both programs analyse one large recording for speed, and `brisk capture --join` compares the milestones of `brisk serve` and
`brisk bench` with the packets of 1,000 connections; a capture of 10 GB shows the memory.
"""
import collections
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from browsing import chromium
from browsing.chromium import Chromium
from captures import many_connections, milestones
from captures.recording import NAME, recorder
from shared import certificates, programs
from shared.figures import page, renew, table
from shared.link import SERVER, Link
from shared.processes import Process
from shared.programs import BRISK, LINK
from shared.servers import Server, named

NEEDS, BUILDS = "test", "--package brisk-link"
SECTIONS = {"milestones": milestones.section, "many": many_connections.section}
OPTIONS = [("--rounds", 3, "number of rounds on each link"), ("--keep", None, "folder for the recordings", {"type": Path}),
           ("--only", None, "renew only this section of the page", {"choices": SECTIONS})]
PORTS = {"nginx": 8443, "brisk": 8444, "openssl": 8445}
FLAGS = """reused_ports zero_window_probe zero_window zero_window_probe_ack lost_segment ack_lost_segment keep_alive
    keep_alive_ack window_update window_full duplicate_ack spurious_retransmission fast_retransmission out_of_order
    retransmission""".split()
# tshark calls these retransmissions too.
SPECIAL = {"fast_retransmission", "spurious_retransmission"}
FIELDS = ["connection", "expert information", "acknowledged packet", "round trip", "bytes in flight"]
# Name, round trip in milliseconds, bits per second, queue in bytes, faults.
LINKS = [
    ("30 ms, no loss", 30, 100_000_000, 1_000_000, ""),
    ("20 ms, 2 % loss", 20, 100_000_000, 1_000_000, "loss=2%"),
    ("40 ms, 1 % loss, 2 % reordering", 40, 100_000_000, 1_000_000, "loss=1%,reorder=2%"),
    ("10 ms, 20 Mbit/s, queue of 40 kB", 10, 20_000_000, 40_000, ""),
    ("8 ms, 5 % reordering", 8, 50_000_000, 200_000, "reorder=5%"),
]
SIZES = {"small": 2_000, "large": 400_000}
PICTURES = 12
# Bytes of the file for the comparison of speed.
SIZE = 400_000_000

def pages(folder):
    folder.mkdir()
    for name, size in SIZES.items():
        (folder / name).write_bytes(bytes(index * index // 7 % 256 for index in range(size)))
    for number in range(PICTURES):
        (folder / f"{number}.png").write_bytes(bytes(number) + os.urandom(5_000 * (1 + number)))
    images = "".join(f'<img src="{number}.png">' for number in range(PICTURES))
    (folder / "index.html").write_text(f"<!doctype html><title>page</title>{images}")


def servers(link, folder):
    """Servers at the far end of the link."""
    def ready(name):
        return lambda: curl(link, folder, PORTS[name], "--insecure", path="small")
    common = {"prefix": link.server, "ADDRESS": SERVER, "NAME": NAME, "CERTIFICATE": folder / NAME, "FILES": folder / "www"}
    static = f'[[host.route]]\npath = "/"\nstatic = "{folder}/www"'
    command = ["openssl", "s_server", "-WWW", "-quiet", "-accept", f"{SERVER}:{PORTS['openssl']}", "-cert",
               folder / f"{NAME}.pem", "-key", folder / f"{NAME}.key"]
    return [Server("servers/capture.conf", folder / "nginx", ready=ready("nginx"), PORT=PORTS["nginx"], **common),
            Server("servers/capture.toml", folder / "brisk", ready=ready("brisk"), PORT=PORTS["brisk"], ACCESS="", ROUTE=static,
                   **common),
            Process(command, folder / "openssl.log", PORTS["openssl"], SERVER, ready("openssl"), link.server, cwd=folder / "www")]


def curl(link, folder, port, *options, path="large"):
    words = ["curl", "--silent", "--noproxy", "*", "--max-time", 40, "--cacert", folder / "root.pem", "--connect-to",
             f"::{SERVER}:", "--output", "/dev/null", *options, f"https://{NAME}:{port}/{path}"]
    return subprocess.run(link.client(*words), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, "SSLKEYLOGFILE": str(folder / "keys")}).returncode == 0


def clients(link, folder, pin):
    """The connections of one round."""
    for name in ("nginx", "brisk"):
        curl(link, folder, PORTS[name])
        curl(link, folder, PORTS[name], "--tls-max", "1.2", "--http1.1")
        curl(link, folder, PORTS[name], "--http1.1", f"https://{NAME}:{PORTS[name]}/small", "--output", "/dev/null", path="small")
    # A slow reader: windows of zero. curl reads 60 kB/s of a file that has 400 kB.
    curl(link, folder, PORTS["nginx"], "--http1.1", "--limit-rate", "150k")
    curl(link, folder, 9999)
    words = ["openssl", "s_client", "-quiet", "-connect", f"{SERVER}:{PORTS['openssl']}"]
    subprocess.run(link.client(*words), input=b"GET /large HTTP/1.0\r\n\r\n", stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60)
    hosts = f"MAP {NAME} {SERVER}"
    for name in ("nginx", "brisk"):
        with Chromium(link.client, hosts, [pin]) as browser:
            browser.open(f"https://{NAME}:{PORTS[name]}/index.html")


def of_brisk(file):
    done = subprocess.run([BRISK, "capture", file, "--json", "--packets"], check=True, capture_output=True, text=True)
    packets = {}
    for line in map(json.loads, done.stdout.splitlines()):
        if line["event"] == "packet":
            micros = round(line["acked_ms"] * 1000) if "acked_ms" in line else None
            flags = tuple(sorted(line.get("flags", [])))
            packets[line["packet"]] = (line["connection"], flags, line.get("acked"), micros, line.get("in_flight"))
    return packets


def of_tshark(file):
    names = ["frame.number", "tcp.stream"] + [f"tcp.analysis.{name}"
                                              for name in [*FLAGS, "acks_frame", "ack_rtt", "bytes_in_flight"]]
    names += ["tcp.flags.reset", "tcp.flags.ack"]
    words = ["tshark", "-r", file, "-Y", "tcp", "-T", "fields", "-E", "separator=|",
             *(word for name in names for word in ("-e", name))]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    packets, reset, late = {}, set(), set()
    for cells in (line.split("|") for line in lines):
        *cells, is_reset, is_ack = cells
        if is_reset == "1" and is_ack == "0":
            reset.add(cells[1])
        elif cells[1] in reset:
            late.add(int(cells[0]))
        flags = {name for name, cell in zip(FLAGS, cells[2:]) if cell}
        if flags & SPECIAL:
            flags.discard("retransmission")
        acked, trip, flight = cells[2 + len(FLAGS):]
        packets[int(cells[0])] = (int(cells[1]), tuple(sorted(flags)), int(acked) if acked else None,
                                  round(float(trip) * 1e6) if trip else None, int(flight) if flight else None)
    return packets, late


def compare(file, place, total, differences):
    ours, (theirs, late) = of_brisk(file), of_tshark(file)
    if ours.keys() != theirs.keys():
        sys.exit(f"{file}: packets {sorted(ours.keys() ^ theirs.keys())[:5]} are reported by one program only")
    row = collections.Counter(packets=len(ours), connections=len({packet[0] for packet in theirs.values()}))
    for number, our in ours.items():
        their = theirs[number]
        row["results"] += bool(their[1])
        total["flags"].update(their[1])
        for field, one, two in zip(FIELDS, our, their):
            if one != two:
                row[field] += 1
                differences.append((place, number, field, one, two, number in late))
    return row


def measure(folder, pin, options, total, differences):
    rows = []
    for index, (text, trip, rate, queue, faults) in enumerate(LINKS):
        sums = {end: collections.Counter() for end in ("client", "server")}
        for number in range(options.rounds):
            with Link(trip, rate, queue, faults) as link, ExitStack() as stack:
                for server in servers(link, folder):
                    stack.enter_context(server)
                with ExitStack() as recorders:
                    files = [recorders.enter_context(recorder(getattr(link, end), end, folder / f"{end}.pcap")) for end in sums]
                    clients(link, folder, pin)
                    # Late packets arrive.
                    time.sleep(1)
            for end, file in zip(sums, files):
                sums[end] += compare(file, f"link {index + 1}, round {number + 1}, {end}", total, differences)
                shutil.copy(file, options.keep / f"{index}-{number}-{end}.pcap")
        rows += [(text, end, row) for end, row in sums.items()]
    return rows


def speed(folder, keep):
    """Seconds of both programs for one file: the recordings again and again, each time with another address of the client."""
    recorded = [file.read_bytes() for file in sorted(keep.glob("*.pcap"))]
    file, mine = folder / "all.pcap", bytes([10, 77, 0, 1])
    with open(file, "wb") as output:
        output.write(recorded[0][:24])
        number = 0
        while output.tell() < SIZE:
            for one in recorded:
                number += 1
                other, place = bytes([11 + (number >> 16), number >> 8 & 255, number & 255, 1]), 24
                while place + 16 <= len(one):
                    seconds, micros, length, original = struct.unpack_from("<IIII", one, place)
                    head = one[place + 16:place + 36].replace(mine, other)
                    # One recording every ten seconds: connections end and others begin.
                    output.write(struct.pack("<IIII", 1_600_000_000 + 10 * number + seconds % 10, micros, length, original))
                    output.write(head + one[place + 36:place + 16 + length])
                    place += 16 + length
    size = file.stat().st_size
    commands = {"brisk capture": [BRISK, "capture", file], "tshark -z conv,tcp": ["tshark", "-r", file, "-q", "-z", "conv,tcp"],
                "tshark -z expert": ["tshark", "-r", file, "-q", "-z", "expert"]}
    times = {}
    for name, command in commands.items():
        began = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times[name] = time.monotonic() - began
    return size, times


def written(rows, total, differences, speeds, options):
    size, times = speeds
    first = lambda *words: programs.output(*words).splitlines()[0].split(" (")[0].rstrip(".")
    unexplained = [difference for difference in differences if not difference[-1]]
    found = []
    if len(unexplained) < len(differences):
        explained = len(differences) - len(unexplained)
        found += [f"{explained} of the differences follow a RST without ACK in their connection: Wireshark takes the",
                  "acknowledgement number of such a segment, 0, as an acknowledgement. brisk does not, since the number is valid",
                  "with ACK only (RFC 9293 section 3.1).", ""]
    if unexplained:
        text = lambda value: ", ".join(value) if isinstance(value, tuple) else value
        found += [*table(["recording", "packet", "field", "brisk", "tshark"], (
            [place, number, field, text(one), text(two)] for place, number, field, one, two, _ in unexplained[:40]), left=5), ""]
    head = ["link (round trip)", "recorded at", "connections", "packets", "with expert information", *FIELDS]
    packets = table(head, ([text, end, row["connections"], f"{row['packets']:,}", f"{row['results']:,}",
                            *(row[field] for field in FIELDS)]
                           for text, end, row in rows), left=2)
    speed = table(["program", "seconds", "MB/s", "ratio"], (
        [name, f"{seconds:.2f}", f"{size / 1e6 / seconds:.0f}", f"{seconds / times['brisk capture']:.1f}"]
        for name, seconds in times.items()))
    return page(
        "capture", links=len(LINKS), rounds=f"{options.rounds} round{'s' * (options.rounds > 1)}", packets=packets, found=found,
        speed=speed, versions=[f"- {first(BRISK, '--version')}", f"- {named('TShark', 'tshark', '--version')}",
                  f"- {first('curl', '--version')}, {first('openssl', 'version')}, {chromium.version()}"],
        flags=", ".join(f"`{name}` {count:,}" for name, count in total["flags"].most_common()), others=len(unexplained),
        number=sum(row["packets"] for *_, row in rows), size=size / 1e6)


def section(name, folder):
    certificates.make(folder, [NAME])
    return SECTIONS[name](folder)


def run(options):
    programs.require(BRISK, LINK)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if options.only:
            return section(options.only, folder)
        total, differences = {"flags": collections.Counter()}, []
        certificates.make(folder, [NAME])
        pages(folder / "www")
        options.keep = options.keep or folder / "recorded"
        options.keep.mkdir(exist_ok=True)
        rows = measure(folder, chromium.pin(folder / f"{NAME}.pem"), options, total, differences)
        text = written(rows, total, differences, speed(folder, options.keep), options)
        return text + "".join("\n" + section(name, folder / name) for name in SECTIONS)


def merge(before, text, options):
    return renew(before, text.splitlines()[0], text) if options.only else text
