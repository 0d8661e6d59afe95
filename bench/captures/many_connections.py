"""Memory and time of `brisk capture` for 10 GB with a million connections.

One connection of curl with `brisk serve` is recorded and repeated from other addresses, 20,000 of them open at the same time. The
capture goes through a pipe, so it needs no disk.
"""
import json
import os
import signal
import struct
import subprocess
import time

from milestones import NAME, PORT, SERVE, Namespace, wait

# Bytes of the response; a connection has about 10 kB.
SIZE = 7_000
CONNECTIONS = 1_000_000
# Connections that are open at the same time, and seconds until the next ones.
OPEN, INTERVAL = 20_000, 20


def template(brisk, folder):
    """Records of one connection: direction, time since the first packet, and bytes of the Ethernet frame."""
    (folder / "www").mkdir()
    (folder / "www/page").write_bytes(bytes(index * index // 7 % 256 for index in range(SIZE)))
    route = f'[[host.route]]\npath = "/"\nstatic = "{folder}/www"\n'
    (folder / "serve.toml").write_text(SERVE.replace("FOLDER", str(folder)) + route)
    capture = folder / "one.pcap"
    with Namespace() as inside:
        subprocess.run(inside.at("ip", "link", "set", "lo", "mtu", 1500), check=True)
        serve = subprocess.Popen(inside.at(brisk, "serve", "--config", folder / "serve.toml"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        curl = inside.at("curl", "--silent", "--insecure", "--output", "/dev/null", "--resolve", f"{NAME}:{PORT}:127.0.0.1", f"https://{NAME}:{PORT}/page")
        try:
            wait(lambda: subprocess.run(curl).returncode == 0, "brisk serve")
            tcpdump = subprocess.Popen(inside.at("tcpdump", "-Z", "root", "-i", "lo", "-U", "-w", capture, f"port {PORT}"), stderr=subprocess.DEVNULL)
            wait(lambda: capture.exists() and capture.stat().st_size >= 24, "tcpdump")
            subprocess.run(curl, check=True)
            time.sleep(1)
            tcpdump.send_signal(signal.SIGINT)
            tcpdump.wait()
        finally:
            serve.terminate()
            serve.wait()
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


def section(brisk, folder):
    """Markdown: memory and time."""
    header, packets = template(brisk, folder)
    lines = [
        "## A million connections", "",
        f"One connection of curl with {len(packets)} packets, repeated {CONNECTIONS:,} times from other addresses, {OPEN:,} of them at the same "
        "time, through a pipe:", "",
        "| output | capture | connections | reported early | seconds | MB/s | peak memory |", "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, options in [("text", []), ("`--json`", ["--json"])]:
        began, result = time.monotonic(), folder / "result"
        with open(result, "wb") as target:
            capture = subprocess.Popen([brisk, "capture", "-", *options], stdin=subprocess.PIPE, stdout=target)
            size = write(capture.stdin, header, packets)
            capture.stdin.close()
            _, status, usage = os.wait4(capture.pid, 0)
        capture.returncode = os.waitstatus_to_exitcode(status)
        if capture.returncode:
            raise SystemExit(f"brisk capture {options} ended with {capture.returncode}")
        seconds = time.monotonic() - began
        if options:
            summary = json.loads(last_line(result))
            if summary["connections"] != CONNECTIONS:
                raise SystemExit(f"{summary['connections']} connections are reported instead of {CONNECTIONS}")
            counts = [f"{summary['connections']:,}", f"{summary['evicted']:,}"]
        else:
            counts = ["", ""]
        result.unlink()
        lines.append(f"| {name} | {size / 1e9:.1f} GB | {counts[0]} | {counts[1]} | {seconds:.0f} | {size / 1e6 / seconds:.0f} | {usage.ru_maxrss / 1024:.0f} MiB |")
    return lines + ["", "The script that writes the capture has a part in the time, and other programs of the machine too.", ""]
