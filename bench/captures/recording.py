"""Recordings by tcpdump."""
import signal
import subprocess
import sys
from contextlib import contextmanager

from shared.processes import end, wait

NAME = "site.test"


@contextmanager
def recorder(prefix, device, file, *filters):
    """Records the packets of a device while it runs. `prefix` starts tcpdump where the device is."""
    # -Z keeps the rights of root, -U writes each packet at once.
    tcpdump = subprocess.Popen(prefix("tcpdump", "-Z", "root", "-i", device, "-U", "-s", "0", "-w", file, *filters),
                               stderr=subprocess.DEVNULL)
    try:
        if not wait(lambda: file.exists() and file.stat().st_size >= 24, 15, tcpdump):
            sys.exit("tcpdump does not start")
        yield file
    finally:
        end(tcpdump, signal.SIGINT)
