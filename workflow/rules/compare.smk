# Two snapshots: snakemake --cores 1 results/comparisons/<before>/<after>/changes.svg
rule compare:
    input:
        f"{snapshots.FOLDER}/{{before}}/{snapshots.CHECKSUMS}",
        f"{snapshots.FOLDER}/{{after}}/{snapshots.CHECKSUMS}",
        script=ancient(f"{SCRIPTS}/compare.py"),
    output:
        [f"{COMPARED}/{table}.csv" for table in OF_TWO_SETS],
        report(
            f"{COMPARED}/changes.svg",
            caption="../report/changes.rst",
            category="{before} and {after}",
            labels={"figure": "changes"},
        ),
        expand(f"{COMPARED}/changes.{{format}}", format=FORMATS[1:], allow_missing=True),
    log:
        f"{COMPARED}/compare.log",
    wildcard_constraints:
        before=snapshots.NAME,
        after=snapshots.NAME,
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        trial_slot=1,
    params:
        settings=CONFIG.figures.model_dump_json(exclude={"print"}),
        code=digest_of(("compare.py",)),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    shell:
        "python {input.script:q} {wildcards.before:q} {wildcards.after:q} --out={params.folder:q}"
        " --settings={params.settings:q} --exit-zero 2>&1 | tee {log:q}"
