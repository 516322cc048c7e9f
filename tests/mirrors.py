"""Public places on loopback: a server whose folders behave as those of the internet do on bad days."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

LONGEST_WAIT_S = 20.0  # of a request that hangs; the end of the test ends it earlier
FOLDERS = {
    "good": "files come",
    "cut": "half of a file comes, of the length that was promised",
    "short": "half of a file comes, and no length was promised",
    "wrong": "other files come",
    "page": "a login page comes in the place of a file",
    "again": "503 at first, then files come",
    "slow": "half of a file comes, and the rest when the test ends",
    "mute": "a connection, and nothing more",
    "403": "that status; so for any number",
}


@dataclass
class Mirrors:
    """What is served, and what was asked for."""

    files: dict[str, bytes]
    port: int = 0
    asked: list[str] = field(default_factory=list)  # `<folder>/<file>`, as often as it was
    over: Event = field(default_factory=Event)

    def __getitem__(self, folder: str) -> str:
        """The URL of one of FOLDERS."""
        return f"http://127.0.0.1:{self.port}/{folder}/"

    @property
    def sha256(self) -> dict[str, str]:
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}


class Handler(BaseHTTPRequestHandler):
    mirrors: Mirrors

    def do_GET(self) -> None:
        _, folder, name = self.path.split("/")
        if folder == "mute":
            self.mirrors.over.wait(LONGEST_WAIT_S)
            return
        if not name:  # is there anybody?
            self.answer(200, b"")
            return
        content, seen = self.mirrors.files[name], f"{folder}/{name}" in self.mirrors.asked
        self.mirrors.asked.append(f"{folder}/{name}")
        half = content[: len(content) // 2]
        if folder.isdecimal() or (folder == "again" and not seen):
            self.answer(int(folder) if folder.isdecimal() else 503, b"")
        elif folder in ("good", "again"):
            self.answer(200, content)
        elif folder == "wrong":
            self.answer(200, content[::-1])
        elif folder == "page":
            self.answer(200, b"<html>Please log in</html>")
        elif folder == "short":
            self.answer(200, half, promised=None)
        elif folder in ("cut", "slow"):
            self.answer(200, half, promised=len(content))
            if folder == "slow":
                self.wfile.flush()
                self.mirrors.over.wait(LONGEST_WAIT_S)

    def answer(self, status: int, content: bytes, promised: int | None = 0) -> None:
        self.send_response(status)
        if promised is not None:
            self.send_header("Content-Length", str(promised or len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: tests say what they saw."""


@contextmanager
def served(files: dict[str, bytes]) -> Iterator[Mirrors]:
    """Serve files on loopback until the end of the block."""
    mirrors = Mirrors(files)
    handler = type("HandlerOfThese", (Handler,), {"mirrors": mirrors})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # its threads are daemons
    mirrors.port = server.server_port
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield mirrors
    finally:
        mirrors.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
