# What a model asks for does not depend on any trial, so it is counted once, on no device.
rule count_flops:
    input:
        data=lambda wildcards: manifest_of(workload_of(wildcards).dataset),
        script=ancient(f"{SCRIPTS}/count_flops.py"),
    output:
        FLOPS_FILES,
    log:
        f"{RESULTS}/{{experiment}}/logs/count_flops.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        model=lambda wildcards: workload_of(wildcards).model,
        options=lambda wildcards: json.dumps(workload_of(wildcards).model_options),
        code=lambda wildcards: flops_code(workload_of(wildcards).model),
        data=lambda wildcards, input: os.path.dirname(input.data),
    shell:
        "python {input.script:q} {params.model:q} --options={params.options:q} --data={params.data:q} --out={output:q}"
        " 2>&1 | tee {log:q}"


rule advise:
    input:
        tables=expand(TABLE_FILES, table=READS, allow_missing=True),
        flops=flops_of,
        script=ancient(f"{SCRIPTS}/advise.py"),
    output:
        table=table_file("advice"),
        page=report(
            f"{RESULTS}/{{experiment}}/advice.html",
            caption="../report/advice.rst",
            category="{experiment}",
            labels={"figure": "advice"},
        ),
    log:
        f"{RESULTS}/{{experiment}}/logs/advise.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        settings=CONFIG.advice.model_dump_json(),
        code=digest_of(("advise.py",)),
        tables=lambda wildcards, output: os.path.dirname(output.table),
        flops=lambda wildcards, input: f"--flops={shlex.quote(str(input.flops))}" if input.flops else "",
    shell:
        "python {input.script:q} {wildcards.experiment} --tables={params.tables:q} {params.flops}"
        " --settings={params.settings:q} --table={output.table:q} --page={output.page:q} 2>&1 | tee {log:q}"
