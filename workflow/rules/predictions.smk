rule collect_predictions:
    input:
        calibration=forecast_of_table,
        timings=TABLE_FILES.replace("{table}", "timings"),
        script=ancient(f"{SCRIPTS}/collect_predictions.py"),
    output:
        table_file("prediction"),
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
