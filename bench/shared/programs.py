"""Paths and versions of the programs that are measured, and the name of the machine. Sets the PATH of all processes."""
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", CACHE / "target"))
BRISK = os.environ.setdefault("BRISK_PROGRAM", str(TARGET / "release/brisk"))
# A program of the same build.
LINK = os.environ.get("LINK_PROGRAM", str(Path(BRISK).parent / "brisk-link"))
os.environ["PATH"] = f"{CACHE}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
TITLES = {"brisk": "brisk", "nginx": "nginx", "haproxy": "HAProxy", "envoy": "Envoy", "caddy": "Caddy"}
# The name in the certificates of bench/peers.
NAME = "bench.test"


def installed(name):
    return shutil.which(BRISK if name == "brisk" else name) is not None


def require(*programs):
    """Ends the measurement if a program of this repository was not built."""
    for program in programs:
        if not Path(program).exists():
            sys.exit(f"no {program}; `make NAME` builds it for the measurement NAME, and --brisk names another brisk")


def chosen(wanted, names):
    """The servers that are installed, of those that are wanted or of all. brisk must be."""
    require(BRISK)
    for name in (names := wanted or list(names)):
        if not installed(name):
            print(f"{name} is not installed and is skipped; install it with tools/setup", file=sys.stderr)
    return [name for name in names if installed(name)]


def version(name):
    """Name and version of a server, and of its TLS library."""
    done = subprocess.run([BENCH / "peers/run", name, "version"], capture_output=True, text=True)
    return done.stdout.strip() or f"{TITLES.get(name, name)}, version unknown"


def machine():
    """The machine and the day, for a page."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} cores {cpu}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}"
