"""Parts of a rank's time: the phases of a step, and those of its start-up."""

# A step is split at marks; each phase ends where the next begins, so they add up. Columns of steps.parquet.
PHASE_COLUMNS = ("data_wait_s", "forward_s", "backward_s", "optimizer_s")

# Up to the first step, in this order. What a trial does not need, such as torch.compile, is absent.
STARTUP_PARTS = {
    "import_s": "from the start of the launcher to the rank's own code: processes, interpreters, imports",
    "staging_s": "copying the dataset to the node's own disk",
    "rendezvous_s": "until all ranks have met",
    "loader_s": "opening the dataset, and starting the monitor",
    "check_s": "one step against plain SGD's",
    "build_s": "the model, its strategy's wrapper, the optimiser",
    "compile_s": "torch.compile",
}
LAUNCHED = "DPSCALE_LAUNCHED_NS"  # environment variable: when the launcher was started, in ns since 1970
