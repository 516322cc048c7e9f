"""The plan, where files lie, and what the rules of every stage share."""

import inspect
import json
import os
import shlex
from pathlib import Path

from snakemake.exceptions import WorkflowError

from dpscale import largest, own, references, snapshots
from dpscale.forecasting import calibration_file
from dpscale.launching import retries
from dpscale.launching import slurm
from dpscale.advice.together import READS
from dpscale.code import collectives_code, digest_of, flops_code, prepare_code, search_code, trial_code
from dpscale.collectives import run as collectives
from dpscale.planning.collectives import plan_collectives
from dpscale.config import load_config
from dpscale.damage import what_is_wrong
from dpscale.disk import DiskIsFull
from dpscale.environment import prefer_this_python
from dpscale.errors import UserError
from dpscale.explorer.page import TABLES as PAGE_TABLES, digest_of_parts
from dpscale.figures import FIGURES, FORMATS, PRINTED
from dpscale.forecasting.forecasts import needs_forecast, plan_forecasts
from dpscale.planning.order import measuring_order
from dpscale.forecasting.ledger import LEDGER, refuse_lost
from dpscale.lock import say_who_may_hold
from dpscale.planning.plan import find_own_code, plan_trials
from dpscale.record import MONITOR, RECORD, STEPS
from dpscale.rerun import rerun_command
from dpscale.tables.schema import MADE_APART, OF_TWO_SETS, TABLES
from dpscale.trial import LARGEST
from dpscale.workloads.datasets import DATASETS, is_fetched, row_name
from dpscale.workloads.datasets.base import RECEIPT
from dpscale.workloads.datasets.settings import DatasetConfig

CONFIG_SOURCE = ", ".join(os.path.relpath(path) for path in workflow.configfiles)

# Models and datasets of one's own lie beside a configuration or in the current folder.
_beside = [os.getcwd(), *(os.path.dirname(os.path.abspath(path)) for path in workflow.configfiles)]
os.environ[own.FOLDERS] = os.pathsep.join(dict.fromkeys(reversed(_beside)))

try:
    CONFIG = load_config(config, CONFIG_SOURCE)
    PLANS = plan_trials(CONFIG, CONFIG_SOURCE)
    COLLECTIVES = plan_collectives(CONFIG, CONFIG_SOURCE)
    FORECASTS = plan_forecasts(CONFIG, PLANS, COLLECTIVES, CONFIG_SOURCE)
    if not CONFIG.from_records:
        find_own_code(CONFIG, CONFIG_SOURCE)
except UserError as error:
    raise WorkflowError(str(error))

os.environ[slurm.SETTINGS] = CONFIG.cluster.model_dump_json()
if CONFIG.cluster.prelude and not CONFIG.from_records:  # of the site that measured
    shell.prefix(f"{CONFIG.cluster.prelude}; ")

# `python` in a rule is Snakemake's own, or that of the rule's conda environment or container, which come before it.
prefer_this_python()

SCRIPTS = os.path.relpath(Path(workflow.basedir, "scripts"))
ENVIRONMENT = str(Path(workflow.basedir, "envs", "dpscale.yaml"))
RESULTS, DATA = CONFIG.results_dir, CONFIG.data_dir
DOWNLOADS = f"{DATA}/downloads"
SWEEPS = [trial for forecasts in FORECASTS.values() for forecast in forecasts for trial in forecast.sweep]
TRIALS = {str(trial.folder): trial for trial in [*(trial for trials in PLANS.values() for trial in trials), *SWEEPS]}
LAUNCHED = [*TRIALS.values(), *(run for runs in COLLECTIVES.values() for run in runs)]
TRIAL = "{experiment}/trials/{strategy}/{launcher}/{topology}/r{repeat}"
ASKED = "asked.txt"  # beside the record of a trial that is predicted
SEARCH = "{experiment}/largest/{strategy}/{launcher}/{topology}"
TABLE_FILES = f"{RESULTS}/{{experiment}}/tables/{{table}}.csv"
METHODS_TABLES = ("summary", "timings", "comparisons", "causes", "monitor", "collectives", "prediction", "records")
NOT_IN_REPORT = {"losses", "timeline"}  # a row for each step or sample, which would make the report's one file large
PAGES = ("advice.html", "explore.html", "methods.html")  # of each experiment
FLOPS_FILES = f"{RESULTS}/{{experiment}}/flops.json"
FIGURE_FILES = f"{RESULTS}/{{experiment}}/figures/{{figure}}.{{format}}"
PRINT_FILES = f"{RESULTS}/{{experiment}}/figures/print/{{figure}}.{{ending}}"
COMPARED = f"{RESULTS}/comparisons/{{before}}/{{after}}"

