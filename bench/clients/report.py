"""The results of the clients as a page (Markdown)."""
import re

from shared.figures import table

COLUMNS = ["full", "ticket", "stored", "early"]

HEAD = """# TLS clients

Made by `make clients` on {machine}. Every client that Debian or a registry has, with each version of TLS, each certificate and
each kind of resumption that it can do, against a brisk of its own.

- **full**: a first visit. **ticket**: a second visit that resumes with a ticket. **stored**: one that resumes a session of
  brisk's store, by session ID in TLS 1.2 and by an ID in place of a ticket in TLS 1.3. **early**: one whose request is in
  early data (0-RTT).
- `ok`: the client says that it got status 200 and, where it can tell, that it resumed or not; and brisk's access log has the
  request with the version, the kind of resumption and the certificate that were wanted. `-`: the client cannot do this, for
  the reason given. **FAIL**: anything else; all of it is below the table.
- Suite, group and ALPN are those of the access log. The names of TLS 1.2 suites begin with TLS_ECDHE_ECDSA or TLS_ECDHE_RSA.
"""


def suite(agreed):
    return re.sub(r"^TLS_(ECDHE_(ECDSA|RSA)_WITH_)?", "", agreed.get("suite") or "?")


def mark(cell):
    if cell is None:
        return ""
    return {"pass": "ok", "cannot": "-", "fail": "**FAIL**"}[cell["state"]]


def client_rows(client, cells):
    """A line for each version that the client has."""
    for version in ("1.2", "1.3"):
        own = {key: cell for key, cell in cells.items() if key[0] == version}
        ran = [cell for cell in own.values() if cell["state"] != "cannot" and cell["agreed"].get("suite")]
        if not any(cell["state"] != "cannot" for cell in own.values()):
            continue
        seen = lambda what: ", ".join(dict.fromkeys(filter(None, (what(cell["agreed"]) for cell in ran)))) or "none"
        marks = [mark(own.get((version, kind, certificate))) for certificate in ("ecdsa", "rsa") for kind in COLUMNS]
        yield [f"{client.name} {client.found}".strip(), client.stack, version, seen(suite),
               seen(lambda agreed: agreed.get("group")), seen(lambda agreed: agreed.get("alpn")), *marks]


def notes(results):
    lines = []
    for client, cells in results:
        reasons = [cell["reason"] for cell in cells.values() if cell["state"] == "cannot" and cell["reason"]]
        if reasons:
            lines.append(f"- {client.name}: {reasons[0]}")
    return lines


def failures(results):
    """Every cell that failed, and why; equal complaints of a client together."""
    lines = []
    for client, cells in results:
        grouped = {}
        for (version, kind, certificate), cell in cells.items():
            if cell["state"] == "fail":
                evidence = [line.strip() for line in cell["output"].splitlines() if re.search(r"error|fail|alert", line, re.I)]
                text = "; ".join(cell["complaints"]) + (f" (`{evidence[-1][:160]}`)" if evidence else "")
                grouped.setdefault(text, []).append(f"{version} {kind} {certificate}")
        lines += [f"- {client.name}, {', '.join(names)}: {text}" for text, names in grouped.items()]
        if grouped and client.fault:
            lines.append(f"  - the client's own fault. {client.fault}")
    return lines


def page(results, missing, machine):
    header = ["client", "library", "TLS", "suite", "group", "ALPN",
              *(f"{name} {kind}" for name in ("ECDSA:", "RSA:") for kind in COLUMNS)]
    ran = sum(cell["state"] != "cannot" for _, cells in results for cell in cells.values())
    good = sum(cell["state"] == "pass" for _, cells in results for cell in cells.values())
    lines = [HEAD.format(machine=machine), f"{len(results)} clients, {ran} cells, {good} of them `ok`.", ""]
    lines += table(header, (row for client, cells in results for row in client_rows(client, cells)), left=len(header))
    lines += ["", "## What failed", "", *(failures(results) or ["Nothing."])]
    lines += ["", "## What clients cannot do", "", *notes(results)]
    if missing:
        lines += ["", "## Clients that were not there", "", *(f"- {name}: {reason}" for name, reason in missing)]
    return "\n".join(lines) + "\n"
