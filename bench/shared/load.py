"""The load generator `brisk bench` as a process, and its result."""
import json
import subprocess
import sys

from .gateway import certificates
from .processes import pinned
from .programs import BRISK, NAME

# Options for handshakes alone, with the suite and group that all measurements have.
TLS13 = ["--tls", "1.3", "--group", "X25519", "--suite", "TLS_AES_128_GCM_SHA256"]
HANDSHAKES = ["--handshake-only", *TLS13]


def bench(port, cores, path, seconds, *options, warmup="1s", name=NAME, ca=None, nice=0):
    """Starts it on `cores`, for requests to `path` of the server at `port`, `warmup` before the measurement."""
    ca = ca or certificates() / "root.pem"
    command = [BRISK, "bench", f"https://{name}{path}", "--connect", f"127.0.0.1:{port}", "--ca", ca, "--json",
               "--warmup", warmup, "-d", f"{seconds}s", *options]
    return subprocess.Popen(["nice", "-n", str(nice), *pinned(cores, *command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def report(load, strict=False):
    """The report of a load. Without one, or if it is `strict` and there are errors, the measurement ends."""
    output, complaints = load.communicate()
    if not output:
        sys.exit(f"brisk bench: {complaints.strip()}")
    found = json.loads(output)
    if strict and found["errors"]:
        sys.exit(f"brisk bench: {found['errors']}")
    return found


def failures(found):
    return sum(error["count"] for error in found["errors"])


def result(load):
    """Counts, and quantiles of the latency in milliseconds. The rate is in requests per second."""
    output, complaints = load.communicate()
    if not output:
        return {"failed": 1, "errors": {complaints.strip()[:200]: 1}, "unstarted": 0, "operations": 0, "rate": 0, "other": 0}
    found = json.loads(output)
    total = found["latency_us"].get("total") or {}
    return {"failed": failures(found), "unstarted": found["unstarted"], "operations": found["operations"],
            "rate": found["rate_per_s"],
            "errors": {f"{error['cause']}: {error['example']}": error["count"] for error in found["errors"]},
            "other": sum(found["responses"].get(status, 0) for status in ("1xx", "3xx", "4xx", "5xx")),
            **{name: total[name] / 1e3 for name in ("p50", "p99", "p999", "max") if total}}