# A timing shares the machine with nothing of ours: one slot, which every rule takes, unless a profile grants more.
if "trial_slot" not in workflow.global_resources:
    workflow.global_resources["trial_slot"] = 1


if workflow.is_main_process:  # not in the jobs that it starts
    try:
        say_who_may_hold()
        for _experiment in PLANS:  # no rule makes a ledger, so none would miss it
            refuse_lost(Path(RESULTS, _experiment, "predictions"))
    except (DiskIsFull, UserError) as error:
        raise WorkflowError(str(error))
else:
    retries.leave_signals_to_ranks()


onstart:
    if workflow.is_main_process:
        begin_with_one_owner_of_retries()


def begin_with_one_owner_of_retries():
    settings = workflow.executor_settings
    try:
        retries.refuse_two_owners(settings, max(rule.restart_times for rule in workflow.rules))
    except UserError as error:
        raise WorkflowError(str(error))
    if workflow.executor_plugin.name == "slurm":
        retries.end_with_preempted_jobs(settings)


def one_of(names):
    """A pattern for a wildcard that takes these names only."""
    return "|".join(sorted({str(name) for name in names}))


wildcard_constraints:
    experiment=one_of(PLANS),
    strategy=one_of(trial.strategy for trial in TRIALS.values()),
    launcher=one_of(launched.launcher for launched in LAUNCHED),
    topology=one_of(launched.topology for launched in LAUNCHED),
    repeat=r"\d+",


def settings_of(dataset):
    return CONFIG.datasets.get(dataset, DatasetConfig())


def code_of_preparing(wildcards):
    """The digest of the code that prepares a dataset, as a param."""
    dataset = own.dataset_of(wildcards.dataset)
    return prepare_code(row_name(dataset, settings_of(dataset)))


def dataset_settings(wildcards):
    """The config's settings of a dataset, as JSON; of one that is fetched, with the folder that it is fetched into."""
    dataset = own.dataset_of(wildcards.dataset)
    settings = settings_of(dataset).model_dump(exclude_none=True, exclude={"mirrors"})
    fetched = {"source": f"{DOWNLOADS}/{dataset}"} if is_fetched(dataset, settings_of(dataset)) else {}
    return json.dumps(settings | fetched)


def fetch_settings(wildcards):
    """Where to fetch a dataset from, as JSON."""
    return settings_of(wildcards.dataset).model_dump_json(include={"mirrors"}, exclude_none=True)


def receipt_of(wildcards):
    """What says that a dataset's files are there, where they are fetched."""
    dataset = own.dataset_of(wildcards.dataset)
    return [f"{DOWNLOADS}/{dataset}/{RECEIPT}"] if is_fetched(dataset, settings_of(dataset)) else []


def manifest_of(dataset):
    return f"{DATA}/{own.folder_name(dataset)}/manifest.json"


def folder_of(wildcards):
    """A trial's folder, below results_dir; of a cell it is that of its first."""
    return TRIAL.format(**{"repeat": 0, **wildcards})


def trial_of(wildcards):
    """The planned trial of a path; Snakemake shows the error beside the path that was asked for."""
    folder = folder_of(wildcards)
    if folder not in TRIALS:
        raise WorkflowError(
            f"{folder} is not planned: the strategy does not apply to that launcher, topology or repeat"
        )
    return TRIALS[folder]


def inspected(function):
    """The function, with its signature at hand: Snakemake asks for it four times per job, and each takes 10 us."""
    function.__signature__ = inspect.signature(function)
    return function


ASKED_FOR = {folder: slurm.resources(trial, CONFIG.cluster) for folder, trial in TRIALS.items()}


def asks_for(resource):
    """A resource of a trial's SLURM job, as a function of its wildcards and attempt; elsewhere these ask for nothing."""
    if resource in slurm.GROW_WITH_ATTEMPTS:
        return inspected(lambda wildcards, attempt: attempt * ASKED_FOR[folder_of(wildcards)][resource])
    return by_trial({folder: asked_for[resource] for folder, asked_for in ASKED_FOR.items()})


