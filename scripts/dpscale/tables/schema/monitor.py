"""Tables of what was sampled beside the ranks."""

from dpscale.tables.schema.cells import CELL, IDENTITY
from dpscale.tables.schema.trials import TIMINGS

OF_A_NODE = {
    "node": "number of the machine within the trial, from 0",
    "kind": "rank, gpu, package (of CPUs), machine (all its processes) or monitor (what sampling itself used)",
    "name": "the rank's number, the GPU's UUID, the package's name",
}
MONITOR = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    **OF_A_NODE,
    "rank": "the rank that it is, or that drives it",
    "samples": "how many fell into the timed steps; means are over these",
    "cpu_percent": "CPU time over time in the timed steps, 100 is one CPU kept busy; of ranks as the kernel counts it",
    "others_cpu_percent": "what processes other than the ranks used of the usable CPUs meanwhile",
    "utilization_percent": "GPUs: NVML's share of time in which any kernel ran, which says nothing of how full they were; ranks: CPU time over threads x time, above 100 where gloo's own threads and loader workers work beside these",
    "memory_MiB": "mean; ranks: resident (RSS), without loader workers; GPUs: taken by all processes, contexts included",
    "peak_memory_MiB": "largest resident set (VmHWM); shared pages count in every rank",
    "proportional_memory_MiB": "resident after the steps, shared pages divided among those that share them (PSS): adds up over ranks",
    "affinity": "CPUs that the rank may run on",
    "shares_cpus_with": "ranks of the same node that may run on some of them",
    "power_w": "mean, in W",
    "idle_power_w": "lowest power before the first step, while ranks were starting, in W",
    "energy_per_epoch_J": "energy of one epoch's training, in J, by the device's counter; coarse where an epoch has few samples",
    "sm_clock_MHz": "mean clock of the multiprocessors",
    "memory_clock_MHz": "mean clock of the memory",
    "temperature_C": "highest, in degrees Celsius",
    "throttle_reasons": "why clocks were held back, with the share of samples; empty if never, or if not told",
    "other_processes": "processes beside the rank's that had a context on the GPU, at most",
    "reason": "why there are no samples",
}
TIMELINE = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    **OF_A_NODE,
    "time_s": "since the first step, in s; before it ranks were starting",
    "utilization_percent": "ranks: CPU time over threads x time since the sample before, as in the table monitor; GPUs: as in the table monitor",
    "memory_MiB": MONITOR["memory_MiB"],
    "power_w": "in W; of a CPU package since the sample before",
    "sm_clock_MHz": "clock of the multiprocessors",
    "temperature_C": "in degrees Celsius",
}
TEXTS = {"kind", "name", "affinity", "shares_cpus_with", "throttle_reasons"}
