"""Files of results with sections by different programs."""


def replace(path, title, section):
    """Puts the section with this title at the end of the file, in place of its previous version. Other text remains."""
    before = path.read_text() if path.exists() else ""
    path.write_text((before.partition(title)[0].rstrip("\n") + "\n\n" + section).lstrip("\n"))


def keep(path, title, text):
    """Replaces what precedes the section with this title."""
    _, found, rest = (path.read_text() if path.exists() else "").partition(title)
    path.write_text(text.rstrip("\n") + "\n" + (f"\n{found}{rest}" if found else ""))
