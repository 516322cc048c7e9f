from apex import calls
from apex.parallel.distributed import DistributedDataParallel as DistributedDataParallel


def convert_syncbn_model(module):
    calls.append(("convert_syncbn_model",))
    return module
