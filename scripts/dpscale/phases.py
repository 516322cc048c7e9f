"""The phases of a training step: its time is split at four marks; each phase ends where the next begins, so they add up."""

PHASES = ("data_wait", "forward", "backward", "optimizer")
PHASE_COLUMNS = tuple(f"{phase}_s" for phase in PHASES)  # in steps.parquet
