"""torchrun itself, called as a function so that the first failing rank and its signal are known and not just printed."""

import os
import signal
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import static_tcp_rendezvous
from torch.distributed.run import parse_args, run

from dpscale.launching.attempt import write_exit, write_failure
from dpscale.launching.slurm import node_rank_of_this_step
from dpscale.world import meeting_store


def arguments() -> list[str]:
    """Our command line; in a job step it has no node rank yet."""
    argv = sys.argv[1:]
    given = any(argument.startswith("--node-rank=") for argument in argv)
    return argv if given else [f"--node-rank={node_rank_of_this_step()}", *argv]


def main() -> int:
    drafts = Path(os.environ["DPSCALE_DRAFTS"])
    static_tcp_rendezvous.TCPStore = meeting_store  # type: ignore[assignment, attr-defined]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # for the ranks; TERM it passes on to them, and waits
    try:
        run(parse_args(arguments()))
    except ChildFailedError as error:
        failures = error.failures
        # torchrun's own order of failures is by whole seconds: a rank that was killed comes before those it left alone,
        # and last those that torchrun itself ended with TERM
        rank = min(failures, key=lambda rank: (failures[rank].exitcode == -signal.SIGTERM, failures[rank].exitcode))
        write_exit(drafts, rank, failures[rank].exitcode)
        return 1
    except Exception as error:
        write_failure(drafts, error)  # such as a port that is taken
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
