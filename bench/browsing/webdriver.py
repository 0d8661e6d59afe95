"""Firefox (by Marionette) and WebKitGTK (by WebKitWebDriver), controlled with the commands of WebDriver."""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from shared.processes import end, free_port, listens

from .chromium import LIMIT, Failed

PREFERENCES = {"marionette.port": None, "browser.shell.checkDefaultBrowser": False,
               "datareporting.policy.dataSubmissionEnabled": False,
               "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
               "network.dns.disableIPv6": True}


def click_at(x, y):
    """The actions of a click at this place of the viewport."""
    return {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [
        {"type": "pointerMove", "duration": 0, "x": x, "y": y, "origin": "viewport"},
        {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]}]}


class Driven:
    """A browser with an empty profile, from `with` to the end of it."""

    def open(self, url):
        """Opens a page and waits for its load event."""
        self.call("WebDriver:Navigate", "POST", "url", {"url": url})

    def back(self):
        self.call("WebDriver:Back", "POST", "back", {})

    def click(self, x, y):
        self.call("WebDriver:PerformActions", "POST", "actions", click_at(x, y))

    def evaluate(self, expression):
        result = self.call("WebDriver:ExecuteScript", "POST", "execute/sync", {"script": f"return {expression}", "args": []})
        return result["value"] if isinstance(result, dict) else result

    def __exit__(self, *_):
        end(self.process, 15, 5)
        shutil.rmtree(self.profile, ignore_errors=True)


class Firefox(Driven):
    def __enter__(self):
        self.profile, port, self.calls, self.buffer = tempfile.mkdtemp(prefix="brisk-firefox-"), free_port(), 0, b""
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(port if value is None else value)});"
                 for name, value in PREFERENCES.items()]
        with open(f"{self.profile}/user.js", "w") as file:
            file.write("\n".join(lines))
        self.process = subprocess.Popen(["firefox-esr", "--headless", "--no-remote", "--marionette", "--profile", self.profile,
                                         "about:blank"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "HOME": self.profile})
        if not listens(self.process, port, LIMIT):
            raise Failed("Firefox does not start")
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT)
        self.message()
        self.call("WebDriver:NewSession", None, None, {"acceptInsecureCerts": True})
        return self

    def message(self):
        """A message: its length, a colon, JSON."""
        while b":" not in self.buffer or len(self.buffer.partition(b":")[2]) < int(self.buffer.partition(b":")[0]):
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise Failed("Firefox has ended")
            self.buffer += piece
        length, _, rest = self.buffer.partition(b":")
        self.buffer = rest[int(length):]
        return json.loads(rest[:int(length)])

    def call(self, command, _method, _path, parameters):
        self.calls += 1
        text = json.dumps([0, self.calls, command, parameters]).encode()
        self.socket.sendall(str(len(text)).encode() + b":" + text)
        while True:
            kind, number, error, result = self.message()
            if (kind, number) == (1, self.calls):
                break
        if error:
            raise Failed(f"{command}: {error.get('message') or error.get('error')}")
        return result

    @staticmethod
    def version():
        return version(["firefox-esr", "--version"], r"Firefox ([\d.]+)", "Firefox")


class WebKit(Driven):
    """WebKitGTK's MiniBrowser on a virtual screen."""

    @staticmethod
    def browser():
        """Its program, if it is installed."""
        found = sorted(glob.glob("/usr/lib/*/webkit2gtk-4.1/MiniBrowser"))
        return found[0] if found and shutil.which("WebKitWebDriver") and shutil.which("xvfb-run") else None

    def __enter__(self):
        self.profile, self.port = tempfile.mkdtemp(prefix="brisk-webkit-"), free_port()
        words = ["xvfb-run", "--auto-servernum", "WebKitWebDriver", f"--port={self.port}"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env={
            **os.environ, "HOME": self.profile, "XDG_RUNTIME_DIR": self.profile, "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",
            "LIBGL_ALWAYS_SOFTWARE": "1"})
        if not listens(self.process, self.port, LIMIT):
            raise Failed("WebKitWebDriver does not start")
        self.session = None
        options = {"binary": self.browser(), "args": ["--automation"]}
        session = self.call(None, "POST", None, {"capabilities": {"alwaysMatch": {"acceptInsecureCerts": True,
                                                                                  "webkitgtk:browserOptions": options}}})
        self.session = session["sessionId"]
        return self

    def __exit__(self, *_):
        try:
            self.call(None, "DELETE", "", None)
        except Failed:
            pass
        # The screen, the driver and the browser are one group, which was started here.
        os.killpg(self.process.pid, 15)
        self.process.wait()
        time.sleep(0.2)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, _command, method, path, parameters):
        url = f"http://127.0.0.1:{self.port}/session" + (f"/{self.session}" if self.session
                                                         else "") + (f"/{path}" if path else "")
        body = None if parameters is None else json.dumps(parameters).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{path}: {error.read().decode(errors='replace')[:300]}") from None

    def evaluate(self, expression):
        return self.call(None, "POST", "execute/sync", {"script": f"return {expression}", "args": []})

    @staticmethod
    def version():
        return version(["xvfb-run", "--auto-servernum", WebKit.browser(), "--version"], r"([\d.]+)", "WebKitGTK")


def version(command, pattern, name):
    said = subprocess.run(command, capture_output=True, text=True)
    found = re.search(pattern, said.stdout + said.stderr)
    return f"{name} {found.group(1)}" if found else f"{name}, version unknown"
