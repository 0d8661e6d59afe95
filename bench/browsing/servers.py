"""brisk in front of the page of `site`, and nginx, brisk, HAProxy and h2o as proxies of the same files."""
import json

from shared.processes import wait
from shared.programs import BRISK, output
from shared.servers import Server, named, program

# The page, its assets where they are on another domain, and the page before the click. All are of one site, as browsers
# keep the connections of sites apart.
PAGE, ASSETS, START = "www.page.test", "static.page.test", "start.page.test"
# Template, and programs, the first of which is preferred.
PROXIES = {"brisk": ("toml", [BRISK]), "nginx": ("conf", ["nginx-current", "nginx"]),
           "HAProxy": ("cfg", ["haproxy-current", "haproxy"]), "h2o": ("h2o", ["h2o"])}


def is_of_page(line):
    """Whether a line of the access log is a request for the page or its assets with a response."""
    return line.get("status") == 200 and line["host"] in (PAGE, ASSETS) and "/_" not in line["path"]


class Site(Server):
    """brisk with the page."""

    def __init__(self, folder, **settings):
        super().__init__("servers/page.toml", folder, **{
            "PROTOCOLS": '"h2", "http/1.1"', "GROWING": "true", "LOG": "json", "COMPRESSION": "false", "EARLY": "no", "HTTP3": "",
            "IDLE": "1m", **settings})

    def requests(self, count):
        """The lines of the access log, as soon as it has this number of requests for the page and its assets."""
        def lines():
            text = (self.folder / "access.log").read_text()
            return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
        wait(lambda: sum(map(is_of_page, lines())) >= count, 10)
        return lines()


def program_of(kind):
    return program(*PROXIES[kind][1])


def version(kind):
    """Name and version."""
    return named(kind, program_of(kind), "-v" if kind in ("nginx", "HAProxy") else "--version")


def has_http3(kind):
    """Whether the program of a kind was built with HTTP/3."""
    built = {"brisk": lambda: True, "nginx": lambda: "http_v3_module" in output(program_of(kind), "-V"),
             "HAProxy": lambda: "+QUIC " in output(program_of(kind), "-vv")}
    return program_of(kind) is not None and built.get(kind, lambda: False)()


def proxy(kind, folder, certificates, **settings):
    """A proxy of one kind, with its defaults beyond addresses and certificates."""
    http3 = {"nginx": "listen $ADDRESS:$PORT quic; http3 on;",
             "HAProxy": "bind quic4@$ADDRESS:$PORT ssl crt $FOLDER/pair.pem alpn h3"}
    server = Server(f"servers/proxy.{PROXIES[kind][0]}", folder, program_of(kind), NAME=PAGE, CERTIFICATES=certificates,
                    HTTP3=http3.get(kind, "") if has_http3(kind) else "", **settings)
    (server.folder / "pair.pem").write_text("".join((certificates / f"{PAGE}.{part}").read_text() for part in ("pem", "key")))
    return server
