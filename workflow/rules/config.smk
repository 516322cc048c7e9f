"""The files that are the configuration. Snakemake reads them itself, and of one that is no YAML it names neither file nor
place: each is looked at before."""

import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir, "scripts")))

from dpscale.errors import UserError
from dpscale.reading import read_config

# the folder's own, or where it has none, as with `snakemake -s elsewhere/Snakefile`, the checkout's
BESIDE = "" if os.path.exists("config.yaml") else workflow.basedir
MORE = os.path.join(BESIDE, "more.yaml")  # what `make more` wrote beside it
CONFIG_FILES = [os.path.join(BESIDE, "config.yaml"), *([MORE] if os.path.exists(MORE) else [])]

try:
    for _path in [*workflow.configfiles, *CONFIG_FILES]:
        read_config(Path(os.path.relpath(_path)))
except UserError as error:
    raise WorkflowError(str(error))


for _path in CONFIG_FILES:

    configfile: _path
