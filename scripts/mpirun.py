"""One task of Open MPI's mpirun becomes one rank: its variables are turned into the launch environment."""

from __future__ import annotations

import sys

from dpscale.launching.tasks import become_rank

NAMES = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


if __name__ == "__main__":
    sys.exit(become_rank("Open MPI's mpirun", NAMES))
