rule collect_collectives:
    input:
        results_of,
        script=ancient(f"{SCRIPTS}/collect_collectives.py"),
    output:
        table_file("collectives"),
    log:
        f"{RESULTS}/{{experiment}}/logs/collect_collectives.log",
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        runs=runs_of,
        mixed_nodes=lambda wildcards: "--mixed-nodes" if CONFIG.experiments[wildcards.experiment].mixed_nodes else "",
        code=digest_of(("collect_collectives.py",)),
        existing=results_that_exist,
        results=lambda wildcards, output: str(Path(output[0]).parents[2]),
        partial="--partial" if CONFIG.partial else "",
    shell:
        "python {input.script:q} --runs={params.runs:q} {params.mixed_nodes} --results={params.results:q}"
        " --out={output:q} {params.partial} 2>&1 | tee {log:q}"
