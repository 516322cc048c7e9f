"""Exactly one of Snakemake and SLURM starts a stopped trial again. tests/slurm has the real thing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_slurm as plugin

from dpscale.errors import UserError
from dpscale.launching import slurm
from dpscale.launching.retries import end_with_preempted_jobs, refuse_two_owners


def settings(**changes: bool) -> SimpleNamespace:
    return SimpleNamespace(**{"requeue": False, "no_requeue": False, **changes})


@pytest.mark.parametrize("asked", [settings(), settings(requeue=True)])
def test_retries_of_snakemake_beside_those_of_slurm_are_refused_with_a_remedy(asked: SimpleNamespace):
    with pytest.raises(
        UserError, match=r"retries: 2 without slurm-no-requeue: true.*slurm-requeue: true and retries: 0"
    ):
        refuse_two_owners(asked, 2)


@pytest.mark.parametrize(
    ("asked", "retries"),
    [(settings(no_requeue=True), 2), (settings(requeue=True), 0), (settings(), 0), (None, 2)],
    ids=["Snakemake", "SLURM", "nobody", "no SLURM"],
)
def test_one_owner_is_accepted(asked: SimpleNamespace | None, retries: int):
    refuse_two_owners(asked, retries)


@pytest.mark.parametrize(
    ("command", "requeue", "expected"),
    [
        ("squeue --name x", False, "CANCELLED"),
        ("squeue --name x", True, "CANCELLED"),  # one that is queued again is PENDING there
        ("sacct --name x", False, "CANCELLED"),
        ("sacct --name x", True, "PREEMPTED"),  # until it is queued again
    ],
)
def test_a_job_that_ended_by_preemption_has_failed(
    command: str, requeue: bool, expected: str, monkeypatch: pytest.MonkeyPatch
):
    async def states(command: str, logger: object):
        return {"7": "PREEMPTED", "8": "RUNNING"}, 0.1

    monkeypatch.setattr(plugin, "query_job_status", states)
    end_with_preempted_jobs(settings(requeue=requeue))
    found = asyncio.run(plugin.query_job_status(command, None))
    assert found == ({"7": expected, "8": "RUNNING"}, 0.1)


@pytest.mark.parametrize(
    ("state", "preempted", "requeue", "is_queued_again"),
    [
        ("RUNNING", "2026-11-30T17:47:55", "1", True),
        ("RUNNING", "2026-11-30T17:47:55", "0", False),  # Snakemake's
        ("RUNNING", "None", "1", False),  # its time is up
        ("PENDING", "2026-11-30T17:47:55", "1", False),  # SLURM has done so
    ],
)
def test_a_job_is_queued_again_only_where_slurm_owns_retries_and_preempts_it(
    state: str, preempted: str, requeue: str, is_queued_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    scontrol, calls = tmp_path / "scontrol", tmp_path / "calls"
    shown = f"JobId=7 JobState={state} Requeue={requeue} PreemptEligibleTime=x PreemptTime={preempted}"
    scontrol.write_text(f"#!/bin/sh\necho \"$*\" >> {calls}\necho '{shown}'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert slurm.queue_preempted_job_again() is is_queued_again
    assert ("requeue 7" in calls.read_text()) is is_queued_again
