"""Python's ssl module: stdlib.py URL CA VERSION KIND. Prints a line of JSON for each visit."""
import json
import socket
import ssl
import sys
from urllib.parse import urlsplit

url, ca, version, kind = urlsplit(sys.argv[1]), *sys.argv[2:5]
context = ssl.create_default_context(cafile=ca)
context.minimum_version = context.maximum_version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]
context.set_alpn_protocols(["http/1.1"])
if (version, kind) == ("1.2", "stored"):
    context.options |= ssl.OP_NO_TICKET
session = None
for _ in range(1 if kind == "full" else 2):
    tcp = socket.create_connection((url.hostname, url.port), 20)
    with context.wrap_socket(tcp, server_hostname=url.hostname, session=session) as tls:
        tls.sendall(f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := tls.recv(4096):
            answer += part
        session = tls.session
        print(json.dumps({"status": int(answer.split()[1]), "resumed": tls.session_reused, "version": tls.version(),
                          "suite": tls.cipher()[0], "alpn": tls.selected_alpn_protocol(), "library": ssl.OPENSSL_VERSION}))
