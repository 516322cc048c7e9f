"""Who starts a trial again that SLURM has stopped: Snakemake, or SLURM itself; never both.

What is asked of Snakemake and of its plugin for SLURM here is no public interface of theirs: tests/slurm holds each to it.
"""

from __future__ import annotations

import signal
from typing import Any

from dpscale.errors import UserError


def refuse_two_owners(executor_settings: Any, retries: int) -> None:
    """Before any job starts.

    Args:
        executor_settings: Snakemake's, of whichever executor it is to use.
        retries: the most that Snakemake would make for a job.

    Raises:
        UserError: SLURM may queue a job again that Snakemake would retry as well. It may by default.
    """
    if retries > 0 and getattr(executor_settings, "no_requeue", True) is False:
        raise UserError(
            f"retries: {retries} without slurm-no-requeue: true (slurm/config.yaml or the command line): both Snakemake and "
            "SLURM would start a trial again that was stopped; give either slurm-no-requeue: true and retries, or "
            "slurm-requeue: true and retries: 0"
        )


def end_with_preempted_jobs(executor_settings: Any) -> None:
    """Let Snakemake see the end of a job that SLURM has pre-empted and does not queue again.

    Its plugin waits for any PREEMPTED job, for ever. squeue shows one that is queued again as PENDING, and never as
    PREEMPTED; the accounting, which sacct asks, may do so for a moment.
    """
    import snakemake_executor_plugin_slurm as plugin

    ask = plugin.query_job_status

    async def asked(command: str, logger: Any) -> Any:
        states, duration_s = await ask(command, logger)
        if states is not None and (command.startswith("squeue") or not executor_settings.requeue):
            states = {job: "CANCELLED" if state == "PREEMPTED" else state for job, state in states.items()}
        return states, duration_s

    plugin.query_job_status = asked


def leave_signals_to_ranks() -> None:
    """In a job's own Snakemake: `--signal` reaches every process of a job step. The ranks save themselves; if Snakemake
    ended meanwhile, SLURM would kill what it has started."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
