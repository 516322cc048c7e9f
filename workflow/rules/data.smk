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
        dataset=lambda wildcards: own.dataset_of(wildcards.dataset),
        settings=dataset_settings,
        code=lambda wildcards: prepare_code(own.dataset_of(wildcards.dataset)),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    shell:
        "python {input.script:q} {params.dataset:q} --settings={params.settings:q} --out={params.folder:q} 2>&1 | tee {log:q}"
