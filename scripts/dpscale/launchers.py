"""(command, placement) -> argv of the process that starts this node's ranks. Pure: builds argv, runs nothing.

Every launcher ends in torchrun's environment contract (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
MASTER_ADDR, MASTER_PORT), so world.py learns a rank's place in one way only.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Command = list[str]
CONTRACT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
SCRIPTS = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the ranks go. The address is literal for local runs: a name that does not resolve hangs a rendezvous."""

    nodes: int
    node_rank: int | None  # None: each node's launcher reads it from SLURM_NODEID, inside the job step
    ranks_per_node: int
    master_addr: str
    master_port: int
    run_id: str
    cores_per_rank: int = 1
    gres_per_node: str | None = None  # SLURM's, such as gpu:4
    container: str | None = None  # an image for apptainer
    binds: tuple[str, ...] = ()  # folders that must be seen inside it

    def python(self, script: str) -> Command:
        """What runs one of our scripts on a node: this interpreter, or the container's."""
        path = str(SCRIPTS / script)
        if self.container is None:
            return [sys.executable, path]
        binds = [f"--bind={folder}" for folder in (str(SCRIPTS), *self.binds)]
        return ["apptainer", "exec", "--nv", *binds, self.container, "python", path]

    def flags(self) -> list[str]:
        return [
            f"--nnodes={self.nodes}",
            *([] if self.node_rank is None else [f"--node-rank={self.node_rank}"]),
            f"--nproc-per-node={self.ranks_per_node}",
            f"--master-addr={self.master_addr}",
            f"--master-port={self.master_port}",
        ]

    def srun(self, tasks_per_node: int) -> Command:
        """srun over all nodes of the job, with all of its geometry: a bare one inside a job loses what sbatch said."""
        return [
            "srun",
            f"--nodes={self.nodes}",
            f"--ntasks={self.nodes * tasks_per_node}",
            f"--ntasks-per-node={tasks_per_node}",
            f"--cpus-per-task={self.cores_per_rank * self.ranks_per_node // tasks_per_node}",
            *([] if self.gres_per_node is None else [f"--gres={self.gres_per_node}"]),
            "--kill-on-bad-exit=1",
            "--overlap",  # on one node Snakemake's own job step holds the allocation
        ]


def over_nodes(command: Command, placement: Placement) -> Command:
    """One launcher per node: as it is on one's own node, under one srun on all nodes of a job."""
    return command if placement.node_rank is not None else [*placement.srun(tasks_per_node=1), *command]


def spawn(command: Command, placement: Placement) -> Command:
    """torch.multiprocessing: rank = node_rank x ranks_per_node + local_rank."""
    return over_nodes([*placement.python("spawn.py"), *placement.flags(), "--", *command], placement)


def torchrun(command: Command, placement: Placement) -> Command:
    """torchrun with a static rendezvous, so that rank 0 is on node 0; no restarts: a trial runs once or fails."""
    flags = [*placement.flags(), f"--rdzv-id={placement.run_id}", "--max-restarts=0"]
    return over_nodes([*placement.python("torchrun.py"), *flags, *command], placement)


def srun(command: Command, placement: Placement) -> Command:
    """SLURM's own: one task per rank, inside a job."""
    flags = [f"--master-addr={placement.master_addr}", f"--master-port={placement.master_port}"]
    tasks = placement.srun(tasks_per_node=placement.ranks_per_node)
    return [*tasks, *placement.python("srun.py"), *flags, "--", *command]


LAUNCHERS: dict[str, Callable[[Command, Placement], Command]] = {"spawn": spawn, "torchrun": torchrun, "srun": srun}
