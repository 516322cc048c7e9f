"""MODELS: the one table. A model is a module with a ROW beside this file, named here."""

from dpscale.workloads.models import convnet
from dpscale.workloads.models.base import Model

MODELS: dict[str, Model] = {"convnet": convnet.ROW}
