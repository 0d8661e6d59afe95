#!/usr/bin/env python3
"""Creates a page of 60 resources with constant bytes: HTML, two styles, a blocking script in the head, three other scripts, and
53 pictures. A second version differs from the first in a few lines of each script and style.

usage: site.py FOLDER
"""
import random
import struct
import sys
import zlib
from pathlib import Path

PICTURES = 53
# Pictures that the head names.
PRELOADED = 6
# Every script and style by its name, with its bytes.
TEXTS = {"css/app": 32_000, "css/theme": 16_000, "js/head": 64_000, "js/list": 24_000, "js/menu": 24_000, "js/stats": 24_000}
HTML = 32_000
RESOURCES = 1 + len(TEXTS) + PICTURES
# The page of the first version, and that of the second.
PAGES = {1: "index.html", 2: "next.html"}

SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo zy bra cle dri flo gru".split()


class Words:
    """A vocabulary from which words are drawn as often as their place in it lets expect (Zipf)."""

    def __init__(self, seed, size=1200):
        # `random` itself is the same in every version of Python; what is built on it is not.
        self.draw = random.Random(seed).random
        self.words = ["".join(self.pick(SYLLABLES) for _ in range(2 + int(self.draw() * 3))) for _ in range(size)]

    def pick(self, choices):
        return choices[int(self.draw() * len(choices))]

    def word(self):
        return self.words[int(len(self.words) ** self.draw()) - 1]

    def number(self, most):
        return int(self.draw() * most)

    def sentence(self):
        return " ".join(self.word() for _ in range(6 + self.number(10))).capitalize() + "."


def script(name, size, version):
    """Functions that do nothing much. The second version has another constant in three of them."""
    words = Words(name)
    text, at = [f"// {name}, version {version}\n"], 0
    length = len(text[0])
    while length < size:
        changed = version if at in (5, 40, 70) else 1
        one, two, three = (f"{words.word()}{words.number(90)}" for _ in range(3))
        text.append(f"function {one}_{at}({two}, {three}) {{\n  var state = {two} * {words.number(5000)} + {changed};\n"
                    f"  if (state > {words.number(900)}) "
                    f"{{ return document.getElementById('{words.word()}-{words.number(40)}'); }}\n"
                    f"  return {{ {words.word()}: {three}, {words.word()}: '{words.sentence()}' }};\n}}\n")
        length += len(text[-1])
        at += 1
    return "".join(text) + f"window.loaded = (window.loaded || []).concat('{name} {version}');\n"


def style(name, size, version):
    words = Words(name)
    text, at, length = [f"/* {name}, version {version} */\n"], 0, 0
    while length < size:
        changed = version if at in (7, 90) else 0
        text.append(f".{words.word()}-{at} .{words.word()} {{ margin: {words.number(40)}px {changed}px; "
                    f"color: #{words.number(1 << 24):06x}; line-height: 1.{words.number(9)}; }}\n")
        length += len(text[-1])
        at += 1
    return "".join(text)


def picture(number):
    """A PNG of noise, 2 to 10 KB, which no coding makes smaller."""
    draw = random.Random(f"picture {number}").random
    width, height = 40 + 2 * int(draw() * 30), 50 + int(draw() * 50)
    rows = b"".join(b"\0" + bytes(int(draw() * 256) for _ in range(width)) for _ in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    # Stored, not deflated: so the bytes do not depend on the version of zlib.
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b""))


def page(assets, version):
    words = Words("page")
    url = lambda name, kind: f"{assets}/{name}.v{version}.{kind}"
    head = [f"<!doctype html><html lang=en><meta charset=utf-8><title>version {version}</title>",
            # Browsers would ask for one by themselves.
            '<link rel=icon href="data:,">',
            *(f'<link rel=stylesheet href="{url(name, "css")}">' for name in TEXTS if name.startswith("css/")),
            f'<script src="{url("js/head", "js")}"></script>',
            # These are asked for while the script above is still on its way.
            *(f'<link rel=preload as=image href="{assets}/img/{number}.png">' for number in range(PRELOADED)),
            *(f'<script defer src="{url(name, "js")}"></script>'
              for name in TEXTS if name.startswith("js/") and name != "js/head")]
    body, length = [], 0
    for number in range(PICTURES):
        body.append(f'<article class="{words.word()}-{number}"><h2>{words.sentence()}</h2>'
                    f'<img src="{assets}/img/{number}.png" width=90 height=90 alt="{words.word()}">')
        while length + sum(map(len, body[-1:])) < HTML * (number + 1) / PICTURES:
            body.append(f"<p>{words.sentence()} {words.sentence()}</p>")
            length += len(body[-1])
        length += len(body[-1])
        body.append("</article>\n")
    return "\n".join(head) + "<body>\n" + "".join(body)


def make(folder, assets=""):
    """Writes the page into `folder`; URLs of all but the page itself begin with `assets`."""
    folder = Path(folder)
    for name in ("css", "js", "img"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for version, file in PAGES.items():
        (folder / file).write_text(page(assets, version))
        for name, size in TEXTS.items():
            kind = name.partition("/")[0]
            text = (script if kind == "js" else style)(name, size, version)
            (folder / f"{name}.v{version}.{kind}").write_text(text)
    for number in range(PICTURES):
        (folder / f"img/{number}.png").write_bytes(picture(number))


if __name__ == "__main__":
    make(sys.argv[1])
