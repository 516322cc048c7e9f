rule prepare_dataset:
    input:
        script=ancient(f"{SCRIPTS}/prepare.py"),
    output:
        f"{DATA}/{{dataset}}/manifest.json",
    log:
        f"{RESULTS}/logs/prepare/{{dataset}}.log",
    params:
        settings=lambda wildcards: dataset_settings(wildcards.dataset),
        code=lambda wildcards: prepare_code(wildcards.dataset),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    resources:
        trial_slot=1,
    shell:
        "{PYTHON} {input.script} {wildcards.dataset} --settings={params.settings:q} --out={params.folder} > {log} 2>&1"


def dataset_settings(dataset):
    """The config's settings of a dataset, as JSON."""
    settings = CONFIG.datasets.get(dataset)
    return json.dumps({} if settings is None else settings.model_dump(exclude_none=True))
