"""Downloads of published files, before any rank starts: each is held to its checksum and appears whole or not at all."""

from __future__ import annotations

import fcntl
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pooch
import requests
from tqdm import tqdm

from dpscale.errors import UserError
from dpscale.files import sha256_of
from dpscale.workloads.datasets.base import RECEIPT, Published

WAS_THERE = "was there"
CONNECT_S, SILENCE_S = 5.0, 15.0  # how long a connection may take to be made, and how long nothing may come
TRIES = 2  # of each file at each mirror
CHUNK_BYTES = 1 << 16
AS_IT_LIES = {"Accept-Encoding": "identity"}  # a server may not unpack a .gz on the way


def fetch(dataset: str, published: Published, folder: Path, mirrors: Sequence[str] | None = None) -> dict[str, str]:
    """Have the published files in a folder, and a receipt. What lies there whole is left alone, whoever put it there.

    Args:
        mirrors: URLs of folders, in the place of the public ones.

    Returns:
        File -> the URL that it came from, or WAS_THERE: what the receipt says.

    Raises:
        UserError: a file can't be had; with what each mirror said, and how to put the files there by hand.
    """
    pooch.get_logger().setLevel(logging.WARNING)
    mirrors = [f"{mirror.rstrip('/')}/" for mirror in mirrors or published.mirrors]
    with _held(folder) as drafts:
        missing = {name: sha256 for name, sha256 in published.sha256.items() if not _is(folder / name, sha256)}
        origins = {name: WAS_THERE for name in published.sha256 if name not in missing}
        silent = _silent(mirrors) if missing else {}
        failed: set[str] = set()
        for name, sha256 in missing.items():
            refusals = {}
            for mirror in sorted(mirrors, key=failed.__contains__):  # as given, but last what failed before
                refusal = silent.get(mirror) or _download(f"{mirror}{name}", sha256, drafts / name)
                if refusal is None:
                    (drafts / name).replace(folder / name)
                    origins[name] = f"{mirror}{name}"
                    break
                refusals[f"{mirror}{name}"] = refusal
                failed.add(mirror)
            else:
                still_missing = {name: sha256 for name, sha256 in missing.items() if name not in origins}
                raise UserError(_by_hand(dataset, folder, refusals, still_missing))
        (drafts / RECEIPT).write_text(json.dumps(origins, indent=1) + "\n")
        (drafts / RECEIPT).replace(folder / RECEIPT)
    return origins


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """Keep others out of the folder; yields an empty one in it for drafts, gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    drafts = folder / ".partial"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(drafts, ignore_errors=True)  # of a process that was killed
        drafts.mkdir()
        try:
            yield drafts
        finally:
            shutil.rmtree(drafts, ignore_errors=True)


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of(path) == sha256


def _silent(mirrors: Sequence[str]) -> dict[str, str]:
    """Mirror -> why it can't be reached, of those that can't; whatever a server answers, it can be.

    All are asked at once and none is waited for longer than SILENCE_S: without a network, looking up one name, or
    connecting to a host of many addresses, can take a minute.
    """
    asked: dict[str, Future[str | None]] = {mirror: Future() for mirror in mirrors}

    def ask(mirror: str) -> None:
        try:
            requests.get(mirror, stream=True, timeout=(CONNECT_S, SILENCE_S)).close()
            asked[mirror].set_result(None)
        except requests.RequestException as error:
            asked[mirror].set_result(_reason(error))

    for mirror in asked:
        Thread(target=ask, args=[mirror], daemon=True).start()  # a look-up that hangs can't be stopped, only left
    wait(asked.values(), timeout=SILENCE_S)
    reasons = {
        mirror: answer.result() if answer.done() else f"no answer within {SILENCE_S:g} s"
        for mirror, answer in asked.items()
    }
    return {mirror: reason for mirror, reason in reasons.items() if reason is not None}


class Progress(tqdm):  # type: ignore[misc]  # tqdm says no types
    """A bar that pooch can reset and fill at the end, and that still tells how long it all took."""

    def reset(self, total: float | None = None) -> None:
        self.n = 0


def _download(url: str, sha256: str, draft: Path) -> str | None:
    """None, and the file is there; or why it is not."""
    for _ in range(TRIES):
        try:
            # pooch sets the total once the server says it; one of 0 or none before is no bar to it
            with Progress(desc=draft.name, total=1, unit="B", unit_scale=True, mininterval=1) as progress:
                downloader = pooch.HTTPDownloader(
                    progress, CHUNK_BYTES, timeout=(CONNECT_S, SILENCE_S), headers=AS_IT_LIES
                )
                pooch.retrieve(url, f"sha256:{sha256}", draft.name, draft.parent, downloader=downloader)
            draft.chmod(0o644)  # a temporary file is for its maker alone; datasets are shared
            return None
        except requests.RequestException as error:
            reason = _reason(error)
        except ValueError:
            reason = f"another file, or cut: its sha256 is not {sha256}"
    return reason


def _reason(error: requests.RequestException) -> str:
    """What lies at the root, in a few words: what requests says of it repeats the URL and names its own classes."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    root: BaseException = error
    while below := root.__cause__ or root.__context__:
        root = below
    return "nothing came any more" if isinstance(root, TimeoutError) else str(root) or type(root).__name__


def _by_hand(dataset: str, folder: Path, refusals: Mapping[str, str], missing: Mapping[str, str]) -> str:
    (name, *_) = missing
    there = " (one of that name is there, but it is another or cut)" if (folder / name).exists() else ""
    return "\n".join(
        [
            f"{folder / name}: could not be fetched{there}",
            *(f"  {url}: {reason}" for url, reason in refusals.items()),
            f"By hand: get these files anywhere, put them into {folder.absolute()} and run the same command again.",
            *(f"  {name}  sha256 {sha256}" for name, sha256 in missing.items()),
            f"Or name a folder or archive that holds the dataset's files in the config: datasets.{dataset}.source. Places of "
            f"your own go into datasets.{dataset}.mirrors.",
        ]
    )