def by_trial(values):
    """A function of wildcards that takes a trial's value of these, or the one value that all have: Snakemake takes 0.1 ms
    for a function, and calls it for each job."""
    different = set(values.values())
    return different.pop() if len(different) == 1 else inspected(lambda wildcards: values[folder_of(wildcards)])


PRIORITIES = {str(trial.folder): -place for place, trial in enumerate(measuring_order(TRIALS.values()))}


@inspected
def priority_of_trial(wildcards):
    return PRIORITIES[folder_of(wildcards)]


@inspected
def runtime_of_search(wildcards, attempt):
    return attempt * slurm.minutes(trial_of(wildcards).search_timeout_s)


@inspected
def threads_of_trial(wildcards):
    trial = trial_of(wildcards)
    return trial.ranks_per_node * trial.threads_per_rank


def search_of_trial():
    """The search for a trial's batch, as an input, where that is not planned."""
    return by_trial({folder: searches(trial) for folder, trial in TRIALS.items()})


def searches(trial):
    """Files that hold a trial's batch: none, or that of its search."""
    return (f"{RESULTS}/{trial.search_folder}/{largest.FILE}",) if trial.scaling == LARGEST else ()


def forecast_of(experiment):
    """What says that an experiment's predictions are written down, where any are asked for."""
    if not FORECASTS[experiment] or CONFIG.partial:
        return []
    folder = f"{RESULTS}/{experiment}/predictions"
    return [f"{folder}/{calibration_file.FILE}", *([f"{folder}/{LEDGER}"] if CONFIG.from_records else [])]


def waits_for_forecast(trial):
    return bool(forecast_of(trial.experiment)) and needs_forecast(CONFIG.experiments[trial.experiment], trial)


def forecast_of_trial():
    """A prediction is written before what it predicts runs: an input of trials on more devices than it is calibrated from."""
    return by_trial(
        {
            folder: tuple(forecast_of(trial.experiment)) if waits_for_forecast(trial) else ()
            for folder, trial in TRIALS.items()
        }
    )


def what_is_asked_of_trial():
    """The file of what decides such a trial, as an input. Snakemake looks for changes of params in no job behind one that is to
    run, though its only tie to that one be ancient: so those of a predicted trial are seen here, as this is behind none.
    """
    return by_trial(
        {
            folder: (f"{RESULTS}/{trial.folder}/{ASKED}",) if waits_for_forecast(trial) else ()
            for folder, trial in TRIALS.items()
        }
    )


def forecast_of_table(wildcards):
    return forecast_of(wildcards.experiment)


def forecast_inputs(wildcards):
    """All that an experiment's predictions are calibrated from, and the datasets, whose size decides the steps of an epoch."""
    forecasts = FORECASTS[wildcards.experiment]
    trials = [trial for forecast in forecasts for trial in [*forecast.trials, *forecast.sweep]]
    runs = [run for forecast in forecasts for run in forecast.exchanges]
    files = [f"{RESULTS}/{trial.folder}/{RECORD}" for trial in trials]
    files += [f"{RESULTS}/{run.folder}/{collectives.FILE}" for run in runs]
    return list(dict.fromkeys([*files, *(manifest_of(trial.dataset) for trial in trials)]))


@inspected
def arguments_of_trial(wildcards):
    """Quoted for a shell here: Snakemake would format and quote each argument by itself, three times."""
    trial = trial_of(wildcards)
    search = [f"--largest={path}" for path in searches(trial)]
    return shlex.join([f"--data={os.path.dirname(manifest_of(trial.dataset))}", *search, *trial.deciding_args()])


@inspected
def arguments_of_search(wildcards):
    probe = largest.probe_of(trial_of(wildcards))
    return shlex.join([f"--data={os.path.dirname(manifest_of(probe.dataset))}", *probe.deciding_args()])


def data_of_trial():
    """The prepared dataset of a trial, as an input."""
    return by_trial({folder: manifest_of(trial.dataset) for folder, trial in TRIALS.items()})


def network_of_trial():
    """The file of a trial's emulated network, as an input, where it has one."""
    return by_trial(
        {folder: (trial.options["network"],) if "network" in trial.options else () for folder, trial in TRIALS.items()}
    )


def code_of_trial():
    """The digest of all code that a trial runs, as a param."""
    return by_trial({folder: trial_code(trial.base, trial.model, trial.launcher) for folder, trial in TRIALS.items()})


