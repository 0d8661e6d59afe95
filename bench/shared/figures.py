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
    """The text of bench/pages/NAME.md with these values. A list is one of lines, which are text or the cells of a row."""
    for key, value in values.items():
        if isinstance(value, list):
            values[key] = "\n".join(line if isinstance(line, str) else row(line) for line in value)
    return (BENCH / f"pages/{name}.md").read_text().format(machine=machine(), **values)
