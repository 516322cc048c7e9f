"""One archive of a result set, for a repository of research data: what is in it, how it is written, what it says of itself.

<name>/README.md, SHA256SUMS    what each file is, how to rebuild it, and how to check it
<name>/config.yaml              the configuration as merged, with every default
<name>/installed.txt            the packages of the environment that it was made in
<name>/results/, data/          what the rules declare: tables, figures, pages, records and their logs; data's manifests
<name>/dpscale/                 the code, with its lock files
<name>/own/                     models and datasets of one's own, where there are any
"""
