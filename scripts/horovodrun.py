"""One task of horovodrun becomes one rank: its variables are turned into the launch environment."""

from __future__ import annotations

import sys

from dpscale.launching.tasks import become_rank

NAMES = {
    "RANK": "HOROVOD_RANK",
    "WORLD_SIZE": "HOROVOD_SIZE",
    "LOCAL_RANK": "HOROVOD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "HOROVOD_LOCAL_SIZE",
    "GROUP_RANK": "HOROVOD_CROSS_RANK",
}


if __name__ == "__main__":
    sys.exit(become_rank("Horovod's horovodrun", NAMES))
