"""A headless Chromium, driven over its debugging pipe: no packages, no sockets."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge"]


def find():
    """The browser's path, or None. DOPPLER_BROWSER names another one."""
    named = os.environ.get("DOPPLER_BROWSER")
    return next((path for path in map(shutil.which, [named] if named else NAMES) if path), None)


class Browser:
    """One browser with one page. Commands and events are those of the Chrome DevTools protocol."""

    def __init__(self, program, profile=None, flags=()):
        """`profile`: a folder that stays when the browser ends; else one of its own."""
        self.profile = None if profile else tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands_read, self.commands = os.pipe()
        self.answers, answers_write = os.pipe()

        def place_pipes():  # the protocol is spoken on descriptors 3 and 4
            high = [os.dup(commands_read), os.dup(answers_write)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
             "--disable-extensions", "--hide-scrollbars", f"--user-data-dir={profile or self.profile.name}", *flags, "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands_read)
        os.close(answers_write)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.events = []
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def _receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.answers, 1 << 20)
            if not more:
                raise RuntimeError("The browser ended.")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        if "method" in message:
            self.events.append(message)
        if message.get("method") == "Page.javascriptDialogOpening":  # would stop everything
            self._send("Page.handleJavaScriptDialog", accept=False)
        return message

    def _send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        return self.number

    def ask(self, method, **parameters):
        number = self._send(method, **parameters)
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, file, width, height=900, dark=False):
        """Shows a file, or what an address gives, at this width and waits until it has loaded. Forgets earlier events."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        is_address = str(file).startswith("http://")
        self.ask("Page.navigate", url=str(file) if is_address else pathlib.Path(file).resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()
        self._settle()

    def resize(self, width, height=900):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self._settle()

    def _settle(self):
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, expression, **how):
        """The value of a JavaScript expression in the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, **how)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", str(result)))
        return result["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                     windowsVirtualKeyCode={"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
                                            "ArrowDown": 40}[key])

    def complaints(self):
        """What went to the console or failed: exceptions, errors, refusals of the page's own policy."""
        wrong = []
        for event in self.events:
            content = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                wrong.append(content["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif event["method"] == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
                wrong.append(content["entry"]["text"])
            elif event["method"] == "Page.javascriptDialogOpening":
                wrong.append(f"a dialog: {content['message']}")
            elif event["method"] == "Runtime.consoleAPICalled":
                wrong.append(f"console.{content['type']}")
        return wrong

    def requests(self):
        """Addresses that were asked for, but the page itself."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return asked[1:]

    def picture(self, file, format="webp", quality=60, clip=None):
        import base64

        options = {"format": format, "captureBeyondViewport": True}
        if format != "png":
            options["quality"] = quality
        if clip:
            options["clip"] = {"x": 0, "y": 0, "scale": 1, **clip}
        pathlib.Path(file).write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", **options)["data"]))

    def close(self):
        try:
            self.session = None
            self.ask("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._clean()

    def kill(self):
        """Ends it without a chance to tidy up."""
        self.process.kill()
        self.process.wait()
        self._clean()

    def _clean(self):
        os.close(self.commands)
        os.close(self.answers)
        if self.profile:
            self.profile.cleanup()
