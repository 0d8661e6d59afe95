"""brisk in front of the page of `site`, and nginx for the page without TLS."""
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

CACHE = Path(os.environ.get("CACHE", Path.home() / ".cache/brisk"))
BRISK = os.environ.get("BRISK_PROGRAM", str(CACHE / "target/release/brisk"))
PATH = f"{CACHE}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
# The page, what it loads where that is on another domain, and the page before the click. All are of one site, as browsers
# keep the connections of sites apart.
PAGE, ASSETS, START = "www.page.test", "static.page.test", "start.page.test"
# Browsers would ask for an icon by themselves.
ICON = "<link rel=icon href='data:,'>"
BEFORE = {
    "plain": f"{ICON}<title>before</title>",
    "preconnect": f"{ICON}<title>before</title><script>fetch('https://{PAGE}/_preconnect', {{ mode: 'no-cors', credentials: 'include' }})"
                  ".then(() => { document.title = 'connected' })</script>",
}

BRISK_TOML = """
[server]
https = ["{address}:{port}"]
{http3}
workers = 1
state_dir = "{folder}/state"

[server.timeouts]
idle = "{idle}"

[tls]
protocols = [{protocols}]
growing_records = {growing}

[access_log]
format = "{log}"
file = "{folder}/access.log"

[[host]]
names = ["{page}"]
certificates = [{{ chain = "{certificates}/{page}.pem", key = "{certificates}/{page}.key" }}]
preconnect = {{ path = "/_preconnect", idle = "2m" }}
compression = {compression}

[[host.route]]
path = "/_session"
respond = {{ body = "{icon}<title>session</title>", content_type = "text/html" }}
keep_alive = {{ close = true }}
early_data = "{early}"

[[host.route]]
path = "/"
static = "{files}"
early_data = "{early}"

[[host]]
names = ["{assets}"]
certificates = [{{ chain = "{certificates}/{assets}.pem", key = "{certificates}/{assets}.key" }}]
compression = {compression}

[[host.route]]
path = "/"
static = "{files}"

[[host]]
names = ["{start}"]
certificates = [{{ chain = "{certificates}/{start}.pem", key = "{certificates}/{start}.key" }}]
"""
BEFORE_ROUTE = '\n[[host.route]]\npath = "/{name}"\nexact = true\nrespond = {{ body = """{body}""", content_type = "text/html" }}\n'

NGINX = """
daemon off; worker_processes 1; {user} pid {folder}/nginx.pid;
events {{ }}
http {{
  types {{ text/html html; text/css css; text/javascript js; image/png png; }}
  access_log off; error_log stderr crit; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_timeout 120s;
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3; uwsgi_temp_path {folder}/4;
  scgi_temp_path {folder}/5;
  server {{
    listen {address}:{port}; root {files};
    location = /plain {{ default_type text/html; return 200 "{icon}<title>before</title>"; }}
  }}
}}
"""


def is_of_page(line):
    """Whether a line of the access log is a request for the page or its assets, and was answered."""
    return line.get("status") == 200 and line["host"] in (PAGE, ASSETS) and "/_" not in line["path"]


class Server:
    """A process that listens, from `with` to the end of it. `prefix` makes the command that runs another where it is to serve."""

    def __init__(self, scratch, prefix, kind="brisk", **settings):
        self.folder, self.prefix, self.kind = Path(scratch), prefix, kind
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.settings = {"address": "127.0.0.1", "port": 443, "protocols": '"h2", "http/1.1"', "growing": "true", "log": "json",
                         "compression": "false", "early": "no", "http3": "", "folder": self.folder, "page": PAGE, "assets": ASSETS, "start": START, "icon": ICON, "idle": "1m",
                         "user": "user root;" if os.getuid() == 0 else "", **settings}

    def command(self):
        """Writes the configuration, and returns the command that serves it."""
        if self.kind == "nginx":
            (self.folder / "nginx.conf").write_text(NGINX.format(**self.settings))
            return ["nginx", "-p", self.folder, "-e", "stderr", "-c", self.folder / "nginx.conf"]
        before = "".join(BEFORE_ROUTE.format(name=name, body=body) for name, body in BEFORE.items())
        (self.folder / "brisk.toml").write_text(BRISK_TOML.format(**self.settings) + before)
        return [BRISK, "serve", "--config", self.folder / "brisk.toml"]

    def __enter__(self):
        command = self.command()
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(self.prefix(*command), stdout=log, stderr=log, env={**os.environ, "PATH": PATH})
        address = f"{self.settings['address']} {self.settings['port']}"
        probe = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
        for _ in range(100):
            # Where it serves may be another network than ours.
            if subprocess.run(self.prefix(sys.executable, "-c", probe, *address.split()), stderr=subprocess.DEVNULL).returncode == 0:
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.__exit__()
        sys.exit(f"{self.kind} does not serve:\n{(self.folder / 'log').read_text(errors='replace')}")

    def __exit__(self, *_):
        # brisk would let its connections finish; others would leave their workers behind.
        (self.process.kill if self.kind == "brisk" else self.process.terminate)()
        self.process.wait()

    def requests(self, count):
        """The requests that were answered, as soon as there are so many of them for the page and its assets."""
        until = time.monotonic() + 10
        while True:
            text = (self.folder / "access.log").read_text()
            lines = [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
            if sum(map(is_of_page, lines)) >= count or time.monotonic() > until:
                return lines
            time.sleep(0.05)
