"""Any of torchvision's classifiers by its name there, untrained. ResNets have rows of their own, for grey and small images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from dpscale.errors import UserError, suggest
from dpscale.typed import Strict
from dpscale.workloads.models.base import Model
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    from torch import nn

# Written down, so that a plan knows them where torchvision is not installed; a test compares them with the pinned one's.
OF_TORCHVISION = """
    alexnet
    convnext_base convnext_large convnext_small convnext_tiny
    densenet121 densenet161 densenet169 densenet201
    efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6
    efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s
    googlenet inception_v3
    maxvit_t
    mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
    mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
    regnet_x_16gf regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf
    regnet_y_128gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf
    resnet101 resnet152 resnet18 resnet34 resnet50
    resnext101_32x8d resnext101_64x4d resnext50_32x4d
    shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0
    squeezenet1_0 squeezenet1_1
    swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t
    vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn
    vit_b_16 vit_b_32 vit_h_14 vit_l_16 vit_l_32
    wide_resnet101_2 wide_resnet50_2
"""
NAMES = OF_TORCHVISION.split()


def _known(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"torchvision has no classifier of that name; {suggest(name, NAMES)}")
    return name


class Options(Strict):
    name: Annotated[str, AfterValidator(_known)] = Field(description="torchvision's, such as efficientnet_b0")


def _refuses(options: Options, samples: Samples) -> str | None:
    return None if samples.shape[0] == 3 else "takes images of 3 channels"


def _arguments(name: str, samples: Samples) -> dict[str, Any]:
    """What these take beside the number of classes."""
    _, height, width = samples.shape
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}  # further outputs would need a loss of their own
    if name.startswith("vit_"):
        return {"image_size": height}
    return {"input_size": (height, width)} if name == "maxvit_t" else {}


def _build(options: Options, samples: Samples) -> nn.Module:
    """Images (batch, 3, height, width) float32 -> logits (batch, classes).

    Raises:
        UserError: it can't take images of this size, which most of these say in their own words only.
    """
    import torch
    from torchvision.models import get_model

    arguments = {"weights": None, "num_classes": samples.classes, **_arguments(options.name, samples)}
    try:
        with torch.device("meta"):  # shapes alone
            get_model(options.name, **arguments)(torch.empty(2, *samples.shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"torchvision's {options.name} does not take {samples}: {reason}; use larger ones") from None
    return get_model(options.name, **arguments)


ROW = Model(
    summary="any of torchvision's classifiers by its `name`, untrained",
    takes="images",
    options=Options,
    refuses=_refuses,
    build=_build,
)
