"""Headless Chromium, controlled through a pipe (the DevTools protocol), and its measurements of a page."""
import base64
import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time

# Seconds until the browser or a page is given up.
LIMIT = 60
TIMING = """(() => { const [page] = performance.getEntriesByType('navigation');
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  const all = performance.getEntriesByType('resource');
  return JSON.stringify({ load: page.loadEventStart, paint: paint ? paint.startTime : null, resources: all.length + 1,
    protocol: page.nextHopProtocol }); })()"""


class Failed(Exception):
    """The browser did not do what was asked."""


def pin(certificate):
    """SHA-256 of the public key of a certificate, in base64: Chromium is told to trust it."""
    key = subprocess.run(["openssl", "x509", "-in", str(certificate), "-noout", "-pubkey"], capture_output=True,
                         check=True).stdout
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "der"], input=key, capture_output=True, check=True).stdout
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def pipe():
    """A pipe whose descriptors lie above the numbers that the browser expects its own at."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return moved


class Chromium:
    """A browser with nothing in its caches, from `with` to the end of it. `prefix` is a command that runs another one, `hosts`
    a rule for names, `pins` the keys that it trusts."""

    def __init__(self, prefix, hosts, pins, features=(), options=()):
        self.profile = tempfile.mkdtemp(prefix="brisk-chromium-")
        disabled = "HttpsUpgrades,HttpsFirstBalancedMode,LocalNetworkAccessChecks,OptimizationHints,MediaRouter"
        self.command = [*prefix("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                "--no-first-run",
                                "--disable-background-networking", "--disable-component-update", "--disable-extensions",
                                "--remote-debugging-pipe", *options, f"--user-data-dir={self.profile}",
                                f"--disable-features={disabled}",
                                *([f"--enable-features={','.join(features)}"] if features else []),
                                f"--host-resolver-rules={hosts}", f"--ignore-certificate-errors-spki-list={','.join(pins)}",
                                "about:blank")]
        self.calls, self.buffer, self.events = 0, b"", []

    def __enter__(self):
        (their_input, self.input), (self.output, their_output) = pipe(), pipe()

        def descriptors():
            os.dup2(their_input, 3)
            os.dup2(their_output, 4)
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL,
                                        preexec_fn=descriptors, pass_fds=(3, 4), env={**os.environ, "HOME": self.profile})
        os.close(their_input), os.close(their_output)
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable", self.session)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.input), os.close(self.output)
        # Its processes end a moment after it, and write until then.
        for _ in range(100):
            shutil.rmtree(self.profile, ignore_errors=True)
            if not os.path.exists(self.profile):
                break
            time.sleep(0.05)

    def call(self, method, session=None, **parameters):
        """The result of a method of the protocol."""
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.input, json.dumps(message).encode() + b"\0")
        answer = self.wait(lambda message: message.get("id") == self.calls, method)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def wait(self, wanted, what):
        """The first message that is `wanted`; those before it are kept."""
        until = time.monotonic() + LIMIT
        seen = 0
        while True:
            for at in range(seen, len(self.events)):
                if wanted(self.events[at]):
                    return self.events.pop(at)
            seen = len(self.events)
            if not select.select([self.output], [], [], max(0, until - time.monotonic()))[0]:
                raise Failed(f"{what}: nothing within {LIMIT} s")
            piece = os.read(self.output, 1 << 16)
            if not piece:
                raise Failed(f"{what}: the browser has ended")
            *messages, self.buffer = (self.buffer + piece).split(b"\0")
            self.events += map(json.loads, messages)

    def open(self, url):
        """Opens a page and waits for its load event."""
        self.events.clear()
        result = self.call("Page.navigate", self.session, url=url)
        if result.get("errorText"):
            raise Failed(f"{url}: {result['errorText']}")
        self.wait(lambda message: message.get("method") == "Page.loadEventFired", url)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", self.session, expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failed(f"{expression[:60]}: {result['exceptionDetails'].get('text')}")
        return result["result"].get("value")

    def timing(self):
        """Milliseconds from the click on: of the page that was opened last."""
        return json.loads(self.evaluate(TIMING))


def version():
    said = subprocess.run(["chromium", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"Chromium [\d.]+", said)
    return found.group(0) if found else "Chromium, version unknown"
