"""What tests change inside the processes of a real launch: faults that it must survive, and eyes on what it does.

A change that concerns one rank takes its number from DPSCALE_TEST_RANK; what it sees goes to files in DPSCALE_TEST_OUT.
torch and dpscale are imported inside: see sitecustomize.
"""

from changes import exchanging, failing, seen, slow, stopped, wrong  # noqa: F401 - each registers its own
from changes.registering import CHANGES

__all__ = ["CHANGES"]
