"""Servers that compress the responses of an upstream, each with one worker: brisk, nginx, Caddy and Envoy."""
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from processes import end, free_port, listens

from .servers import BRISK, PATH

NAME = "compress.test"
TITLES = {"brisk": "brisk", "nginx": "nginx", "caddy": "Caddy", "envoy": "Envoy"}
# The window of all is 256 KiB or as near to it as the server allows.
CODECS = {"gzip": ("gzip", "Gzip", "compression_level: COMPRESSION_LEVEL_{level}, window_bits: 15, memory_level: 8, chunk_size: 65536"),
          "br": ("brotli", "Brotli", "quality: {level}, window_bits: 18, chunk_size: 65536"),
          "zstd": ("zstd", "Zstd", "compression_level: {level}, chunk_size: 65536")}


def brisk(coding, level, values):
    key = {"gzip": "gzip_level", "br": "br_quality", "zstd": "zstd_level"}.get(coding)
    compression = f'compression = {{ codings = ["{coding}"], {key} = {level} }}' if coding else ""
    return f"""
[server]
https = ["127.0.0.1:{values['port']}"]
workers = 1
state_dir = "{values['folder']}/state"
[access_log]
format = "off"
[[host]]
names = ["{NAME}"]
certificates = [{{ chain = "{values['certificate']}.pem", key = "{values['certificate']}.key" }}]
{compression}
[[host.route]]
path = "/"
upstream = "text"
[upstream.text]
servers = ["http://127.0.0.1:{values['upstream']}"]
"""


def nginx(coding, level, values):
    gzip = f"gzip on; gzip_comp_level {level}; gzip_types text/css text/javascript; gzip_proxied any; gzip_min_length 512;" if coding else ""
    user = "user root;" if os.getuid() == 0 else ""
    folder = values["folder"]
    return f"""
daemon off; worker_processes 1; {user} pid {folder}/nginx.pid;
events {{ }}
http {{
  access_log off; error_log stderr crit; tcp_nodelay on; keepalive_requests 100000000; {gzip}
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3; uwsgi_temp_path {folder}/4;
  scgi_temp_path {folder}/5;
  upstream text {{ server 127.0.0.1:{values['upstream']}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{values['port']} ssl http2; ssl_protocols TLSv1.3;
    ssl_certificate {values['certificate']}.pem; ssl_certificate_key {values['certificate']}.key;
    location / {{ proxy_pass http://text; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffers 32 64k;
      proxy_buffer_size 64k; proxy_busy_buffers_size 512k; }}
  }}
}}
"""


def caddy(coding, level, values):
    encode = f"encode {{\n\t\t{coding} {level}\n\t\tminimum_length 512\n\t}}" if coding else ""
    return f"""{{
	admin off
	auto_https off
	skip_install_trust
	persist_config off
	log {{
		output discard
	}}
	servers {{
		protocols h1 h2
	}}
}}
https://:{values['port']} {{
	bind 127.0.0.1
	tls {values['certificate']}.pem {values['certificate']}.key
	{encode}
	reverse_proxy 127.0.0.1:{values['upstream']} {{
		transport http {{
			keepalive_idle_conns_per_host 64
			compression off
		}}
	}}
}}
"""


def envoy(coding, level, values):
    compressor = ""
    if coding:
        library, kind, options = CODECS[coding]
        compressor = f"""          - name: envoy.filters.http.compressor
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor
              response_direction_config: {{ common_config: {{ min_content_length: 512, content_type: [ text/html, text/css, text/javascript ] }} }}
              compressor_library:
                name: codec
                typed_config: {{ "@type": type.googleapis.com/envoy.extensions.compression.{library}.compressor.v3.{kind}, {options.format(level=level)} }}
"""
    types = "type.googleapis.com/envoy.extensions"
    return f"""
static_resources:
  listeners:
  - name: l
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {values['port']} }} }}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": {types}.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [ h2, http/1.1 ]
            tls_certificates: [ {{ certificate_chain: {{ filename: {values['certificate']}.pem }}, private_key: {{ filename: {values['certificate']}.key }} }} ]
      filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {types}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          generate_request_id: false
          route_config: {{ virtual_hosts: [ {{ name: v, domains: [ "*" ], routes: [ {{ match: {{ prefix: / }}, route: {{ cluster: up, timeout: 0s }} }} ] }} ] }}
          http_filters:
{compressor}          - name: envoy.filters.http.router
            typed_config: {{ "@type": {types}.filters.http.router.v3.Router, dynamic_stats: false, suppress_envoy_headers: true }}
  clusters:
  - name: up
    type: STATIC
    load_assignment: {{ cluster_name: up, endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {values['upstream']} }} }} }} }} ] }} ] }}
"""


SERVERS = {"brisk": (brisk, "brisk.toml"), "nginx": (nginx, "nginx.conf"), "caddy": (caddy, "Caddyfile"), "envoy": (envoy, "envoy.yaml")}


def installed(name):
    return shutil.which(BRISK if name == "brisk" else name, path=PATH) is not None


class Compressing:
    """A server of this name with this coding (or none) and level, on `core`, from `with` to the end of it."""

    def __init__(self, name, coding, level, folder, core, certificate, upstream):
        self.name, self.port, self.folder = name, free_port(), Path(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        write, file = SERVERS[name]
        configuration = self.folder / file
        values = {"port": self.port, "folder": self.folder, "certificate": certificate, "upstream": upstream}
        configuration.write_text(write(coding, level, values))
        self.command = ["taskset", "-c", str(core), *{
            "brisk": [BRISK, "serve", "--config", configuration],
            "nginx": ["nginx", "-p", self.folder, "-e", "stderr", "-c", configuration],
            "caddy": ["caddy", "run", "--adapter", "caddyfile", "--config", configuration],
            # Servers of one base id share memory; none is to.
            "envoy": ["envoy", "-c", configuration, "--concurrency", "1", "-l", "error", "--base-id", str(self.port)],
        }[name]]

    def __enter__(self):
        with open(self.folder / "log", "wb") as log:
            # Go would start as many threads as the machine has cores.
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env={
                **os.environ, "PATH": PATH, "GOMAXPROCS": "1", "XDG_DATA_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)})
        if listens(self.process, self.port, 30):
            return self
        self.__exit__()
        sys.exit(f"{self.name} does not serve:\n{(self.folder / 'log').read_text(errors='replace')[-3000:]}")

    def __exit__(self, *_):
        end(self.process, signal.SIGTERM if self.name == "nginx" else signal.SIGINT, 3)
