def trial_of(wildcards):
    """The planned trial of a path; Snakemake shows the error beside the path that was asked for."""
    folder = TRIAL.format(**wildcards)
    if folder not in TRIALS:
        raise WorkflowError(f"{folder} is not planned: this strategy does not apply to that launcher, topology or repeat")
    return TRIALS[folder]


def code_of_trial(wildcards):
    trial = trial_of(wildcards)
    return trial_code(trial.base, trial.model, trial.launcher)


# A large record would be copied into Snakemake's memory and command line: rules pass folders, never lists of records.
rule trial:
    input:
        script=ancient(f"{SCRIPTS}/launch.py"),
        data=lambda wildcards: f"{DATA}/{trial_of(wildcards).dataset}/manifest.json",
    output:
        record=f"{RESULTS}/{TRIAL}/{RECORD}",
        steps=f"{RESULTS}/{TRIAL}/{STEPS}",
    log:
        f"{RESULTS}/{TRIAL}/trial.log",
    params:
        trial=lambda wildcards: trial_of(wildcards).to_args(),
        code=code_of_trial,
        data=lambda wildcards, input: os.path.dirname(input.data),
        folder=lambda wildcards, output: os.path.dirname(output.record),
    # repeat by repeat, not cell by cell: a machine that drifts touches all cells alike
    priority: lambda wildcards: -int(wildcards.repeat)
    threads: lambda wildcards: trial_of(wildcards).ranks_per_node * trial_of(wildcards).threads_per_rank
    resources:
        trial_slot=1,
    shell:
        "{PYTHON} {input.script} --data={params.data} --folder={params.folder} --log={log} {params.trial:q}"
