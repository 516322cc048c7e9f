rule tables:
    input:
        expand(TABLE_FILES, experiment=PLANS, table=TABLES),


rule figures:
    input:
        [figures_of(experiment) for experiment in PLANS],


rule advice:
    input:
        expand(ADVICE_FILES, experiment=PLANS),


rule collectives:
    input:
        expand(TABLE_FILES, experiment=PLANS, table="collectives"),
        expand(FIGURE_FILES, experiment=PLANS, figure=COLLECTIVE_FIGURES, format=FORMATS),


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
            expand(ADVICE_FILES, experiment=_experiment),
