"""Where a trial's ranks go: on this machine, on this one of several by hand, or on the nodes of a SLURM job."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from dpscale.errors import UserError
from dpscale.launched import Launched
from dpscale.launching import attempt, slurm
from dpscale.launching.launchers import LAUNCHERS, Placement

_PER_MACHINE = "use " + " or ".join(name for name, row in LAUNCHERS.items() if row.on_each_machine)


@dataclass(frozen=True)
class ByHand:
    """One of several machines, on each of which somebody starts launch.py."""

    node_rank: int
    master_addr: str
    master_port: int


def needs_a_job(trial: Launched) -> bool:
    """Whether the trial spans nodes, or is started by srun."""
    return trial.nodes > 1 or trial.launcher == "srun"


def place(trial: Launched, by_hand: ByHand | None, job: dict[str, Any] | None, number: int) -> Placement:
    """The placement of the attempt of that number, from 1.

    Raises:
        UserError: nothing says which machines are meant, it is not as many as the trial asks for, or its launcher does
            not reach them.
    """
    launcher = LAUNCHERS[trial.launcher]
    if launcher.one_node and trial.nodes > 1:
        raise UserError(f"{trial.launcher} starts ranks on one node only, {trial.nodes} are asked for; {_PER_MACHINE}")
    if by_hand is not None and not launcher.on_each_machine:
        raise UserError(f"{trial.launcher} starts the ranks of all machines by itself; by hand, {_PER_MACHINE}")
    if by_hand is not None:
        return _by_hand(trial, by_hand)
    if needs_a_job(trial):
        return _in_job(trial, job, number)
    run_id = uuid.uuid4().hex
    return _placement(trial, run_id=run_id, node_rank=0, master_addr="127.0.0.1", master_port=attempt.free_port())


def _by_hand(trial: Launched, by_hand: ByHand) -> Placement:
    if not 0 <= by_hand.node_rank < trial.nodes:
        raise UserError(f"--node-rank={by_hand.node_rank}: with {trial.nodes} nodes it is 0 to {trial.nodes - 1}")
    address = slurm.address_of(by_hand.master_addr)
    # the same id on every machine, without talking
    run_id = f"{trial.id.replace('/', '-')}-{by_hand.master_port}"
    return _placement(
        trial, run_id=run_id, node_rank=by_hand.node_rank, master_addr=address, master_port=by_hand.master_port
    )


def _in_job(trial: Launched, job: dict[str, Any] | None, number: int) -> Placement:
    if job is None:
        raise UserError(
            f"needs {trial.nodes} nodes of a SLURM job: use snakemake --profile slurm"
            + (
                ""
                if not LAUNCHERS[trial.launcher].on_each_machine
                else ", or start this command on each machine with --node-rank=0, 1, ... "
                "--master-addr=HOST --master-port=PORT"
            )
        )
    if len(job["nodes"]) != trial.nodes:
        raise UserError(f"job {job['job_id']} has nodes {', '.join(job['nodes'])}; the trial needs {trial.nodes}")
    settings = slurm.cluster_settings()
    return _placement(
        trial,
        run_id=f"{job['job_id']}-{number}",
        hosts=tuple(job["nodes"]),
        node_rank=None,
        master_addr=slurm.address_of(job["nodes"][0]),
        master_port=slurm.port_of(int(job["job_id"]), number),
        cores_per_rank=slurm.cores_per_rank(trial, settings),
        gres_per_node=slurm.gres_per_node(trial, settings),
    )


def _placement(trial: Launched, **where: Any) -> Placement:
    return Placement(
        nodes=trial.nodes, ranks_per_node=trial.ranks_per_node, container=slurm.container_setting(), **where
    )
