"""The results of `run` and of the scanners as a page (Markdown)."""
import json
import re
import shutil
import subprocess
import sys

COLUMNS = ["full", "ticket", "stored", "early"]
SEVERE = ("MEDIUM", "HIGH", "CRITICAL")
SCANS = ["certinfo", "sslv2", "sslv3", "tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3", "resum", "early_data", "heartbleed", "robot",
         "openssl_ccs", "reneg", "compression", "fallback", "elliptic_curves", "http_headers", "ems"]

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


def table(header, lines):
    return [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *(f"| {' | '.join(line)} |" for line in lines)]


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


def page(results, missing, scans, machine):
    header = ["client", "library", "TLS", "suite", "group", "ALPN",
              *(f"{name} {kind}" for name in ("ECDSA:", "RSA:") for kind in COLUMNS)]
    ran = sum(cell["state"] != "cannot" for _, cells in results for cell in cells.values())
    good = sum(cell["state"] == "pass" for _, cells in results for cell in cells.values())
    lines = [HEAD.format(machine=machine), f"{len(results)} clients, {ran} cells, {good} of them `ok`.", ""]
    lines += table(header, [row for client, cells in results for row in client_rows(client, cells)])
    lines += ["", "## What failed", "", *(failures(results) or ["Nothing."])]
    lines += ["", "## What clients cannot do", "", *notes(results)]
    if missing:
        lines += ["", "## Clients that were not there", "", *(f"- {name}: {reason}" for name, reason in missing)]
    for title, text in scans:
        lines += ["", f"## {title}", "", *text]
    return "\n".join(lines) + "\n"


def scans(ecdsa, rsa, cache):
    return [("testssl.sh", testssl(ecdsa)), ("sslyze", sslyze(rsa, cache))]


def testssl(server):
    """Its findings by severity, and those that are above LOW."""
    program = shutil.which("testssl") or shutil.which("testssl.sh")
    if not program:
        return ["testssl.sh is not there."]
    report = server.folder / "testssl.json"
    subprocess.run([program, "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none", "--ip", "127.0.0.1", "--add-ca",
                    str(server.ca), "--jsonfile", str(report), f"localhost:{server.port}"], capture_output=True, timeout=600,
                   cwd=server.folder, env={"TERM": "dumb", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(server.folder)})
    findings = json.loads(report.read_text())
    counts = {}
    for finding in findings:
        counts[finding["severity"]] = counts.get(finding["severity"], 0) + 1
    found = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    lines = [f"With the ECDSA certificate and tickets: {found}."]
    severe = [finding for finding in findings if finding["severity"] in SEVERE]
    lines += [f"- {finding['severity']} `{finding['id']}`: {finding['finding']}" for finding in severe] or ["Nothing above LOW."]
    wanted = (r"^(protocol_negotiated|cipher_negotiated|FS_ECDHE_curves|sessionresumption_(ticket|ID)|TLS_session_ticket|HSTS|"
              r"ALPN|overall_grade)$")
    told = [finding for finding in findings if re.search(wanted, finding["id"])]
    rows = [[f"`{finding['id']}`", finding["severity"], finding["finding"].replace("|", "/")] for finding in told]
    return [*lines, "", *table(["finding", "severity", "says"], rows)]


def sslyze(server, cache):
    """Whether the scan went through, and its findings in short."""
    folder = cache / "sslyze"
    if not folder.is_dir():
        return ["sslyze is not there."]
    report = server.folder / "sslyze.json"
    done = subprocess.run([sys.executable, "-m", "sslyze", *(f"--{scan}" for scan in SCANS), "--mozilla_config=disable",
                           "--json_out", str(report), f"localhost:{server.port}"], timeout=300,
                          capture_output=True, text=True, env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"})
    if not report.exists():
        return [f"It failed: `{(done.stderr or done.stdout).strip().splitlines()[-1:]}`"]
    result = json.loads(report.read_text())["server_scan_results"][0]
    lines = []
    for name, scan in sorted((result["scan_result"] or {}).items()):
        says = short(name, scan["result"]) if scan["status"] == "COMPLETED" else scan.get("error_reason") or ""
        lines.append([f"`{name}`", scan["status"], says])
    return [f"With the RSA certificate and tickets: the scan is {result['scan_status']}.", "",
            *table(["scan", "status", "says"], lines)]


def short(name, result):
    """The findings of one scan in a line: suites, or whatever is a plain value."""
    if "accepted_cipher_suites" in result:
        suites = [suite["cipher_suite"]["name"] for suite in result["accepted_cipher_suites"]]
        return ", ".join(f"`{name}`" for name in suites) or "refused"
    plain = {key: value for key, value in result.items() if isinstance(value, (bool, int, str))}
    if name == "http_headers":
        hsts = result.get("strict_transport_security_header") or {}
        plain = {"strict_transport_security max_age": hsts.get("max_age", "none")}
    if name == "elliptic_curves":
        plain["supported"] = ", ".join(curve["name"] for curve in result.get("supported_curves") or [])
    return "; ".join(f"{key} {value}" for key, value in plain.items())[:400].replace("|", "/")
