"""Servers as processes: free ports, tests whether they listen, and their end."""
import socket
import subprocess
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def listens(process, port, seconds):
    """Waits for so long until the process listens. False if it does not by then, or has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        if connects(port):
            return True
        time.sleep(0.05)
    return False


def end(process, kind, seconds):
    """Ends it with this signal, or after so long without asking."""
    process.send_signal(kind)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
