"""Requests with libcurl over HTTP/3 alone (curl_cffi, with ngtcp2 and nghttp3): curl_client.py CA-FILE HOST ADDRESS CASE."""

import json
import sys

from curl_cffi import CurlHttpVersion, CurlOpt, requests

CA, HOST, ADDRESS, CASE = sys.argv[1:]
SERVER, PORT = ADDRESS.rsplit(":", 1)


def session():
    # curl's own resolver, so that the certificate is checked for the name of the host.
    options = {CurlOpt.RESOLVE: [f"{HOST}:{PORT}:{SERVER}"]}
    return requests.Session(http_version=CurlHttpVersion.V3ONLY, verify=CA, curl_options=options, timeout=170)


def url(path):
    return f"https://{HOST}:{PORT}{path}"


def content():
    return bytes(at // 7 % 251 for at in range(1 << 20))


def get():
    with session() as own:
        answers = [own.get(url("/curl")) for _ in range(3)]
        return {"bodies": [answer.text for answer in answers], "version": int(answers[0].http_version)}


def echo():
    with session() as own:
        return {"same": own.post(url("/curl"), data=content()).content == content()}


print(json.dumps({"get": get, "echo": echo}[CASE]()))
