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
