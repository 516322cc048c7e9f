"""A trial that SLURM stops goes on where it was and ends with one record, whoever starts it again: Snakemake or SLURM.

Its ranks wait in the second of three epochs until they are asked to stop, so that they are whatever the machine's speed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from launching import Trained, measured
from pipeline import wait_until

from dpscale.record import Record, read_steps
from slurm.conftest import CHECKS_OFTEN, ClusterCheckout
from slurm.test_drills import GONE_S, RUNNING_S

STEPS_PER_EPOCH, EPOCHS = 12, 3
STOPPED_IN_STEP = 19  # of 36: one that goes on from there comes to no nineteenth
WAITING = {
    "DPSCALE_TEST_INJECT": f"{CHECKS_OFTEN['DPSCALE_TEST_INJECT']},waits_to_be_stopped",
    "DPSCALE_TEST_RANK": "all",
    "DPSCALE_TEST_STEP": str(STOPPED_IN_STEP),
}


def start(checkout: ClusterCheckout, trials: list[str]) -> subprocess.Popen[str]:
    """Snakemake, once all these trials wait to be stopped."""
    targets = [f"results/small/trials/{trial}/record.json" for trial in trials]
    process = checkout.start(*targets, **WAITING)
    wait_until(
        lambda: (
            all("waits to be stopped" in checkout.trial_log(trial) for trial in trials) or process.poll() is not None
        ),
        RUNNING_S,
        f"{trials} wait",
    )
    assert process.poll() is None, process.communicate()[0] + checkout.logs()
    return process


def end(checkout: ClusterCheckout, process: subprocess.Popen[str]) -> list[str]:
    """The ids of its trials' jobs, once Snakemake has ended well."""
    try:
        output, _ = process.communicate(timeout=GONE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(process.communicate()[0] + checkout.logs()) from None
    assert process.returncode == 0, output + checkout.logs()
    return re.findall(r"submitted with SLURM jobid (\d+) \(log: \S*rule_trial", output)


def preempt(checkout: ClusterCheckout) -> None:
    """A job in a partition of higher priority takes both nodes, for a second."""
    urgent = ("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    checkout.cluster.run(*urgent)


def losses(path: Path) -> list[float]:
    """Of every step and rank."""
    return read_steps(path).to_pandas().sort_values(["rank", "segment", "step"]).loss.tolist()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ClusterCheckout, Record], Trained]:
    """The same training on two ranks of one node, in one go, without SLURM."""
    made: list[Trained] = []

    def once(checkout: ClusterCheckout, record: Record) -> Trained:
        trial = replace(record.trial, nodes=1, devices_per_node=2, launcher="spawn")
        if not made:
            made.append(
                measured(trial, checkout.copy.root / "data" / "synthetic", tmp_path_factory.mktemp("undisturbed"))
            )
        return made[0]

    return once


def check(checkout: ClusterCheckout, trials: list[str], undisturbed: Callable[..., Trained]) -> list[Record]:
    """Each trial has one record, of two attempts, which is as if nothing had happened but for what is timed."""
    paths = [checkout.copy.results(f"small/trials/{trial}/record.json") for trial in trials]
    assert sorted(checkout.copy.results().rglob("record.json")) == sorted(paths)
    records = [Record.read(path) for path in paths]
    for path, record in zip(paths, records, strict=True):
        straight = undisturbed(checkout, record)
        first, second = record.launch["attempts"]
        assert re.match(r"stopped after 1 epochs and \d+ steps, and saved", first["how"])
        assert second["how"] == "ok"
        assert [segment.num_steps for segment in record.segments] == [STEPS_PER_EPOCH] * EPOCHS
        assert [segment.warmup for segment in record.segments] == [True, True, False]  # the second was cut in two
        assert losses(path) == pytest.approx(losses(straight.folder / "record.json"), abs=1e-6)
        mine, theirs = record.segments[-1].evaluation, straight.record.segments[-1].evaluation
        assert mine is not None
        assert theirs is not None
        assert (mine.loss, mine.correct) == (pytest.approx(theirs.loss, abs=1e-6), theirs.correct)
    wait_until(lambda: not checkout.leftovers(), GONE_S, "nothing is left")
    return records


def trials_by_epochs(checkout: Callable[..., ClusterCheckout], topology: str, launchers: list[str]) -> ClusterCheckout:
    batch = {"per_device": 8}
    made = checkout(strategies={"ddp": None}, topologies=[topology], launchers=launchers, epochs=EPOCHS, batch=batch)
    made.copy.run("prepare")
    return made


def owned_by_slurm(checkout: ClusterCheckout) -> None:
    """The second setting of the profile."""
    checkout.copy.edit("slurm/config.yaml", "slurm-no-requeue: true\nretries: 2", "slurm-requeue: true\nretries: 0")


def test_snakemake_starts_a_preempted_trial_again(
    checkout: Callable[..., ClusterCheckout], undisturbed: Callable[..., Trained]
) -> None:
    made = trials_by_epochs(checkout, "2x1", ["torchrun"])
    trials = ["ddp/torchrun/2x1/r0"]
    process = start(made, trials)
    preempt(made)
    _, second_job = end(made, process)
    (record,) = check(made, trials, undisturbed)
    assert record.launch["slurm"]["job_id"] == second_job


@pytest.mark.parametrize(
    ("partition", "topology", "launchers"), [("main", "1x2", ["spawn", "srun"]), ("patient", "2x1", ["torchrun"])]
)
def test_slurm_queues_preempted_trials_again(
    partition: str,
    topology: str,
    launchers: list[str],
    checkout: Callable[..., ClusterCheckout],
    undisturbed: Callable[..., Trained],
) -> None:
    """At once, or from a partition that leaves jobs time to end by themselves (GraceTime)."""
    made = trials_by_epochs(checkout, topology, launchers)
    made.copy.edit("slurm/config.yaml", "# slurm_partition: gpu", f"slurm_partition: {partition}")
    owned_by_slurm(made)
    trials = [f"ddp/{launcher}/{topology}/r0" for launcher in launchers]
    process = start(made, trials)
    preempt(made)
    jobs = end(made, process)
    records = check(made, trials, undisturbed)
    assert len(jobs) == len(trials)
    assert {record.launch["slurm"]["job_id"] for record in records} == set(jobs)


def test_a_signal_ahead_of_the_time_limit_saves_trials(
    checkout: Callable[..., ClusterCheckout], undisturbed: Callable[..., Trained]
) -> None:
    made = trials_by_epochs(checkout, "1x2", ["spawn", "torchrun"])
    trials = [f"ddp/{launcher}/1x2/r0" for launcher in ("spawn", "torchrun")]
    process = start(made, trials)
    for job in made.cluster.queue():
        made.cluster.run("scontrol", "update", f"JobId={job}", "EndTime=now+80seconds")
    jobs = end(made, process)
    assert len(set(jobs)) == 4
    check(made, trials, undisturbed)
    for trial in trials:
        assert "SIGUSR1: asking" in made.copy.results(f"small/trials/{trial}/trial.attempt-1.log").read_text()


def test_two_owners_are_refused_before_any_job(checkout: Callable[..., ClusterCheckout]) -> None:
    made = checkout(strategies={"ddp": None})
    made.copy.edit("slurm/config.yaml", "slurm-no-requeue: true", "slurm-requeue: true")
    done = made.snakemake()
    assert done.returncode != 0
    assert "retries: 2 without slurm-no-requeue: true" in done.output
    assert "Traceback" not in done.output
    assert "submitted" not in done.output
