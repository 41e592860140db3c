"""A headless Chromium, driven through chromedriver's own HTTP interface (W3C WebDriver)."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.controlplane.ports import free_ports

_TAB: Final = "\ue004"
_ENTER: Final = "\ue007"


def missing_programs() -> str:
    """Return which programs of a browser are not installed; empty where all are."""
    wanted = ("chromium", "chromedriver")
    return ", ".join(name for name in wanted if shutil.which(name) is None)


class Browser:
    """One window."""

    def __init__(self, port: int) -> None:
        self._port = port
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1200,1800",
        ]
        options = {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self._session = f"/session/{session['sessionId']}"

    def close(self) -> None:
        """End the browser."""
        self._call("DELETE", self._session)

    def open(self, url: str) -> None:
        """Open an address."""
        self._call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script as the developer tools would, and return its value."""
        body = {"script": script, "args": list(arguments)}
        return self._call("POST", f"{self._session}/execute/sync", body)

    def text(self) -> str:
        """Return the text that is seen."""
        return str(self.run("return document.body.innerText"))

    def type(self, text: str) -> None:
        """Type with the keyboard, wherever the focus is."""
        keys = [{"type": kind, "value": letter} for letter in text for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": keys}]
        self._call("POST", f"{self._session}/actions", {"actions": actions})

    def tab(self) -> None:
        """Move the focus on by the keyboard."""
        self.type(_TAB)

    def enter(self) -> None:
        """Press the enter key."""
        self.type(_ENTER)

    def focused(self) -> str:
        """Return the text of the focused element, or its id where it has none."""
        script = "const at = document.activeElement; return at.innerText || at.id"
        return str(self.run(script))

    def waits_for(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        give_up = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < give_up, f"{what}: {self.text()}"
            time.sleep(0.05)

    def shows(self, text: str) -> None:
        """Wait until a text is seen."""
        self.waits_for(lambda: text in self.text(), text)

    def complaints(self) -> list[str]:
        """Return the errors of the console since the last call, the policy's among them."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [one["message"] for one in entries if one["level"] == "SEVERE"]

    def names(self) -> list[tuple[str, str]]:
        """Return role and name of every node of the accessibility tree that has a name."""
        command = {"cmd": "Accessibility.getFullAXTree", "params": {}}
        found = self._call("POST", f"{self._session}/goog/cdp/execute", command)
        return [
            (str(one["role"]["value"]), str(one["name"]["value"]))
            for one in found["nodes"]
            if not one.get("ignored") and one.get("name", {}).get("value")
        ]

    def prefer(self, scheme: str) -> None:
        """Prefer a light or a dark scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        self._call("POST", f"{self._session}/goog/cdp/execute", command)

    def screenshot(self, file: Path) -> None:
        """Write a picture of the window."""
        file.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/screenshot")))

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with closing(connection):
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer


@contextmanager
def a_browser(directory: Path) -> Iterator[Browser]:
    """Start a browser whose files are in a directory."""
    (port,) = free_ports(1)
    with (directory / "chromedriver.log").open("wb") as log:
        driver = subprocess.Popen(
            [shutil.which("chromedriver") or "", f"--port={port}"],
            stdout=log,
            stderr=log,
            env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "TMPDIR": str(directory)},
        )
        try:
            browser = _connected(port)
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()
            driver.wait(30)


def _connected(port: int) -> Browser:
    give_up = time.monotonic() + 30
    while True:
        try:
            return Browser(port)
        except OSError:
            assert time.monotonic() < give_up, "chromedriver does not answer"
            time.sleep(0.1)
