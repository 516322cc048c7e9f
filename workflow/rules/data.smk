rule prepare_dataset:
    input:
        script=ancient(f"{SCRIPTS}/prepare.py"),
    output:
        f"{DATA}/{{dataset}}/manifest.json",
    log:
        f"{RESULTS}/logs/prepare/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        settings=dataset_settings,
        code=lambda wildcards: prepare_code(wildcards.dataset),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    shell:
        "python {input.script:q} {wildcards.dataset} --settings={params.settings:q} --out={params.folder:q} 2>&1 | tee {log:q}"
