"""Samples of a measurement, their medians, and the machine that they are of."""
import json
import os
import platform
import statistics
import sys
import time


class Note:
    """The samples so far, those of earlier runs too where there is a file of them."""

    def __init__(self, file):
        self.file, self.samples, self.turn = file, {}, 0
        for line in file.read_text().splitlines() if file and file.exists() else []:
            self.keep(**json.loads(line))

    def keep(self, what, sample):
        self.samples.setdefault(what, []).append(sample)

    def down(self, what, sample):
        self.keep(what, sample)
        if self.file:
            with open(self.file, "a") as file:
                print(json.dumps({"what": what, "sample": sample}), file=file)

    def says(self, text):
        print(f"\r\033[Kround {self.turn + 1}: {text}", end="", file=sys.stderr, flush=True)

    def values(self, what, key):
        return [sample[key] for sample in self.samples.get(what, [])]


def number(value):
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"


def middle(values):
    """Median, and the least and the most."""
    return f"{number(statistics.median(values))} ({number(min(values))}–{number(max(values))})" if values else ""


def cpu():
    name = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} cores {name}, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d', time.gmtime())}"
