"""brisk, nginx, HAProxy and h2o in front of the same server, with their defaults beyond addresses and certificates."""
import os
import re
import shutil
import subprocess

from .servers import BRISK, PAGE, PATH, Server

# Each kind: its programs, the first of which is preferred, its configuration, and the words after the program.
KINDS = {
    "brisk": ([BRISK], """
[server]
https = ["{address}:{port}"]
http3 = true
workers = 1
state_dir = "{folder}/state"

[[host]]
names = ["{page}"]
certificates = [{{ chain = "{certificates}/{page}.pem", key = "{certificates}/{page}.key" }}]

[[host.route]]
path = "/"
upstream = "files"

[upstream.files]
servers = ["http://127.0.0.1:{upstream}"]
""", ["serve", "--config", "{folder}/config"]),
    "nginx": (["nginx-current", "nginx"], """
daemon off; worker_processes 1; {user} pid {folder}/nginx.pid;
events {{ }}
http {{
  access_log off; error_log stderr crit; tcp_nodelay on;
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3; uwsgi_temp_path {folder}/4;
  scgi_temp_path {folder}/5;
  upstream files {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{
    listen {address}:{port} ssl http2; server_name {page};
    {nginx_http3}
    ssl_certificate {certificates}/{page}.pem; ssl_certificate_key {certificates}/{page}.key;
    location / {{ proxy_pass http://files; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
""", ["-p", "{folder}", "-e", "stderr", "-c", "{folder}/config"]),
    "HAProxy": (["haproxy-current", "haproxy"], """
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend page
  bind {address}:{port} ssl crt {folder}/pair.pem alpn h2,http/1.1
  {haproxy_http3}
  default_backend files
backend files
  server files 127.0.0.1:{upstream}
""", ["-f", "{folder}/config"]),
    "h2o": (["h2o"], """
{h2o_user}
num-threads: 1
pid-file: {folder}/pid
error-log: /dev/null
listen:
  host: {address}
  port: {port}
  ssl:
    certificate-file: {certificates}/{page}.pem
    key-file: {certificates}/{page}.key
    ocsp-update-interval: 0
hosts:
  "{page}":
    paths:
      /:
        proxy.reverse.url: http://127.0.0.1:{upstream}/
""", ["-c", "{folder}/config"]),
}


def program(kind):
    """The program of a kind; `None` if it is not installed."""
    return next(filter(None, (shutil.which(name, path=PATH) for name in KINDS[kind][0])), None)


def said(kind, *words):
    done = subprocess.run([program(kind), *words], capture_output=True, text=True)
    return done.stdout + done.stderr


def version(kind):
    """Name and version."""
    found = re.search(r"\d+(\.\d+)+", said(kind, "-v" if kind in ("nginx", "HAProxy") else "--version"))
    return f"{kind} {found.group(0)}" if found else kind


def has_http3(kind):
    """Whether the program of a kind was built with HTTP/3."""
    built = {"brisk": lambda: True, "nginx": lambda: "http_v3_module" in said(kind, "-V"), "HAProxy": lambda: "+QUIC " in said(kind, "-vv")}
    return program(kind) is not None and built.get(kind, lambda: False)()


class Proxy(Server):
    """A proxy of one kind, which forwards all requests to 127.0.0.1:`upstream`."""

    def command(self):
        _, config, words = KINDS[self.kind]
        settings = {**self.settings, "h2o_user": "user: root" if os.getuid() == 0 else "", "nginx_http3": "", "haproxy_http3": ""}
        if has_http3(self.kind):
            settings["nginx_http3"] = "listen {address}:{port} quic; http3 on;".format(**settings)
            settings["haproxy_http3"] = "bind quic4@{address}:{port} ssl crt {folder}/pair.pem alpn h3".format(**settings)
        (self.folder / "config").write_text(config.format(**settings))
        certificates = self.settings["certificates"]
        (self.folder / "pair.pem").write_text((certificates / f"{PAGE}.pem").read_text() + (certificates / f"{PAGE}.key").read_text())
        return [program(self.kind), *(word.format(**settings) for word in words)]
