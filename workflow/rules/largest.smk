rule largest_batch:
    input:
        script=ancient(f"{SCRIPTS}/largest_batch.py"),
        data=data_of_trial(),
    output:
        f"{RESULTS}/{SEARCH}/{largest.FILE}",
    log:
        f"{RESULTS}/{SEARCH}/search.log",
    conda:
        ENVIRONMENT
    threads: threads_of_trial
    resources:
        trial_slot=1,
        nodes=asks_for("nodes"),
        mpi=asks_for("mpi"),
        tasks=asks_for("tasks"),
        tasks_per_gpu=asks_for("tasks_per_gpu"),
        gres=asks_for("gres"),
        cpus_per_task=asks_for("cpus_per_task"),
        runtime=runtime_of_search,
        slurm_extra=asks_for("slurm_extra"),
        limits=asks_for("limits"),
    params:
        search=arguments_of_search,
        code=code_of_search,
        folder=f"{RESULTS}/{SEARCH}",
    shell:
        "python {input.script:q} --folder={params.folder:q} --log={log:q} --end-with-parent {params.search} {resources.limits}"
