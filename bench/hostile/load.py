"""The load generator `brisk bench` as a process, and its result."""
import json
import subprocess

from .client import NAME
from .servers import BRISK, certificates


def bench(port, cores, path, seconds, *options, warmup=1):
    """Starts it on `cores`, for requests to `path` of the server at `port`, `warmup` seconds before the measurement."""
    ca = certificates() / "root.pem"
    return subprocess.Popen(
        ["taskset", "-c", cores, BRISK, "bench", f"https://{NAME}{path}", "--connect", f"127.0.0.1:{port}", "--ca", ca, "--json",
         "--tls", "1.3", "--warmup", f"{warmup}s", "-d", f"{seconds}s", *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(load):
    """Counts, and quantiles of the latency in milliseconds. The rate is in requests per second."""
    output, complaints = load.communicate()
    if not output:
        return {"failed": 1, "errors": {complaints.strip()[:200]: 1}, "unstarted": 0, "operations": 0, "rate": 0, "other": 0}
    report = json.loads(output)
    found = {"failed": sum(error["count"] for error in report["errors"]), "unstarted": report["unstarted"],
             "errors": {error["cause"] + ": " + str(error["example"]): error["count"] for error in report["errors"]},
             "operations": report["operations"], "rate": report["rate_per_s"],
             "other": sum(report["responses"].get(status, 0) for status in ("1xx", "3xx", "4xx", "5xx"))}
    total = report["latency_us"].get("total")
    if total:
        found |= {quantile: total[quantile] / 1e3 for quantile in ("p50", "p99", "p999", "max")}
    return found
