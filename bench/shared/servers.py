"""nginx, HAProxy, Envoy and brisk with a configuration from bench/servers."""
import os
import signal
from pathlib import Path
from string import Template

from .processes import Process, free_port, pinned
from .programs import BENCH, BRISK

# nginx has these folders whether it needs them or not.
TEMPORARY = " ".join(f"{name}_temp_path $FOLDER/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
KINDS = {"toml": "brisk", "conf": "nginx", "cfg": "haproxy", "yaml": "envoy"}


def command(kind, program, file, port):
    """Starts a server in the foreground."""
    return {
        "nginx": [program, "-p", file.parent, "-e", "stderr", "-c", file],
        "haproxy": [program, "-db", "-f", file],
        # Servers with one base id would share memory.
        "envoy": [program, "-c", file, "--concurrency", "1", "-l", "error", "--base-id", port, "--file-flush-interval-msec",
                  "50"],
        "brisk": [BRISK, "serve", "--config", file],
    }[kind]


class Server(Process):
    """A server from `with` to the end of it. The ending of the template says which; uppercase values replace its variables. It
    listens at `PORT` of `ADDRESS`. `prefix` starts it elsewhere, on `cores` of this network otherwise."""

    def __init__(self, template, folder, program=None, cores=None, prefix=None, ready=None, **values):
        template = BENCH / template
        self.kind, self.folder = KINDS[template.suffix[1:]], Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        values = {"ADDRESS": "127.0.0.1", "FOLDER": self.folder, "ROOT_USER": "" if os.getuid() else "user root;",
                  "TEMPORARY": TEMPORARY, **values}
        values.setdefault("PORT", free_port())
        text = template.read_text()
        # Values contain variables too. Lowercase variables are those of nginx.
        for _ in range(2):
            text = Template(text).safe_substitute(values)
        self.file = self.folder / f"{self.kind}{template.suffix}"
        self.file.write_text(text)
        words = pinned(cores, *command(self.kind, program or self.kind, self.file, values["PORT"]))
        # No server is to drain its connections.
        super().__init__(words, self.folder / "log", values["PORT"], values["ADDRESS"], ready, prefix,
                         signal.SIGTERM if self.kind == "nginx" else signal.SIGINT, 1)
