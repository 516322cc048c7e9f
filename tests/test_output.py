"""What a rank writes comes line by line, each with the rank's number, whoever writes it and however the rank ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import SCRIPTS

from dpscale.launching.launches import Log

BEGIN = """
import os, signal, subprocess, sys, time
from dpscale.output import tagged
rank = int(sys.argv[1])
"""


def a_rank(body: str, rank: int = 3, **pipes: int) -> subprocess.Popen[str]:
    """A process that runs this within `tagged`."""
    code = f"{BEGIN}\nwith tagged(rank):\n" + "\n".join(f"    {line}" for line in body.strip().splitlines())
    return subprocess.Popen(
        [sys.executable, "-c", code, str(rank)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
        **{"stderr": subprocess.PIPE, **pipes},
        text=True,
    )


def said(body: str) -> list[str]:
    """The lines of one rank; nothing may come by any other way."""
    output, lines = a_rank(body).communicate(timeout=60)
    assert output == ""
    return lines.splitlines()


def test_python_a_library_and_a_child_come_in_their_order():
    lines = said(r"""
print("by Python", flush=True)
os.write(1, b"by a library\n")
subprocess.run(["echo", "by a child"])
sys.stderr.write("an error\n")
""")
    assert lines == [f"[rank 3] {text}" for text in ("by Python", "by a library", "by a child", "an error")]


def test_what_python_holds_back_comes_at_the_end_of_the_block():
    assert said("sys.stdout.write('held back')") == ["[rank 3] held back"]


@pytest.mark.parametrize("number", ["SIGKILL", "SIGABRT", "SIGTERM"])
def test_the_last_words_of_a_rank_that_is_ended_come_through_though_their_line_has_no_end(number: str):
    body = rf'os.write(2, b"a line\nhalf a line"); os.kill(os.getpid(), signal.{number}); time.sleep(60)'
    assert said(body) == ["[rank 3] a line", "[rank 3] half a line"]


def test_a_signal_to_all_processes_is_heard_by_the_rank_alone():
    lines = said(r"""
import psutil
time.sleep(0.5)  # until the other process is there
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
for process in [*psutil.Process().children(), psutil.Process()]:
    process.terminate()
print("saved")
""")
    assert lines == ["[rank 3] asked to end", "[rank 3] saved"]


def test_a_line_of_any_length_comes_whole_if_in_pieces():
    lines = said("print('x' * 100_000)")
    assert all(line.startswith("[rank 3] x") for line in lines)
    assert sum(line.count("x") for line in lines) == 100_000


def test_lines_of_several_ranks_are_never_mixed():
    reader, writer = os.pipe()
    ranks = [
        a_rank("for _ in range(300): os.write(1, b'%d' % rank * 3000 + b'\\n')", rank, stderr=writer)
        for rank in (1, 2, 3)
    ]
    os.close(writer)
    with os.fdopen(reader) as stream:
        lines = stream.read().splitlines()
    assert [process.wait(60) for process in ranks] == [0, 0, 0]
    assert len(lines) == 3 * 300
    assert all(re.fullmatch(r"\[rank (\d)\] \1{3000}", line) for line in lines)


def test_a_rank_does_not_wait_for_a_child_that_outlives_it():
    process = a_rank("child = subprocess.Popen(['sleep', '20']); print(child.pid)")
    assert process.wait(10) == 0
    assert process.stderr is not None
    os.kill(int(process.stderr.readline().split()[-1]), 9)


@pytest.mark.parametrize("before", ["", "[1]<stderr>:", "[12]<stdout>:"])
def test_what_a_launcher_puts_before_a_tag_is_left_out(before: str, tmp_path: Path):
    log = Log(tmp_path / "trial.log")
    log.relay(iter([f"{before}[rank 1] text\n"]))  # type: ignore[arg-type]
    assert re.fullmatch(r"\[ *\d+\.\d{3}\] \[rank 1\] text\n", (tmp_path / "trial.log").read_text())
