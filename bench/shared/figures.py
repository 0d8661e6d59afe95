"""Samples of a measurement, their statistics, and tables in Markdown."""
import math
import statistics
import sys

from .programs import BENCH, machine

MIB = 1 << 20


def show(text=""):
    """Replaces the line of progress."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def alternating(rounds, items):
    """The number of the round and an item. Every other round is backwards, so that no item always follows the same one."""
    for turn in range(rounds):
        for item in items if turn % 2 == 0 else reversed(items):
            yield turn, item


class Samples(dict):
    """Samples by name."""

    def add(self, what, sample):
        self.setdefault(what, []).append(sample)

    def of(self, what, key):
        return [sample[key] for sample in self.get(what, [])]


def number(value, whole=100):
    """Three digits, and no fraction from `whole` on."""
    is_whole = abs(value) >= whole or math.isfinite(value) and value == int(value)
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"


def middle(values, form=number, none=""):
    """Median, least and greatest."""
    values = sorted(value for value in values if value is not None)
    if not values:
        return none
    spread = f" ({form(values[0])}–{form(values[-1])})" if len(values) > 1 else ""
    return form(statistics.median(values)) + spread


def ratio(ours, theirs, digits=2, spread=None):
    """The median of the ratios of samples of the same round; with their `range` or their `quartiles`."""
    ratios = sorted(a / b for a, b in zip(ours, theirs) if a and b)
    if not ratios:
        return "none"
    low, high = (ratios[0], ratios[-1]) if spread == "range" else (ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4])
    text = f" ({low:.{digits}f}–{high:.{digits}f})" if spread else ""
    return f"{statistics.median(ratios):.{digits}f}{text}"


def growth(values):
    """The median of the last third of the values, divided by that of the second third."""
    third = len(values) // 3
    return statistics.median(values[-third:]) / statistics.median(values[third:-third])


def mebibytes(size):
    return f"{size / MIB:,.1f}"


def row(cells):
    return "|" + "|".join(f" {cell} " if cell not in ("", None) else " " for cell in cells) + "|"


def table(head, rows, left=1):
    """The lines of a table; `left` columns contain text."""
    return [row(head), "|" + "---|" * left + "---:|" * (len(head) - left), *map(row, rows)]


def page(name, **values):
    """The text of bench/pages/NAME.md with these values; a list is one of lines."""
    text = (BENCH / f"pages/{name}.md").read_text()
    return text.format(machine=machine(), **{key: "\n".join(value) if isinstance(value, list) else value
                                             for key, value in values.items()})
