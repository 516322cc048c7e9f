"""Runs that time collectives: their plan, and what their rules share."""

from dataclasses import asdict

RUNS = {str(run.folder): run for runs in COLLECTIVES.values() for run in runs}
RUN = "{experiment}/collectives/{launcher}/{topology}"
ASKED_FOR_RUNS = {folder: slurm.resources(run, CONFIG.cluster) for folder, run in RUNS.items()}
COLLECTIVE_FIGURES = [name for name, row in FIGURES.items() if "collectives" in row.tables]


def run_of(wildcards):
    """The planned run of a path; Snakemake shows the error beside the path that was asked for."""
    folder = RUN.format(**wildcards)
    if folder not in RUNS:
        raise WorkflowError(f"{folder} is not planned: see collectives of that experiment")
    return RUNS[folder]


def run_asks_for(resource):
    """A resource of a run's SLURM job, as a function of its wildcards and attempt."""

    def asked_for(wildcards, attempt):
        value = ASKED_FOR_RUNS[str(run_of(wildcards).folder)][resource]
        return value * attempt if resource in slurm.GROW_WITH_ATTEMPTS else value

    return asked_for


def network_of_run(wildcards):
    """The file of a run's emulated network, as an input, where it has one."""
    network = run_of(wildcards).network
    return [] if network is None else [network]


def runs_of(wildcards):
    """The runs of an experiment, as JSON."""
    return json.dumps([asdict(run) for run in COLLECTIVES[wildcards.experiment]])


def results_of(wildcards):
    return results_of_runs(wildcards.experiment)


def results_of_runs(experiment):
    """The results that the table is made from; with partial=true none is asked for: what is there is taken."""
    return [] if CONFIG.partial else [f"{RESULTS}/{run.folder}/{collectives.FILE}" for run in COLLECTIVES[experiment]]


def results_that_exist(wildcards):
    """With partial=true: which results there are, and when they were written, so that the table follows them."""
    if not CONFIG.partial:
        return None
    paths = [Path(RESULTS, run.folder, collectives.FILE) for run in COLLECTIVES[wildcards.experiment]]
    return {str(path): path.stat().st_mtime_ns for path in paths if path.exists()}


def refuse_missing_and_damaged_records():
    """Where no rule makes a record, Snakemake would take the tables that are there for sources, and not miss it; and of one that
    is cut whatever reads it would say how to measure it again."""
    wanted = [f"{RESULTS}/{trial.folder}/{RECORD}" for trials in PLANS.values() for trial in trials]
    for experiment, runs in COLLECTIVES.items():
        if os.path.exists(f"{RESULTS}/{experiment}/tables/collectives.csv"):
            wanted += [f"{RESULTS}/{run.folder}/{collectives.FILE}" for run in runs]
        if os.path.exists(f"{RESULTS}/{experiment}/tables/prediction.csv"):
            wanted += forecast_of(experiment)
    wrong = [f"missing: {path}" for path in wanted if not os.path.exists(path)]
    if not wrong and workflow.is_main_process:  # every job would read all records again
        wrong = [said for path in wanted if (said := what_is_wrong(Path(path), Path(RESULTS)))]
    if wrong:
        more = f", and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise WorkflowError(
            f"from_records = True: {', '.join(wrong[:10])}{more}; unpack the bundle anew, or set it to false"
        )


if CONFIG.from_records:
    refuse_missing_and_damaged_records()
