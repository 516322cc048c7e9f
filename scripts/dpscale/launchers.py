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
    node_rank: int
    ranks_per_node: int
    master_addr: str
    master_port: int
    run_id: str

    def flags(self) -> list[str]:
        return [
            f"--nnodes={self.nodes}",
            f"--node-rank={self.node_rank}",
            f"--nproc-per-node={self.ranks_per_node}",
            f"--master-addr={self.master_addr}",
            f"--master-port={self.master_port}",
        ]


def spawn(command: Command, placement: Placement) -> Command:
    """torch.multiprocessing: rank = node_rank x ranks_per_node + local_rank."""
    return [sys.executable, str(SCRIPTS / "spawn.py"), *placement.flags(), "--", *command]


def torchrun(command: Command, placement: Placement) -> Command:
    """torchrun with a static rendezvous, so that rank 0 is on node 0; no restarts: a trial runs once or fails."""
    return [
        sys.executable,
        str(SCRIPTS / "torchrun.py"),
        *placement.flags(),
        f"--rdzv-id={placement.run_id}",
        "--max-restarts=0",
        *command,
    ]


LAUNCHERS: dict[str, Callable[[Command, Placement], Command]] = {"spawn": spawn, "torchrun": torchrun}
