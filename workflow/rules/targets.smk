rule tables:
    input:
        expand(TABLE_FILES, experiment=PLANS, table=TABLES),
        [measured_of(experiment) for experiment in PLANS],


rule figures:
    input:
        [figures_of(experiment) for experiment in PLANS],
        [measured_of(experiment) for experiment in PLANS],


rule pages:
    input:
        [pages_of(experiment) for experiment in PLANS],


rule advice:
    input:
        expand(f"{RESULTS}/{{experiment}}/advice.html", experiment=PLANS),


rule collectives:
    input:
        expand(TABLE_FILES, experiment=PLANS, table="collectives"),
        expand(FIGURE_FILES, experiment=PLANS, figure=COLLECTIVE_FIGURES, format=FORMATS),
        [results_of_runs(experiment) for experiment in PLANS],


rule prepare:
    input:
        [manifest_of(dataset) for dataset in sorted({trial.dataset for trial in TRIALS.values()})],


rule plan:
    input:
        script=ancient(f"{SCRIPTS}/plan.py"),
    log:
        f"{RESULTS}/logs/plan.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        config=CONFIG.plan_json(PLANS),
    shell:
        "python {input.script:q} --config={params.config:q} 2>&1 | tee {log:q}"


for _experiment in PLANS:

    rule:
        name:
            _experiment
        input:
            expand(TABLE_FILES, experiment=_experiment, table=TABLES),
            figures_of(_experiment),
            measured_of(_experiment),
            pages_of(_experiment),
