"""The phases of a training step: its time is split at four marks; each phase ends where the next begins, so they add up."""

PHASE_COLUMNS = ("data_wait_s", "forward_s", "backward_s", "optimizer_s")  # of steps.parquet
