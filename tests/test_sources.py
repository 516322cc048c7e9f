"""A dataset's files come out of a folder or an archive, and nothing else comes out of it."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpscale.errors import UserError
from dpscale.workloads.datasets.base import RECEIPT
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.datasets.sources import read_files

CONTENT = {"images": np.random.default_rng(0).bytes(5000), "labels": b"0123456789" * 30}
NAMES = list(CONTENT)


def tar_of(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def zip_of(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


KINDS: dict[str, Callable[[Path, dict[str, bytes]], Path]] = {
    "folder": folder_of,
    "tar": lambda path, files: tar_of(path, files, "w"),
    "tar.gz": tar_of,
    "tar.xz": lambda path, files: tar_of(path, files, "w:xz"),
    "tar.bz2": lambda path, files: tar_of(path, files, "w:bz2"),
    "zip": zip_of,
}
ARCHIVES = {kind: make for kind, make in KINDS.items() if kind != "folder"}


def in_gzip(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def contents(source: Path) -> dict[str, bytes]:
    return {name: file.content for name, file in read_files(source, NAMES).items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("below", ["", "inner/"], ids=["at the top", "one below"])
def test_files_are_found_in_every_kind_of_source(tmp_path, kind, compressed, below):
    files = in_gzip(CONTENT) if compressed else CONTENT
    source = KINDS[kind](tmp_path / f"source.{kind}", {f"{below}{name}": content for name, content in files.items()})
    assert contents(source) == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_file_that_is_there_plain_and_gzipped_the_plain_one_is_taken(tmp_path, kind):
    """torchvision leaves both."""
    files = CONTENT | {"images.gz": gzip.compress(b"other")}
    assert contents(KINDS[kind](tmp_path / f"source.{kind}", files)) == CONTENT


def test_a_file_knows_where_it_lies(tmp_path):
    folder = folder_of(tmp_path / "here", {"images": b"", "below/labels.gz": gzip.compress(b"")})
    assert [file.place for file in read_files(folder, NAMES).values()] == [
        f"{folder}/images",
        f"{folder}/below/labels.gz",
    ]
    archive = zip_of(tmp_path / "it.zip", {"in/images": b"", "labels": b""})
    assert read_files(archive, NAMES)["images"].place == f"{archive}: in/images"


def test_a_folder_that_holds_the_published_archive_will_do(tmp_path):
    tar_of(tmp_path / "published.tar.gz", CONTENT)
    found = read_files(tmp_path, NAMES, archive="published.tar.gz")
    assert {name: file.content for name, file in found.items()} == CONTENT


# Archives are not trusted


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("name", ["../../{}", "/{}", "a/../../{}", "C:\\..\\{}"])
def test_a_name_that_leads_out_of_an_archive_writes_nothing_anywhere(tmp_path, kind, name):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    hostile = {name.format(f"{tmp_path}/evil".lstrip("/") if name.startswith("/") else "evil"): b"evil"}
    source = KINDS[kind](inside / "source", CONTENT | hostile)
    before = sorted(tmp_path.rglob("*"))
    assert contents(source) == CONTENT
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_an_archive_is_no_file(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    with tarfile.open(tmp_path / "source.tar", "w") as archive:
        for name, kind in (("images", tarfile.SYMTYPE), ("labels", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, str(tmp_path / "secret")
            archive.addfile(member)
    with pytest.raises(UserError, match=r"source\.tar: holds no images"):
        contents(tmp_path / "source.tar")


# What is not whole


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_cut_anywhere_is_refused_by_its_path(tmp_path, kind):
    source = ARCHIVES[kind](tmp_path / f"source.{kind}", CONTENT)
    whole = source.read_bytes()
    end = 5000 if kind == "tar" else len(whole)  # a plain tar ends in empty blocks, which may be missing
    for length in {0, 1, 10, 300, end // 2, end - 700, end - 1}:
        source.write_bytes(whole[:length])
        with pytest.raises(UserError, match=rf"{source}: .*(copy it again|holds no)"):
            contents(source)


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "tar.bz2", "zip"])
def test_an_archive_with_a_wrong_byte_is_refused_by_its_path(tmp_path, kind):
    source = ARCHIVES[kind](tmp_path / f"source.{kind}", CONTENT)
    content = bytearray(source.read_bytes())
    content[len(content) // 3] ^= 0xFF  # within the images, which compression leaves nearly as they are
    source.write_bytes(content)
    with pytest.raises(UserError, match=rf"{source}: (can't be read to its end|neither) .*copy it again"):
        contents(source)


def test_a_gzipped_file_cut_anywhere_is_refused_by_its_path(tmp_path):
    folder_of(tmp_path, CONTENT | in_gzip({"labels": CONTENT["labels"]}))
    (tmp_path / "labels").unlink()
    whole = (tmp_path / "labels.gz").read_bytes()
    for length in range(1, len(whole)):  # an empty one is gzip's idea of nothing
        (tmp_path / "labels.gz").write_bytes(whole[:length])
        with pytest.raises(UserError, match=rf"{tmp_path}/labels\.gz: not a whole gzip file"):
            contents(tmp_path)


def test_an_archive_that_asks_for_a_password_is_refused(tmp_path):
    source = zip_of(tmp_path / "source.zip", CONTENT)
    content = bytearray(source.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + flags] |= 1
    source.write_bytes(content)
    with pytest.raises(UserError, match=r"source\.zip: .*password"):
        contents(source)


# What is not there


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_missing_is_named_and_all_are_listed(tmp_path, kind):
    source = KINDS[kind](tmp_path / f"source.{kind}", {"images": b"", "other": b""})
    with pytest.raises(UserError, match=rf"{source}: holds no labels, plain or as \.gz; .* consists of images, labels"):
        contents(source)


def test_a_fetched_file_that_was_deleted_is_fetched_again_with_its_folder(tmp_path):
    folder_of(tmp_path, {"images": b"", RECEIPT: b"{}"})
    with pytest.raises(UserError, match=r"holds no labels, .*; delete this folder to have them fetched again"):
        contents(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_there_twice_is_named_with_both_places(tmp_path, kind):
    files = {"labels": b"", "mnist/images": b"", "fashion/images": b""}
    source = KINDS[kind](tmp_path / f"source.{kind}", files)
    with pytest.raises(UserError, match=r"images twice, as \w+/images and \w+/images; leave one"):
        contents(source)


def test_a_source_that_is_not_there_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(UserError, match=r"no/such: there is no such folder or archive; .*to have the files fetched"):
        read_files("no/such", NAMES)
    with pytest.raises(UserError, match="source is not given"):
        read_files(None, NAMES)


def test_a_source_may_begin_with_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert DatasetConfig(source="~/flowers").source == "/home/me/flowers"


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    shutil.copy(__file__, tmp_path / "images")
    with pytest.raises(UserError, match="images: neither a folder nor a whole tar or zip archive"):
        contents(tmp_path / "images")
