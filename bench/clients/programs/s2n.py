"""s2n-tls from awscrt: s2n.py URL CA VERSION. Prints a line of JSON. awscrt has no interface for resumption."""
import json
import sys
from urllib.parse import urlsplit

from awscrt import http, io

url, ca = urlsplit(sys.argv[1]), sys.argv[2]
options = io.TlsContextOptions()
options.override_default_trust_store_from_path(None, ca)
options.alpn_list = ["http/1.1"]
tls = io.ClientTlsContext(options).new_connection_options()
tls.set_server_name("localhost")
bootstrap = io.ClientBootstrap(io.EventLoopGroup(1), io.DefaultHostResolver(io.EventLoopGroup(1)))
connection = http.HttpClientConnection.new("localhost", url.port, bootstrap, tls_connection_options=tls).result(20)
headers = http.HttpHeaders([("host", "localhost"), ("connection", "close")])
status = []
stream = connection.request(http.HttpRequest("GET", f"{url.path}?{url.query}", headers),
                            on_response=lambda http_stream, status_code, headers, **_: status.append(status_code))
stream.activate()
stream.completion_future.result(20)
print(json.dumps({"status": status[0]}))
