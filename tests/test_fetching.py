"""Published files arrive whole or not at all, from the first place that has them; without a network it is said at once what
to do by hand."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import numpy as np
import pytest
from factories import idx_bytes
from mirrors import FOLDERS, Mirrors, served
from pipeline import Checkout, small_config, small_experiment, wait_until

from dpscale.errors import UserError
from dpscale.workloads import fetching
from dpscale.workloads.datasets import DATASETS, is_fetched
from dpscale.workloads.datasets.base import RECEIPT, Published
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.fetching import WAS_THERE, fetch

SCRIPTS = Path(__file__).parents[1] / "scripts"
FILES = {name: np.random.default_rng(seed).bytes(200_000) for seed, name in enumerate(("images.gz", "labels.gz"))}
BAD = [folder for folder in FOLDERS if folder not in ("good", "again")]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is asked directly where the internet is reached by a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def server() -> Iterator[Mirrors]:
    with served(FILES) as mirrors:
        yield mirrors


@pytest.fixture
def mirrors(server: Mirrors, monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    """The server, with nothing asked for yet; what hangs is given up within a second."""
    server.asked.clear()
    monkeypatch.setattr(fetching, "SILENCE_S", 0.5)
    return server


def fetched(mirrors: Mirrors, folder: Path, *places: str) -> dict[str, str]:
    return fetch("things", Published(sha256=mirrors.sha256, mirrors=places), folder)


def refused(mirrors: Mirrors, folder: Path, *places: str) -> str:
    with pytest.raises(UserError) as error:
        fetched(mirrors, folder, *places)
    return str(error.value)


def visible(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, but for its lock."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


# What arrives


def test_files_arrive_with_a_receipt_that_says_where_from(mirrors, tmp_path):
    origins = fetched(mirrors, tmp_path / "data/things", mirrors["good"])
    assert origins == {name: f"{mirrors['good']}{name}" for name in FILES}
    receipt = json.dumps(origins, indent=1).encode() + b"\n"
    assert visible(tmp_path / "data/things") == FILES | {RECEIPT: receipt}


def test_others_may_read_them(mirrors, tmp_path):
    fetched(mirrors, tmp_path, mirrors["good"])
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in FILES} == {0o644}


def test_what_lies_there_whole_is_left_alone_and_no_server_is_asked(mirrors, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    assert fetched(mirrors, tmp_path, "http://nowhere.invalid/") == dict.fromkeys(FILES, WAS_THERE)
    assert mirrors.asked == []


def test_only_what_is_missing_is_fetched(mirrors, tmp_path):
    (tmp_path / "images.gz").write_bytes(FILES["images.gz"])
    assert fetched(mirrors, tmp_path, mirrors["good"])["images.gz"] == WAS_THERE
    assert mirrors.asked == ["good/labels.gz"]


def test_a_cut_file_that_lies_there_is_fetched_again(mirrors, tmp_path):
    (tmp_path / "images.gz").write_bytes(FILES["images.gz"][:-1])
    fetched(mirrors, tmp_path, mirrors["good"])
    assert (tmp_path / "images.gz").read_bytes() == FILES["images.gz"]


def test_the_first_mirror_that_has_a_file_is_taken_and_the_others_are_left_in_peace(mirrors, tmp_path):
    fetched(mirrors, tmp_path, mirrors["good"], mirrors["wrong"])
    assert mirrors.asked == ["good/images.gz", "good/labels.gz"]


def test_a_url_may_end_in_a_slash_or_not(mirrors, tmp_path):
    fetched(mirrors, tmp_path, mirrors["good"].rstrip("/"))
    assert (tmp_path / "labels.gz").exists()


def test_mirrors_of_ones_own_take_the_place_of_the_public_ones(mirrors, tmp_path):
    published = Published(sha256=mirrors.sha256, mirrors=(mirrors["wrong"],))
    fetch("things", published, tmp_path, [mirrors["404"], mirrors["good"]])
    assert {place.partition("/")[0] for place in mirrors.asked} == {"404", "good"}


# Mirrors on bad days


def nowhere() -> dict[str, str]:
    """Places that can't be reached: nobody listens, and there is no such name."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return {"refusing": f"http://127.0.0.1:{closed.getsockname()[1]}/", "unknown": "http://nowhere.invalid/"}


@pytest.mark.parametrize("bad", [*BAD, "503", *nowhere()])
def test_after_a_bad_mirror_the_next_one_is_taken(mirrors, tmp_path, bad):
    first = nowhere().get(bad) or mirrors[bad]
    origins = fetched(mirrors, tmp_path, first, mirrors["good"])
    assert set(origins.values()) == {f"{mirrors['good']}{name}" for name in FILES}
    assert visible(tmp_path).keys() == {*FILES, RECEIPT}


