"""The plan, where files lie, and what the rules of every stage share."""

import json
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir, "scripts")))

from dpscale.code import digest_of, prepare_code, trial_code
from dpscale.config import load_config
from dpscale.errors import ConfigError
from dpscale.figures import FIGURES, FORMATS
from dpscale.plan import plan_trials
from dpscale.record import RECORD, STEPS
from dpscale.tables import TABLES

PYTHON = sys.executable
SCRIPTS = os.path.relpath(Path(workflow.basedir, "scripts"))
CONFIG_SOURCE = ", ".join(os.path.relpath(path) for path in workflow.configfiles)

try:
    CONFIG = load_config(config, CONFIG_SOURCE)
    PLANS = plan_trials(CONFIG, CONFIG_SOURCE)
except ConfigError as error:
    raise WorkflowError(str(error))

RESULTS, DATA = CONFIG.results_dir, CONFIG.data_dir
TRIALS = {str(trial.folder): trial for trials in PLANS.values() for trial in trials}
TRIAL = "{experiment}/trials/{strategy}/{launcher}/{topology}/r{repeat}"
TABLE_FILES = f"{RESULTS}/{{experiment}}/tables/{{table}}.csv"
FIGURE_FILES = f"{RESULTS}/{{experiment}}/figures/{{figure}}.{{format}}"

# A timing shares the machine with nothing of ours: one slot, which every rule takes, unless a profile grants more.
if "trial_slot" not in workflow.global_resources:
    workflow.global_resources["trial_slot"] = 1


def one_of(names):
    return "|".join(sorted({str(name) for name in names}))


wildcard_constraints:
    experiment=one_of(PLANS),
    strategy=one_of(trial.strategy for trial in TRIALS.values()),
    launcher=one_of(trial.launcher for trial in TRIALS.values()),
    topology=one_of(trial.topology for trial in TRIALS.values()),
    repeat=r"\d+",
    figure=one_of(FIGURES),
