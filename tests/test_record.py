"""A record is whole or it is refused, and the message says what to do."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from factories import a_record, a_segment, a_trial, an_evaluation, an_unavailable_record, rank_facts, step_columns

from dpscale import files
from dpscale.errors import UserError
from dpscale.files import write_atomically
from dpscale.record import (
    FORMAT_VERSION,
    MONITOR,
    RECORD,
    SAMPLE_COLUMNS,
    STEP_COLUMNS,
    STEPS,
    Record,
    read_samples,
    read_steps,
    write_samples,
    write_steps,
)

READINGS = [{"node": 0, "kind": "rank", "name": "0", "time_s": 0.1 + 0.2, "cpu_time_s": 1 / 3, "memory_bytes": 2**40}]


def write(folder, record=None):
    """A record and its steps in a folder, as a trial leaves them."""
    record = record or a_record()
    columns = step_columns(record) if record.status == "ok" else {}
    steps = write_steps(folder / STEPS, columns)
    samples = write_samples(folder / MONITOR, READINGS if record.status == "ok" else [])
    record = replace(record, steps_sha256=steps, monitor_sha256=samples)
    record.write(folder)
    return record


def edit(folder, **changes):
    """Other values in the json file, as a different program would write them."""
    data = json.loads((folder / RECORD).read_text()) | changes
    (folder / RECORD).write_text(json.dumps(data))


def refusal(folder):
    with pytest.raises(UserError) as refused:
        Record.read(folder / RECORD)
    return str(refused.value)


def test_a_record_comes_back_as_it_was_written(tmp_path):
    record = write(tmp_path)
    assert Record.read(tmp_path / RECORD) == record


def test_a_record_of_an_unavailable_trial_comes_back_with_its_reason(tmp_path):
    record = write(tmp_path, an_unavailable_record(reason="needs NVIDIA apex <= 25.05: not installed"))
    assert Record.read(tmp_path / RECORD) == record


def test_steps_come_back_as_they_were_written(tmp_path):
    record = write(tmp_path)
    assert read_steps(tmp_path / RECORD).to_pydict() == step_columns(record)


def test_steps_have_the_same_columns_and_types_where_there_are_none(tmp_path):
    write_steps(tmp_path / STEPS, {})
    empty = read_steps(tmp_path / RECORD).schema
    write(tmp_path)
    assert empty == read_steps(tmp_path / RECORD).schema
    assert tuple(empty.names) == STEP_COLUMNS


def test_samples_come_back_as_they_were_written_and_what_was_not_told_is_null(tmp_path):
    write(tmp_path)
    (row,) = read_samples(tmp_path / RECORD).to_pylist()
    assert row == {name: READINGS[0].get(name) for name in SAMPLE_COLUMNS}


def test_numbers_keep_every_bit(tmp_path):
    record = a_record(segments=[a_segment(seconds=[0.1 + 0.2, 1 / 3])])
    assert Record.read(write_folder(tmp_path, record)).segments == record.segments


def write_folder(folder, record):
    write(folder, record)
    return folder / RECORD


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_cut_record_is_refused_with_the_remedy(tmp_path, share):
    write(tmp_path)
    text = (tmp_path / RECORD).read_text()
    (tmp_path / RECORD).write_text(text[: int(share * len(text))])
    assert f"{RECORD}: not a whole record" in refusal(tmp_path)
    assert f"delete {tmp_path} and run the same command again" in refusal(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"3", b"null", b'"text"', b"{}", b"\xff\xfe", b'{"format_version": %d}' % FORMAT_VERSION],
    ids=str,
)
def test_another_file_under_its_name_is_refused(tmp_path, content):
    (tmp_path / RECORD).write_bytes(content)
    assert "not a whole record" in refusal(tmp_path)


def test_a_missing_record_is_refused(tmp_path):
    assert "FileNotFoundError" in refusal(tmp_path)


@pytest.mark.parametrize("version", [0, 1, None, "2"])
def test_a_record_of_another_format_is_refused(tmp_path, version):
    write(tmp_path)
    edit(tmp_path, format_version=version)
    assert f"format {version}, this code reads {FORMAT_VERSION}" in refusal(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"trial": {}},
        {"trial": None},
        {"segments": 3},
        {"segments": [{}]},
        {"segments": [{"windows_s": [[1, 2, 3]], "evaluation": None}]},
        {"ranks": [{"rank": 0}]},
        {"a_key_of_the_future": 1},
    ],
    ids=str,
)
def test_a_record_with_other_parts_is_refused(tmp_path, changes):
    write(tmp_path)
    edit(tmp_path, **changes)
    assert "not a whole record" in refusal(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_refused(tmp_path, number):
    write(tmp_path)
    text = (tmp_path / RECORD).read_text()
    (tmp_path / RECORD).write_text(text.replace('"loss": 0.25', f'"loss": {number}'))
    assert f"{number} is no number" in refusal(tmp_path)


def test_and_is_never_written(tmp_path):
    record = a_record(segments=[a_segment(evaluation=an_evaluation(loss=float("nan")))])
    with pytest.raises(ValueError, match="JSON compliant"):
        record.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


BESIDE = pytest.mark.parametrize("name", [STEPS, MONITOR])


@BESIDE
def test_a_missing_file_beside_it_is_refused(tmp_path, name):
    write(tmp_path)
    (tmp_path / name).unlink()
    assert f"{name}: missing, cut or not of this record" in refusal(tmp_path)


@BESIDE
def test_a_cut_file_beside_it_is_refused(tmp_path, name):
    write(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-1])
    assert f"{name}: missing, cut or not of this record" in refusal(tmp_path)


def test_steps_of_another_record_are_refused(tmp_path):
    write(tmp_path)
    write_steps(tmp_path / STEPS, {})
    assert f"{STEPS}: missing, cut or not of this record" in refusal(tmp_path)


def test_samples_of_another_record_are_refused(tmp_path):
    write(tmp_path)
    write_samples(tmp_path / MONITOR, [])
    assert f"{MONITOR}: missing, cut or not of this record" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reason": "why"}, "a record that is not ok gives its reason, and only such a one"),
        ({"status": "unavailable"}, "a record that is not ok gives its reason, and only such a one"),
        ({"ranks": [rank_facts(0)]}, r"facts of ranks \[0\], 2 expected"),
        ({"ranks": [rank_facts(1), rank_facts(0)]}, r"facts of ranks \[1, 0\], 2 expected"),
        ({"segments": [a_segment(seconds=[2.0])]}, "segment 0 has not one time of each of 2 ranks"),
        ({"segments": [a_segment(samples=[1])]}, "segment 0 has not one time of each of 2 ranks"),
        ({"segments": [a_segment(seconds=[2.0, 0.0])]}, "rank 1 of segment 0 took 0.0 s"),
        ({"segments": [a_segment(seconds=[-1.0, 2.0])]}, "rank 0 of segment 0 took -1.0 s"),
        ({"segments": [a_segment(seconds=[float("nan"), 2.0])]}, "rank 0 of segment 0 took nan s"),
        ({"segments": [a_segment(warmup=True)]}, "nothing but warm-up was measured"),
        ({"segments": []}, "nothing but warm-up was measured"),
    ],
)
def test_parts_that_contradict_each_other_make_no_record(changes, said):
    with pytest.raises(UserError, match=f"quickstart/ddp/spawn/1x2/r0: {said}"):
        a_record(**changes)


def test_timed_segments_are_those_that_are_no_warm_up():
    segments = a_record().timed_segments
    assert [segment.warmup for segment in segments] == [False, False]


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_file_appears_whole_or_the_old_one_stays(tmp_path, monkeypatch, step):
    def fail(*arguments):
        raise OSError("no space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (type(path), "rename")), fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"file": "old"}


@pytest.mark.parametrize("writer", [lambda folder: a_record(a_trial()).write(folder), lambda folder: write(folder)])
def test_nothing_half_written_is_left_of_a_record(tmp_path, monkeypatch, writer):
    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        writer(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    names_at_sync = []
    monkeypatch.setattr(files.os, "fsync", lambda file: names_at_sync.append([p.name for p in tmp_path.iterdir()]))
    write_atomically(tmp_path / "file", b"new")
    assert names_at_sync == [[".file.partial"]]
