rule time_collectives:
    input:
        script=ancient(f"{SCRIPTS}/launch_collectives.py"),
        network=network_of_run,
    output:
        result=f"{RESULTS}/{RUN}/{collectives.FILE}",
        times=f"{RESULTS}/{RUN}/{collectives.TIMES}",
    log:
        f"{RESULTS}/{RUN}/run.log",
    conda:
        ENVIRONMENT
    threads: lambda wildcards: run_of(wildcards).ranks_per_node * run_of(wildcards).threads_per_rank
    resources:
        trial_slot=1,
        nodes=run_asks_for("nodes"),
        mpi=run_asks_for("mpi"),
        tasks=run_asks_for("tasks"),
        tasks_per_gpu=run_asks_for("tasks_per_gpu"),
        gres=run_asks_for("gres"),
        cpus_per_task=run_asks_for("cpus_per_task"),
        runtime=run_asks_for("runtime"),
        slurm_extra=run_asks_for("slurm_extra"),
        limits=run_asks_for("limits"),
    params:
        run=lambda wildcards: shlex.join(run_of(wildcards).deciding_args()),
        code=lambda wildcards: collectives_code(run_of(wildcards).launcher),
        folder=lambda wildcards, output: os.path.dirname(output.result),
    shell:
        "python {input.script:q} --folder={params.folder:q} --log={log:q} --end-with-parent {params.run} {resources.limits}"