def test_a_mirror_that_failed_is_asked_last_for_the_other_files(mirrors, tmp_path):
    fetched(mirrors, tmp_path, mirrors["404"], mirrors["good"])
    assert mirrors.asked == ["404/images.gz"] * 2 + ["good/images.gz", "good/labels.gz"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("cut", r"IncompleteRead\(100000 bytes read, 100000 more expected\)"),
        ("short", "another file, or cut: its sha256 is not {sha256}"),
        ("wrong", "another file, or cut: its sha256 is not {sha256}"),
        ("page", "another file, or cut: its sha256 is not {sha256}"),
        ("slow", "nothing came any more"),
        ("mute", "no answer within 0.5 s|nothing came any more"),
        ("403", "403 Forbidden"),
        ("503", "503 Service Unavailable"),
        ("refusing", "Connection refused"),
        ("unknown", ""),  # in the words of the system's resolver
    ],
)
def test_where_no_mirror_has_it_the_reason_is_said_and_nothing_remains(mirrors, tmp_path, bad, reason):
    place = nowhere().get(bad) or mirrors[bad]
    said = refused(mirrors, tmp_path, place)
    assert said.startswith(f"{tmp_path}/images.gz: could not be fetched\n")
    assert f"\n  {place}images.gz: " in said
    assert re.search(rf"images\.gz: .*({reason.format(sha256=mirrors.sha256['images.gz'])})", said)
    assert visible(tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_mirror_that_is_busy_is_asked_once_more(mirrors, tmp_path):
    fetched(mirrors, tmp_path, mirrors["again"])
    assert mirrors.asked == ["again/images.gz"] * 2 + ["again/labels.gz"] * 2


def test_what_has_arrived_stays_when_a_later_file_does_not(mirrors, tmp_path):
    (tmp_path / "images.gz").write_bytes(FILES["images.gz"])
    said = refused(mirrors, tmp_path, mirrors["404"])
    assert said.startswith(f"{tmp_path}/labels.gz: could not be fetched")
    assert visible(tmp_path) == {"images.gz": FILES["images.gz"]}


def test_a_broken_file_by_hand_is_named_and_kept_when_no_other_comes(mirrors, tmp_path):
    (tmp_path / "labels.gz").write_bytes(b"cut")
    said = refused(mirrors, tmp_path, mirrors["403"])
    (tmp_path / "images.gz").write_bytes(FILES["images.gz"])
    said = refused(mirrors, tmp_path, mirrors["403"])
    assert "labels.gz: could not be fetched (one of that name is there, but it is another or cut)" in said
    assert (tmp_path / "labels.gz").read_bytes() == b"cut"


# Without a network


def test_files_by_hand_are_asked_for_by_name_with_checksums_places_and_the_folder(mirrors, tmp_path):
    said = refused(mirrors, tmp_path, mirrors["403"], "http://nowhere.invalid/")
    assert f"put them into {tmp_path} and run the same command again" in said
    assert all(f"\n  {name}  sha256 {sha256}\n" in said for name, sha256 in mirrors.sha256.items())
    assert "\n  http://nowhere.invalid/images.gz: " in said
    assert "datasets.things.source" in said


def test_a_look_up_that_hangs_is_not_waited_for(mirrors, tmp_path, monkeypatch):
    """As behind a firewall that drops everything: every name takes the resolver's own time."""
    over = Event()

    def hang(*arguments: Any, **keywords: Any) -> Any:
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = monotonic()
    said = refused(mirrors, tmp_path, *(f"http://host{number}.example/" for number in range(5)))
    over.set()
    assert monotonic() - started < 5
    assert said.count("no answer within 0.5 s") == 5


def run_fetch(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, str(SCRIPTS / "fetch.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def cut_off() -> tuple[str, ...]:
    """What runs a command without any network."""
    command = ("unshare", "--net", "--map-root-user")
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine grants no network namespace")
    return command


def test_cut_off_from_every_network_it_says_within_a_minute_what_to_put_where(tmp_path, cut_off):
    """Fault B5, pytorch/vision#1938: the page of origin refuses, and there is no other way."""
    done = run_fetch("mnist", f"--out={tmp_path}/mnist", before=cut_off)
    published = DATASETS["mnist"].published
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"put them into {tmp_path}/mnist " in done.stderr
    assert all(f"{mirror}train-images-idx3-ubyte.gz: " in done.stderr for mirror in published.mirrors)
    assert all(f"{name}  sha256 {sha256}" in done.stderr for name, sha256 in published.sha256.items())
    assert visible(tmp_path / "mnist") == {}


# An end by force


PUBLISH = """
import sys, runpy
sys.path[:0] = {folders!r}
from dpscale.workloads import datasets
from dpscale.workloads.datasets import base, idx
published = base.Published(sha256={sha256!r}, mirrors=({place!r},))
datasets.DATASETS["mnist"] = idx._row("things", published)
sys.argv = ["fetch.py", "mnist", "--out", {out!r}]
runpy.run_path({script!r}, run_name="__main__")
"""


def start_fetch(mirrors: Mirrors, place: str, folder: Path) -> subprocess.Popen[str]:
    """fetch.py, as a process, for other files than MNIST's."""
    program = PUBLISH.format(
        folders=[str(SCRIPTS)],
        sha256=mirrors.sha256,
        place=place,
        out=str(folder),
        script=str(SCRIPTS / "fetch.py"),
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_in_the_middle_it_leaves_no_half_file_and_the_next_one_finishes(server, tmp_path, number):
    process = start_fetch(server, server["slow"], tmp_path)
    try:
        wait_until(lambda: any(path.stat().st_size for path in tmp_path.glob(".partial/*")), 30, "half a file")
        process.send_signal(number)
        output, _ = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "Traceback" not in output
    assert [path.name for path in tmp_path.iterdir() if path.name not in (".lock", ".partial")] == []
    assert (tmp_path / ".partial").exists() == (number == signal.SIGKILL)
    fetched(server, tmp_path, server["good"])
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, RECEIPT, ".lock"}


def test_two_at_once_fetch_every_file_once(mirrors, tmp_path):
    both = [Thread(target=fetched, args=[mirrors, tmp_path, mirrors["good"]]) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(20)
    assert sorted(mirrors.asked) == ["good/images.gz", "good/labels.gz"]


def test_progress_is_shown_and_each_file_with_its_origin(server, tmp_path):
    output, _ = start_fetch(server, server["good"], tmp_path).communicate(timeout=60)
    assert "images.gz: 100%" in output
    assert f"{tmp_path}/labels.gz: {server['good']}labels.gz" in output


def test_a_dataset_that_is_not_published_is_refused(tmp_path):
    done = run_fetch("digits", f"--out={tmp_path}/digits")
    assert done.returncode == 1
    assert "no public files of 'digits' are known; valid: mnist, fashion_mnist, cifar10, cifar100" in done.stderr
    assert not (tmp_path / "digits").exists()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "data").write_text("no folder")
    done = run_fetch("mnist", f"--out={tmp_path}/data/mnist")
    assert done.returncode == 1
    assert "data/mnist: " in done.stderr
    assert "Traceback" not in done.stderr


# As a rule


SMALL = {
    name: gzip.compress(idx_bytes(np.full(shape, 3)))
    for split, count in (("train", 192), ("t10k", 50))
    for name, shape in (
        (f"{split}-images-idx3-ubyte.gz", (count, 28, 28)),
        (f"{split}-labels-idx1-ubyte.gz", (count,)),
    )
}


def test_the_rule_fetches_before_it_prepares_and_what_was_prepared_needs_no_downloads_any_more(tmp_path):
    """With a small MNIST in the place of the real one: its counts and checksums are those of a copy's code."""
    with served(SMALL) as place:
        config = small_config(small_experiment(workload={"dataset": "mnist"}))
        checkout = Checkout.fresh(tmp_path / "dpscale", config | {"datasets": {"mnist": {"mirrors": [place["good"]]}}})
        module = "scripts/dpscale/workloads/datasets/idx.py"
        checkout.edit(module, '{"train": 60_000, "test": 10_000}', '{"train": 192, "test": 50}')
        for name, sha256 in place.sha256.items():
            checkout.edit(module, DATASETS["mnist"].published.sha256[name], sha256)

        done = checkout.run("prepare")
        assert done.jobs == {"fetch_dataset": 1, "prepare_dataset": 1, "prepare": 1}
        downloads = checkout.root / "data/downloads/mnist"
        assert visible(downloads).keys() == {*SMALL, RECEIPT}
        assert json.loads((checkout.root / "data/mnist/manifest.json").read_text())["counts"] == {
            "train": 192,
            "test": 50,
        }

        checkout.configure(config | {"datasets": {"mnist": {"mirrors": [place["403"]]}}})
        shutil.rmtree(downloads)
        assert checkout.dry_run("prepare").jobs == {}
        checkout.configure(config | {"datasets": {"mnist": {"source": "elsewhere.zip"}}})
        assert checkout.dry_run("prepare").jobs == {"prepare_dataset": 1, "prepare": 1}


# What the table says

PUBLISHED = {name: row.published for name, row in DATASETS.items() if row.published is not None}


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_dataset_has_checksums_and_more_than_one_mirror(name):
    assert all(re.fullmatch(r"[0-9a-f]{64}", sha256) for sha256 in PUBLISHED[name].sha256.values())
    assert len(set(PUBLISHED[name].mirrors)) > 1
    assert all(re.fullmatch(r"https?://\S+/", mirror) for mirror in PUBLISHED[name].mirrors)
    assert {"source", "mirrors"} <= {*DATASETS[name].settings}


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_mirror_is_one_that_is_known_to_refuse(name):
    assert not [mirror for mirror in PUBLISHED[name].mirrors if "lecun.com" in mirror]


def test_a_source_of_ones_own_is_not_fetched_and_neither_is_what_is_not_published():
    assert is_fetched("mnist", DatasetConfig())
    assert not is_fetched("mnist", DatasetConfig(source="here"))
    assert not is_fetched("digits", DatasetConfig())
    assert not is_fetched("my.module:factory", DatasetConfig())
