"""A headless Chromium, controlled over a pipe: it opens pages and records their events."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Browser:
    """One tab. events: of the page, since it was opened."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        self.last, self.session, self.rest = 0, "", b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            if not (more := self.read.read1(1 << 20)):
                raise RuntimeError("the browser ended")
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.last += 1
        message: dict[str, Any] = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        while (answer := self._next()).get("id") != self.last:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path) -> None:
        self.visit(path.as_uri())

    def visit(self, url: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.loaded()

    def loaded(self) -> None:
        """Wait until a page has been loaded since `events` were cleared."""
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression: str, seconds: float = 30) -> bool:
        """Wait until an expression is true; return whether it is. A page that is loaded gets its focus a moment later."""
        end = time.monotonic() + seconds
        while not (value := self.ask(expression)) and time.monotonic() < end:
            time.sleep(0.02)
        return bool(value)

    def press(self, key: str) -> None:
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), "ArrowDown": (40, "")}[key]
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def heard(self, *methods: str) -> list[Any]:
        return [event["params"] for event in self.events if event.get("method") in methods]


@contextmanager
def chromium(program: str, profile: Path) -> Iterator[Browser]:
    """Start a browser, and end it after the block. It reads commands from file descriptor 3 and writes answers to 4."""
    (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
    command = f"exec {program} --headless --no-sandbox --disable-gpu --disable-background-networking " \
              f"--user-data-dir={profile} --remote-debugging-pipe 3<&{read_there} 4>&{write_there}"  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", command],
        pass_fds=(read_there, write_there),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_there)
    os.close(write_there)
    try:
        yield Browser(read_here, write_here)
    finally:
        process.terminate()
        process.wait(20)
