"""One device, plain: no wrapper, no exchange. What everything else is compared with."""

from dpscale.strategies.base import Accumulation, Strategy

ROW = Strategy(
    summary="one device, no wrapper: the base of every speed-up",
    options=Accumulation,
    single_process=True,
    max_devices=1,
)
