"""MODELS: the one table. A model is a module with a ROW beside this file, named here."""

from dpscale.workloads.models import convnet, emulated, gpt, mlp, torchvision_classifier, torchvision_resnet
from dpscale.workloads.models.base import Model

MODELS: dict[str, Model] = {
    "convnet": convnet.ROW,
    "mlp": mlp.ROW,
    "resnet18": torchvision_resnet.RESNET18,
    "resnet34": torchvision_resnet.RESNET34,
    "resnet50": torchvision_resnet.RESNET50,
    "resnet101": torchvision_resnet.RESNET101,
    "torchvision": torchvision_classifier.ROW,
    "gpt": gpt.ROW,
    "emulated": emulated.ROW,
}
