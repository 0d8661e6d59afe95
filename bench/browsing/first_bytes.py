"""Prints the times in ms from a request to the first readable bytes of the response body and to its end.

usage: first_bytes.py ADDRESS PORT NAME PATH CA
"""
import json
import socket
import ssl
import sys
import time


def main(address, port, name, path, ca):
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["http/1.1"])
    with socket.create_connection((address, int(port)), 30) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain, server_hostname=name) as stream:
            # A busy machine is not to look like a slow network: what is measured begins with the request.
            asked = time.monotonic()
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            answer, first, rest = b"", None, None
            while piece := stream.recv(1 << 16):
                answer += piece
                if first is None and len(answer.partition(b"\r\n\r\n")[2]) > 0:
                    first = time.monotonic()
                rest = time.monotonic()
    status, body = answer.split(b" ", 2)[1], answer.partition(b"\r\n\r\n")[2]
    print(json.dumps({"status": int(status), "bytes": len(body), "first": (first - asked) * 1e3, "all": (rest - asked) * 1e3}))


main(*sys.argv[1:])
