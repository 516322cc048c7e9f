"""What a trial learns from the SLURM job that it runs in, and the resources that it asks for."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import socket
import subprocess
from typing import TYPE_CHECKING, Any

from dpscale.errors import UserError
from dpscale.launched import Launched
from dpscale.launching.attempt import LOWEST_PORT, ephemeral_ports_begin

if TYPE_CHECKING:  # the config's types take a while to import, and most launches don't need them
    from dpscale.cluster import ClusterConfig

# The cluster's settings reach launch.py through the environment and not as a rule's params: they decide where a trial
# runs and not what it measures, so changing them re-runs nothing.
SETTINGS = "DPSCALE_CLUSTER"
START_UP_MINUTES = 5  # of a job beyond its trial's own time limit: environment, imports, staging
GROW_WITH_ATTEMPTS = {"runtime"}  # resources of which the second attempt gets twice as much
# Ahead of the time limit, to each process of the job steps: ranks save themselves, Snakemake lets them. SLURM may send it a
# minute earlier than it says. And the log of a job that is queued again goes on, rather than begin anew.
ALWAYS_ASKED = "--signal=USR1@60 --open-mode=append"
PORTS_PER_JOB = 4  # neighbouring job ids don't share one, whatever their attempts


def resources(launched: Launched, cluster: ClusterConfig) -> dict[str, Any]:
    """What the snakemake-executor-plugin-slurm is to ask for at the first attempt; None leaves a resource out.

    On several nodes `mpi` keeps the plugin from wrapping the job in an srun of one task, which would leave it on one
    node; it demands tasks > 1. GPUs are asked for per node with gres: --gpus=8 -N2 may be placed 7 + 1.
    """
    several = launched.nodes > 1
    extra = f"--ntasks-per-node=1{' --exclusive' if cluster.exclusive else ''} {ALWAYS_ASKED}"
    return {
        "nodes": launched.nodes,
        "mpi": "srun" if several else None,
        "tasks": launched.nodes if several else None,
        "tasks_per_gpu": 0,
        "gres": gres_per_node(launched, cluster),
        "cpus_per_task": cores_per_rank(launched, cluster) * launched.ranks_per_node,
        "runtime": minutes(launched.timeout_s),
        "slurm_extra": extra,
        # not SLURM's: the trial's own limits ride here, since changed resources re-run nothing
        "limits": shlex.join(launched.limit_args()),
    }


def minutes(timeout_s: float) -> int:
    """The time limit of a job, in min, at its first attempt."""
    return math.ceil(timeout_s / 60) + START_UP_MINUTES


def cluster_settings() -> ClusterConfig:
    """The config's cluster section, as the Snakefile put it into the environment; its defaults without one."""
    from dpscale.cluster import ClusterConfig

    return ClusterConfig.model_validate_json(os.environ.get(SETTINGS, "{}"))


def container_setting() -> str | None:
    """The image that ranks run in, read without the config's types: every launch asks for it."""
    found: str | None = json.loads(os.environ.get(SETTINGS, "{}")).get("container")
    return found


def cores_per_rank(launched: Launched, cluster: ClusterConfig) -> int:
    return cluster.cores_per_rank or launched.cores_per_rank


def gres_per_node(launched: Launched, cluster: ClusterConfig) -> str | None:
    return f"{cluster.gres}:{launched.devices_per_node}" if launched.device == "cuda" else None


def node_rank_of_this_step() -> int:
    """This node's number in its job step.

    Raises:
        UserError: not in a job step, or in one with several tasks per node: each would start all of the node's ranks.
    """
    if "SLURM_NODEID" not in os.environ:
        raise UserError("SLURM_NODEID is not set: outside a SLURM job step, give --node-rank")
    if int(os.environ["SLURM_STEP_NUM_TASKS"]) != int(os.environ["SLURM_STEP_NUM_NODES"]):
        raise UserError(
            f"{os.environ['SLURM_STEP_NUM_TASKS']} tasks on {os.environ['SLURM_STEP_NUM_NODES']} nodes: "
            "srun must start one launcher per node (--ntasks-per-node=1)"
        )
    return int(os.environ["SLURM_NODEID"])


def node_name() -> str:
    """SLURM's name of this node, else the host's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def describe_job() -> dict[str, Any] | None:
    """The job that this process runs in, by SLURM's own word; None outside of one.

    Raises:
        UserError: SLURM does not know the job.
    """
    job_id = os.environ.get("SLURM_JOB_ID")
    if job_id is None:
        return None
    fields = _fields_of(job_id)
    return {
        "job_id": job_id,
        "nodes": _scontrol("show", "hostnames", fields["NodeList"]).split(),
        "partition": fields.get("Partition"),
        "cpus": int(fields["NumCPUs"]),
        "allocated": fields.get("AllocTRES") or fields.get("TRES"),
        "gres_per_node": fields.get("TresPerNode"),
        "time_limit": fields.get("TimeLimit"),
        "shared": fields.get("OverSubscribe") != "NO",  # an exclusive job does not let others onto its nodes
    }


def queue_preempted_job_again() -> bool:
    """Have SLURM queue this job again that it is about to stop, if it may and has not done so; returns whether it does.

    With no GraceTime of the partition it has. Within one, SLURM 22.05 takes a job for done that ends by itself.

    Raises:
        UserError: SLURM does not do it.
    """
    job_id = os.environ.get("SLURM_JOB_ID")
    if job_id is None:
        return False
    fields = _fields_of(job_id)
    preempted = fields.get("PreemptTime", "None") != "None"
    if not (preempted and fields["JobState"] == "RUNNING" and fields["Requeue"] == "1"):
        return False
    _scontrol("requeue", job_id)
    return True


def _fields_of(job_id: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=(\S*)", _scontrol("show", "job", "--oneliner", job_id)))


def _scontrol(*arguments: str) -> str:
    try:
        done = subprocess.run(["scontrol", *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise UserError(f"SLURM_JOB_ID is set, but scontrol does not answer: {error}") from None
    if done.returncode != 0:
        raise UserError(f"scontrol {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def address_of(host: str) -> str:
    """The literal address of a host, resolved once: ranks that resolve it each may get different ones."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror as error:
        raise UserError(f"{host}: {error.strerror}; the first node's name must resolve on the nodes") from None


def port_of(job_id: int, attempt: int) -> int:
    """A port that all nodes agree on without talking: below the ephemeral range, where no client socket lands."""
    ports = ephemeral_ports_begin() - LOWEST_PORT
    return LOWEST_PORT + (job_id * PORTS_PER_JOB + attempt) % ports
