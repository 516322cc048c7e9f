"""What larger topologies will take, before they run: trials on more devices than a prediction is calibrated from wait for it."""


rule predict:
    input:
        forecast_inputs,
        script=ancient(f"{SCRIPTS}/predict.py"),
    output:
        # the ledger beside it is no output: Snakemake would delete it first
        f"{RESULTS}/{{experiment}}/predictions/{calibration_file.FILE}",
    log:
        f"{RESULTS}/{{experiment}}/logs/predict.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        config=plan_of,
        code=digest_of(("predict.py",)),
        results=lambda wildcards, output: str(Path(output[0]).parents[2]),
        data=DATA,
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    shell:
        "python {input.script:q} {wildcards.experiment} --config={params.config:q} --results={params.results:q}"
        " --data={params.data:q} --out={params.folder:q} 2>&1 | tee {log:q}"


rule collect_predictions:
    input:
        calibration=forecast_of_table,
        timings=TABLE_FILES.replace("{table}", "timings"),
        script=ancient(f"{SCRIPTS}/collect_predictions.py"),
    output:
        TABLE_FILES.replace("{table}", "prediction"),
    log:
        f"{RESULTS}/{{experiment}}/logs/collect_predictions.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        code=digest_of(("collect_predictions.py",)),
        predictions=f"{RESULTS}/{{experiment}}/predictions",
        tables=lambda wildcards, input: os.path.dirname(input.timings),
    shell:
        "python {input.script:q} {wildcards.experiment} --predictions={params.predictions:q} --tables={params.tables:q}"
        " --out={output:q} 2>&1 | tee {log:q}"
