"""A real Chromium without a window, driven over the DevTools protocol on a pipe: no driver and no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final

from tests.support.servers import eventually

_ANSWER_S: Final = 60.0
_FLAGS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-proxy-server",
    "--hide-scrollbars",
    # Whatever a page or the browser itself would request from the network, it doesn't get.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def program() -> str | None:
    """The browser that is installed, if any; the one without windows is the smaller."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


class Chromium:
    """The browser. One thread uses it."""

    def __init__(self, profile: Path) -> None:
        browser = program()
        assert browser is not None, "no chromium: .ci/install-packages installs it"
        ours, theirs = os.pipe(), os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        # It wants its requests at descriptor 3 and answers at 4; /bin/sh can't name those above 9.
        exec_there = f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        with (profile.parent / "chromium.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", exec_there, browser, *flags, "about:blank"],
                pass_fds=(ours[0], theirs[1]),
                stdout=log,
                stderr=log,
            )
        os.close(ours[0])
        os.close(theirs[1])
        self._requests = os.fdopen(ours[1], "wb", buffering=0)
        self._answers = os.fdopen(theirs[0], "rb", buffering=0)
        self._received: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._number = 0
        self.events: deque[dict[str, Any]] = deque(maxlen=10_000)
        self._reader = threading.Thread(target=self._read, name="chromium", daemon=True)
        self._reader.start()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._reader.join(20)
        self._answers.close()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One request of the protocol, and its answer."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            request["sessionId"] = session
        self._requests.write(json.dumps(request).encode() + b"\0")
        while True:
            try:
                answer = self._received.get(timeout=_ANSWER_S)
            except Empty:
                raise AssertionError(f"chromium doesn't answer {method}") from None
            if answer["id"] == self._number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result

    def page(self, width: int, height: int, *, scale: float = 1.0) -> Page:
        """A page of its own, with its own cookies, as on a screen of so many CSS pixels."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            session,
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        return Page(self, session, context)

    def _read(self) -> None:
        rest = b""
        while part := self._answers.read(1 << 16):
            *whole, rest = (rest + part).split(b"\0")
            for text in whole:
                message = json.loads(text)
                if "id" in message:
                    self._received.put(message)
                else:
                    self.events.append(message)


class Page:
    """One page."""

    def __init__(self, browser: Chromium, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context

    def open(self, url: str) -> None:
        """Go there."""
        self._browser.call("Page.navigate", self._session, url=url)

    def close(self) -> None:
        """Close it, whatever it does."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def before_each(self, script: str) -> None:
        """A script that runs in each document before its own."""
        self._browser.call("Page.addScriptToEvaluateOnNewDocument", self._session, source=script)

    def set_cookie(self, url: str, name: str, value: str) -> None:
        """A cookie for a site."""
        self._browser.call("Network.setCookie", self._session, url=url, name=name, value=value)

    def prefer(self, scheme: str) -> None:
        """The machine is set to ``dark`` or ``light``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._browser.call("Emulation.setEmulatedMedia", self._session, features=features)

    def run(self, script: str) -> Any:
        """The value of an expression, of a promise once it is kept."""
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """An element's text; empty where there is none."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def see(self, selector: str, until: Callable[[str], object] = bool, deadline_s: float = 30.0) -> str:
        """An element's text, once it is this."""
        return eventually(lambda: self.text(selector), deadline_s, until=lambda text: bool(until(text)))

    def click(self, selector: str) -> None:
        """With the mouse, where the element is: what is covered or hidden can't be clicked."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2, r.width] })()"
        )
        assert place[2] > 0, f"{selector} can't be seen"
        for kind in ("mousePressed", "mouseReleased"):
            self._browser.call(
                "Input.dispatchMouseEvent",
                self._session,
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self._browser.call("Input.insertText", self._session, text=text)

    def press(self, key: str, code: int) -> None:
        """A key, by its name and Windows' virtual code."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._browser.call(
                "Input.dispatchKeyEvent", self._session, type=kind, key=key, code=key,
                windowsVirtualKeyCode=code, **more,
            )  # fmt: skip

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of what is seen, or of the whole page."""
        shot = self._browser.call("Page.captureScreenshot", self._session, captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings of the console so far, uncaught exceptions among them."""
        found = []
        for event in list(self._browser.events):
            if event.get("sessionId") != self._session:
                continue
            details = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(str(details["args"]))
            elif event["method"] == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(f"{details['entry']['text']} {details['entry'].get('url', '')}")
        return found

    def requested(self) -> list[str]:
        """The addresses this page has requested."""
        return [
            event["params"]["request"]["url"]
            for event in list(self._browser.events)
            if event.get("sessionId") == self._session and event["method"] == "Network.requestWillBeSent"
        ]