@inspected
def code_of_search(wildcards):
    trial = trial_of(wildcards)
    return search_code(trial.base, trial.model, trial.launcher)


def table_file(table):
    """The file of a table as an output, in the report too where that has room for it."""
    path = TABLE_FILES.replace("{table}", table)
    if table in NOT_IN_REPORT:
        return path
    return report(
        path, caption=f"../report/tables/{table}.rst", category="{experiment} tables", labels={"table": table}
    )


def pages_of(experiment):
    """What is there to read of an experiment, beside its figures."""
    return [f"{RESULTS}/{experiment}/{page}" for page in PAGES]


def data_of_experiment(wildcards):
    """What is said of an experiment's prepared dataset; with partial=true only if it is there."""
    manifest = manifest_of(PLANS[wildcards.experiment][0].dataset)
    return [] if CONFIG.partial and not os.path.exists(manifest) else [manifest]


def figures_of(experiment):
    """The files of all figures that an experiment is to have; another one of it is made if it is asked for by name."""
    return expand(FIGURE_FILES, experiment=experiment, figure=figure_names_of(experiment), format=FORMATS)


def printed_figures_of(experiment):
    """The same for print."""
    return expand(PRINT_FILES, experiment=experiment, figure=figure_names_of(experiment), ending=PRINTED)


def figure_names_of(experiment):
    return [name for name, row in FIGURES.items() if row.is_for(CONFIG.experiments[experiment])]


def tables_of_figure(figure):
    """The tables that a figure reads, and the one that it names as its origin."""
    row = FIGURES[figure]
    return expand(TABLE_FILES, table={**dict.fromkeys(row.tables), row.source: None}, allow_missing=True)


def command_of_trials(wildcards):
    """What a reader types to measure a trial of an experiment again, up to the path below the experiment's folder; in a
    bundle, which measures nothing, what was typed where it was measured."""
    if CONFIG.from_records and CONFIG.measured_by:
        return f"{CONFIG.measured_by}{wildcards.experiment}/"
    loaded_anyway = {os.path.realpath(path) for path in ("config.yaml", Path(workflow.basedir, "config.yaml"), MORE)}
    given = [path for path in workflow.config_settings.configfiles if os.path.realpath(path) not in loaded_anyway]
    command = rerun_command(RESULTS, DATA, given, os.path.relpath(workflow.main_snakefile))
    return f"{command}{wildcards.experiment}/"


def flops_of(wildcards):
    """The file of a model's operations, where there may be a peak to hold them against; with partial=true if it is there."""
    wanted = CONFIG.experiments[wildcards.experiment].device == "cuda" or CONFIG.advice.peak_TFLOP_per_s
    path = FLOPS_FILES.format(experiment=wildcards.experiment)
    return [path] if wanted and (not CONFIG.partial or os.path.exists(path)) else []


def workload_of(wildcards):
    return CONFIG.experiments[wildcards.experiment].workload


def records_of(wildcards):
    """The records that tables are made from; with partial=true none is asked for: what is there is taken."""
    if CONFIG.partial:
        return []
    return [f"{RESULTS}/{trial.folder}/{RECORD}" for trial in PLANS[wildcards.experiment]]


def records_that_exist(wildcards):
    """With partial=true: which records there are, and when they were written, so that tables follow them."""
    if not CONFIG.partial:
        return None
    paths = [Path(RESULTS, trial.folder, RECORD) for trial in PLANS[wildcards.experiment]]
    return {str(path): path.stat().st_mtime_ns for path in paths if path.exists()}


def measured_of(experiment):
    """All results behind an experiment's tables. Targets ask for them too: of a file from which others are made that are
    there, Snakemake does not see that it is gone."""
    if CONFIG.partial:
        return []
    sweeps = [trial for forecast in FORECASTS[experiment] for trial in forecast.sweep]
    records = [f"{RESULTS}/{trial.folder}/{RECORD}" for trial in [*PLANS[experiment], *sweeps]]
    return list(dict.fromkeys([*records, *results_of_runs(experiment), *forecast_of(experiment)]))


def published_of(wildcards):
    """The files of published numbers, where an experiment has some laid over its own."""
    return [str(path) for path in references.files()] if CONFIG.experiments[wildcards.experiment].references else []


def plan_of(wildcards):
    """What decides an experiment's plan: a change elsewhere in the config re-makes no table."""
    return CONFIG.plan_json([wildcards.experiment])
