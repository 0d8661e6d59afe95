"""OpenSSL 1.1.1 from an old wheel of `cryptography`: pyopenssl.py URL CA VERSION KIND. Prints a line of JSON for
each visit."""
import json
import socket
import sys
from urllib.parse import urlsplit

from OpenSSL import SSL
from OpenSSL._util import lib

url, ca, version, kind = urlsplit(sys.argv[1]), *sys.argv[2:5]
context = SSL.Context(SSL.SSLv23_METHOD)
context.load_verify_locations(ca)
context.set_verify(SSL.VERIFY_PEER, lambda _connection, _certificate, _error, _depth, good: bool(good))
# Without a hole between versions: OpenSSL would take those below it.
context.set_options(SSL.OP_NO_TLSv1 | SSL.OP_NO_TLSv1_1 | {"1.2": SSL.OP_NO_TLSv1_3, "1.3": SSL.OP_NO_TLSv1_2}[version])
context.set_alpn_protos([b"http/1.1"])
if (version, kind) == ("1.2", "stored"):
    context.set_options(SSL.OP_NO_TICKET)
session = None
for _ in range(1 if kind == "full" else 2):
    tls = SSL.Connection(context, socket.create_connection((url.hostname, url.port)))
    tls.set_tlsext_host_name(url.hostname.encode())
    if session:
        tls.set_session(session)
    tls.set_connect_state()
    tls.do_handshake()
    tls.sendall(f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = b""
    try:
        while True:
            answer += tls.recv(4096)
    except SSL.ZeroReturnError:
        pass
    session = tls.get_session()
    print(json.dumps({"status": int(answer.split()[1]), "resumed": bool(lib.SSL_session_reused(tls._ssl)),
                      "version": tls.get_protocol_version_name(), "suite": tls.get_cipher_name(),
                      "alpn": tls.get_alpn_proto_negotiated().decode(),
                      "library": SSL.SSLeay_version(SSL.SSLEAY_VERSION).decode()}))
    tls.shutdown()
    tls.close()
