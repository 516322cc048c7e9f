rule fetch_dataset:
    input:
        script=ancient(f"{SCRIPTS}/fetch.py"),
    output:
        # the files beside it are no outputs: Snakemake would delete them first, those put there by hand too
        f"{DOWNLOADS}/{{dataset}}/{RECEIPT}",
    log:
        f"{RESULTS}/logs/fetch/{{dataset}}.log",
    localrule: True  # nodes of a cluster often reach no network
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
        settings=fetch_settings,  # no param, nor is the code one: what the files must be is all that decides
    params:
        sha256=lambda wildcards: DATASETS[wildcards.dataset].published.sha256,
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    shell:
        "python {input.script:q} {wildcards.dataset:q} --settings={resources.settings:q} --out={params.folder:q} 2>&1 | tee {log:q}"


rule prepare_dataset:
    input:
        script=ancient(f"{SCRIPTS}/prepare.py"),
        fetched=ancient(receipt_of),
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
        code=code_of_preparing,
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    shell:
        "python {input.script:q} {params.dataset:q} --settings={params.settings:q} --out={params.folder:q} 2>&1 | tee {log:q}"
