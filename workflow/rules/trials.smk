rule trial:
    input:
        script=ancient(f"{SCRIPTS}/launch.py"),
        data=lambda wildcards: f"{DATA}/{trial_of(wildcards).dataset}/manifest.json",
    output:
        record=f"{RESULTS}/{TRIAL}/{RECORD}",
        steps=f"{RESULTS}/{TRIAL}/{STEPS}",
    log:
        f"{RESULTS}/{TRIAL}/trial.log",
    # repeat by repeat, not cell by cell: a machine that drifts touches all cells alike
    priority: lambda wildcards: -int(wildcards.repeat)
    conda:
        ENVIRONMENT
    threads: lambda wildcards: trial_of(wildcards).ranks_per_node * trial_of(wildcards).threads_per_rank
    resources:
        trial_slot=1,
        nodes=asks_for("nodes"),
        mpi=asks_for("mpi"),
        tasks=asks_for("tasks"),
        tasks_per_gpu=asks_for("tasks_per_gpu"),
        gres=asks_for("gres"),
        cpus_per_task=asks_for("cpus_per_task"),
        runtime=asks_for("runtime"),
        slurm_extra=asks_for("slurm_extra"),
    params:
        trial=lambda wildcards: trial_of(wildcards).to_args(),
        code=code_of_trial,
        data=lambda wildcards, input: os.path.dirname(input.data),
        folder=lambda wildcards, output: os.path.dirname(output.record),
    shell:
        "python {input.script:q} --data={params.data:q} --folder={params.folder:q} --log={log:q} --end-with-parent"
        " {params.trial:q}"
