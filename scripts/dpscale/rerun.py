"""What a reader types to measure a trial again, in the folder that results were made from."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path


def rerun_command(
    results_dir: str, data_dir: str, configfiles: Sequence[str | Path], snakefile: str = "Snakefile"
) -> str:
    """The command up to the results folder, below which the path of the trial's record follows.

    Args:
        configfiles: that go over those which the Snakefile loads by itself.
        snakefile: from the current folder.
    """
    moved = [
        f"{name}={folder}"
        for name, folder, usual in (("results_dir", results_dir, "results"), ("data_dir", data_dir, "data"))
        if folder != usual
    ]
    command = ["snakemake", "--cores", "all", "--force"]
    command += ["--snakefile", snakefile] if snakefile != "Snakefile" else []
    command += ["--configfile", *(os.path.relpath(path) for path in configfiles)] if configfiles else []
    command += ["--config", *moved] if moved else []
    return shlex.join([*command, "--", f"{results_dir}/"])
