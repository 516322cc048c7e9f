"""Pages as a reader opens them: in headless chromium, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Its path, where one is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def browsing(executable: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield started
        started.close()


@contextmanager
def opened(
    browser: Any, file: Path, anchor: str = "", complains: Collection[str] = ("error", "warning"), **options: Any
) -> Iterator[Any]:
    """The opened page; whatever it asks of a network fails, and what it complains of is collected in `complaints`."""
    page = browser.new_page(**options)
    page.complaints = []
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.on("console", lambda message: message.type in complains and page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("requestfailed", lambda request: page.complaints.append(f"asked for {request.url}"))
    page.goto(file.as_uri() + anchor)
    yield page
    page.close()


def serious_violations(page: Any) -> list[tuple[str, list[str]]]:
    """What axe-core calls serious or critical: (rule, elements)."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        (one["id"], [node["html"] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
