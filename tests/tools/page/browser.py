# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven by its DevTools protocol over two pipes (--remote-debugging-pipe): JSON messages, each ended
by a zero byte. Needs nothing beside Python and Chromium."""

import base64
import fcntl
import json
import os
import select
import subprocess
import tempfile
import time

ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--force-device-scale-factor=1", "--disable-lcd-text", "--font-render-hinting=none", "--disable-background-networking",
    "--disable-component-update", "--disable-extensions", "--remote-debugging-pipe",
]
KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9), "ArrowLeft": ("", 37), "ArrowUp": ("", 38), "ArrowRight": ("", 39),
        "ArrowDown": ("", 40), "Home": ("", 36), "End": ("", 35), " ": (" ", 32)}


def above(descriptor):
    """The same file at a number that the redirections to 3 and 4 leave alone."""
    number = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return number


class Browser:
    """One tab. Messages of the page's console are kept in `problems`; requests beyond the page's own file in `requests`."""

    def __init__(self, program, patience=60):
        self.patience, self.folder = patience, tempfile.TemporaryDirectory(prefix="cleave-browser-", ignore_cleanup_errors=True)
        theirs_in, self.ours_out = (above(d) for d in os.pipe())
        self.ours_in, theirs_out = (above(d) for d in os.pipe())
        self.log = open(os.path.join(self.folder.name, "log"), "wb")

        def pipes():  # in the new process
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        self.process = subprocess.Popen(
            [program, *ARGUMENTS, "--user-data-dir=" + os.path.join(self.folder.name, "profile"), "about:blank"],
            pass_fds=(3, 4), preexec_fn=pipes, stdout=self.log, stderr=self.log)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.last, self.answers, self.events = b"", 0, {}, []
        self.problems, self.requests, self.session = [], [], None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(domain + ".enable")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.ours_in)
        os.close(self.ours_out)
        self.log.close()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def take(self, until):
        """Reads what there is, at most until that moment; False: nothing came."""
        wait = max(0.0, until - time.monotonic())
        if not select.select([self.ours_in], [], [], wait)[0]:
            return False
        data = os.read(self.ours_in, 1 << 20)
        if not data:
            self.log.flush()
            with open(self.log.name, "rb") as log:
                raise RuntimeError("the browser ended: " + log.read()[-2000:].decode(errors="replace"))
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.note(message["method"], message.get("params", {}))
        return True

    def note(self, method, parameters):
        self.events.append((method, parameters))
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def send(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.ours_out, data):]
        until = time.monotonic() + self.patience
        while self.last not in self.answers:
            if not self.take(until):
                raise RuntimeError(f"no answer to {method} in {self.patience} s")
        answer = self.answers.pop(self.last)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    # ---- The page

    def value(self, script):
        """Of an expression, or of a promise of it."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def until(self, script, what=None):
        end = time.monotonic() + self.patience
        while not self.value(script):
            if time.monotonic() > end:
                raise RuntimeError(f"never came true: {what or script}")
            self.take(time.monotonic() + 0.02)

    def frame(self):
        """Until what was asked for is drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def size(self, width, height=900):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def media(self, kind="", dark=False):
        self.send("Emulation.setEmulatedMedia", media=kind,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, path, fragment=""):
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        self.until("document.documentElement && document.documentElement.dataset.drawn === 'yes'", "the page is drawn")
        self.frame()

    def middle(self, script):
        """Of an element, in the window; scrolls there."""
        box = self.value(f"(() => {{ const e = {script}; if (!e) return null; e.scrollIntoView({{block: 'center', inline: 'center'}});"
                         "const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()")
        if not box:
            raise RuntimeError("no such element: " + script)
        return box

    def mouse(self, kind, x, y, button="left", **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button if kind != "mouseMoved" or more else "none", **more)

    def click(self, script, x=None, y=None):
        if x is None:
            x, y = self.middle(script)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, clickCount=1)
        self.mouse("mouseReleased", x, y, clickCount=1)
        self.frame()

    def key(self, name, shift=False):
        text, code = KEYS.get(name, (name, ord(name[0].upper())))
        more = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", **more)
        self.frame()

    def type(self, text):
        self.send("Input.insertText", text=text)
        self.frame()

    def picture(self, script=None, scale=1):
        """PNG of an element, or of what the window shows."""
        clip = {}
        if script:
            x, y, width, height = self.value(
                f"(() => {{ const r = {script}.getBoundingClientRect(); return [r.left + scrollX, r.top + scrollY, r.width, r.height]; }})()")
            clip = {"clip": {"x": x, "y": y, "width": width, "height": height, "scale": scale}, "captureBeyondViewport": True}
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", **clip)["data"])

    def whole(self):
        """PNG of the page from top to bottom."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip={
            "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})["data"])

    def accessible(self):
        """Nodes of the accessibility tree: (role, name)."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")]
