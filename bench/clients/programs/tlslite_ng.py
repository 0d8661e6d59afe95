"""tlslite-ng, TLS in Python: tlslite_ng.py URL CA VERSION KIND. Prints a line of JSON for each visit. It does not verify
chains."""
import json
import socket
import sys
from urllib.parse import urlsplit

from tlslite.api import HandshakeSettings, TLSConnection

url, _, version, kind = urlsplit(sys.argv[1]), *sys.argv[2:5]
settings = HandshakeSettings()
settings.minVersion = settings.maxVersion = {"1.2": (3, 3), "1.3": (3, 4)}[version]
session = None
for _ in range(1 if kind == "full" else 2):
    tls = TLSConnection(socket.create_connection((url.hostname, url.port)))
    tls.handshakeClientCert(session=session, settings=settings, serverName="localhost", alpn=[b"http/1.1"])
    tls.sendall(f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = b""
    while part := tls.recv(4096):
        answer += part
    session = tls.session
    print(json.dumps({"status": int(answer.split()[1]), "resumed": bool(tls.resumed), "version": tls.getVersionName(),
                      "suite": tls.getCipherName(), "alpn": tls.next_proto and tls.next_proto.decode()}))
    tls.close()
