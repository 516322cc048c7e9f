rule asked_of_trial:
    input:
        network=network_of_trial(),
    output:
        f"{RESULTS}/{TRIAL}/{ASKED}",
    log:
        f"{RESULTS}/{TRIAL}/asked.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        trial=arguments_of_trial,
        code=code_of_trial(),
    shell:
        "printf '%s\\n' {params.trial:q} {params.code:q} 2> {log:q} > {output:q}"


rule trial:
    input:
        data=data_of_trial(),
        largest=search_of_trial(),
        network=network_of_trial(),
        asked=what_is_asked_of_trial(),
        forecast=ancient(forecast_of_trial()),  # made anew it measures nothing again
    output:
        record=f"{RESULTS}/{TRIAL}/{RECORD}",
        steps=f"{RESULTS}/{TRIAL}/{STEPS}",
        monitor=f"{RESULTS}/{TRIAL}/{MONITOR}",
    log:
        f"{RESULTS}/{TRIAL}/trial.log",
    priority: priority_of_trial
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
        runtime=asks_for("runtime"),
        slurm_extra=asks_for("slurm_extra"),
        limits=asks_for("limits"),
    params:
        script=f"{SCRIPTS}/launch.py",  # no input, for Snakemake takes 1 ms to find that no rule makes it
        trial=arguments_of_trial,
        code=code_of_trial(),
    # exec: a shell would end at SLURM's SIGTERM, and with it the job step, before the ranks have saved themselves. But a shell
    # that somebody types into stays, whoever pastes the printed line into it.
    shell:
        '$([[ $- == *i* ]] || echo exec) python {params.script:q} --folder="$(dirname {output.record:q})" --log={log:q} --end-with-parent'
        " {params.trial} {resources.limits}"
