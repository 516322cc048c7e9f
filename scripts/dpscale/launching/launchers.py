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
SCRIPTS = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the ranks go. The address is literal for local runs: a name that does not resolve hangs a rendezvous."""

    nodes: int
    node_rank: int | None  # None: each node's launcher reads it from SLURM_NODEID, inside the job step
    ranks_per_node: int
    master_addr: str
    master_port: int
    run_id: str
    hosts: tuple[str, ...] = ()  # of the job, in the order of nodes
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
    return [*placement.srun(tasks_per_node=placement.ranks_per_node), *_task(command, placement, "srun.py")]


def mpirun(command: Command, placement: Placement) -> Command:
    """Open MPI's: one task per rank, on this machine, or on all nodes of a SLURM job, whose srun it starts its daemons with.

    On one machine it asks no scheduler and no ssh, and its ranks meet on loopback; a port of its own stays open to the
    network, which Open MPI 4 has no option against.
    """
    if placement.node_rank is not None:
        loopback = {f"{part}_tcp_if_include": "127.0.0.0/8" for part in ("oob", "btl")}
        start, how = [], {"plm": "isolated", "ras": "^slurm", "oob_tcp_disable_ipv6_family": "1", **loopback}
    else:
        # what it learns its nodes from, and Snakemake's plugin drops; told of them by --host, it misplaces its daemons
        tasks = f"{placement.ranks_per_node}(x{placement.nodes})"
        start = ["env", f"SLURM_NODELIST={','.join(placement.hosts)}", f"SLURM_TASKS_PER_NODE={tasks}"]
        step = ["--overlap", *([] if placement.gres_per_node is None else [f"--gres={placement.gres_per_node}"])]
        how = {"plm": "slurm", "ras": "slurm", "plm_slurm_args": " ".join(step)}
    return [
        *(*start, "mpirun", "-np", str(placement.nodes * placement.ranks_per_node), "--allow-run-as-root"),
        # threads are torch's own business, as under the other launchers
        *("--map-by", "slot", "--bind-to", "none", "--oversubscribe"),
        *(word for name, value in how.items() for word in ("--mca", name, value)),
        *_task(command, placement, "mpirun.py"),
    ]


def horovodrun(command: Command, placement: Placement) -> Command:
    """Horovod's own, over gloo: one task per rank, on this machine. Its rendezvous listens on every network of it."""
    ranks = placement.ranks_per_node
    run = ["horovodrun", "--gloo", "-np", str(ranks), "-H", f"localhost:{ranks}"]
    return [*run, *_task(command, placement, "horovodrun.py")]


def _task(command: Command, placement: Placement, script: str) -> Command:
    """What a launcher that knows nothing of us runs once per rank."""
    flags = [f"--master-addr={placement.master_addr}", f"--master-port={placement.master_port}"]
    return [*placement.python(script), *flags, "--", *command]


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """One row of LAUNCHERS. Its name is that of its script in scripts/, too."""

    argv: Callable[[Command, Placement], Command]
    on_each_machine: bool = False  # it starts one machine's ranks, so that several machines can be started by hand
    one_node: bool = False  # it has no way to other nodes, or none that can be relied on
    program: str | None = None  # what must be on the machine for it, beside this Python and SLURM
    version: str = ""  # a word of what `program --version` must say
    install: str = ""  # how to get it


LAUNCHERS = {
    "spawn": Launcher(argv=spawn, on_each_machine=True),
    "torchrun": Launcher(argv=torchrun, on_each_machine=True),
    "srun": Launcher(argv=srun),
    "mpirun": Launcher(argv=mpirun, program="mpirun", version="Open MPI", install="apt-get install openmpi-bin"),
    "horovodrun": Launcher(argv=horovodrun, one_node=True, program="horovodrun", install="make horovod"),
}
