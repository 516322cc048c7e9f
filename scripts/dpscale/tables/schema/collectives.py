"""The table of collectives, whose rows are no trials."""

from dpscale.tables.schema.cells import IDENTITY, RUN, STATUS

COLLECTIVES = {
    **{name: IDENTITY[name] for name in RUN},
    "world_size": "ranks that take part",
    "backend": "of torch.distributed",
    "operation": "which collective",
    "dtype": "of the array that is exchanged",
    "size_bytes": "S, in bytes: of the whole array, as nccl-tests counts it",
    "status": STATUS["status"],
    "reason": STATUS["reason"],
    "time_s": "median over blocks of the slowest rank's time of one call, in s",
    "time_s_low": "lower end of time_s",
    "time_s_high": "upper end of time_s",
    "time_p99_s": "99th percentile of the same, in s; empty with fewer than 100 blocks",
    "algbw_GB_per_s": "algorithm bandwidth, S / time_s, in decimal GB/s",
    "algbw_GB_per_s_low": "lower end of algbw_GB_per_s",
    "algbw_GB_per_s_high": "upper end of algbw_GB_per_s",
    "busbw_GB_per_s": "bus bandwidth: algbw_GB_per_s times nccl-tests' factor of the operation",
    "busbw_GB_per_s_low": "lower end of busbw_GB_per_s",
    "busbw_GB_per_s_high": "upper end of busbw_GB_per_s",
    "spread": "what low and high are: a 95 % interval from 6 blocks on, else the range",
    "copy_GB_per_s": "what the slowest rank copies within its device's memory per second while all do, in decimal GB/s",
    "blocks": "values: each is the time of a block of calls over their number",
    "calls_per_block": "calls of one block",
    "checked": "results whose values were compared with what they must be, over all ranks",
    "started_at": "UTC time of the launch",
    "warnings": "what to know before trusting this row",
}
TEXTS = {"backend", "operation", "dtype"}
