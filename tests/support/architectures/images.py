"""Networks of torchvision and timm, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch


class Net(NamedTuple):
    """A network of images.

    Attributes:
        extent: of the image, along both axes.
        options: of its constructor.
        frames: those of a video; an image has None.
    """

    extent: int = 64
    options: Mapping[str, Any] = {}
    frames: int | None = None


def net(extent: int = 64, frames: int | None = None, **options: Any) -> Net:
    return Net(extent, options, frames)


TORCHVISION = {
    "alexnet": net(96),
    "vgg11": net(32, num_classes=10),
    "vgg11_bn": net(224, num_classes=10),
    "resnet18": net(),
    "resnet50": net(),
    "wide_resnet50_2": net(),
    "resnext50_32x4d": net(),
    "regnet_x_400mf": net(),
    "regnet_y_400mf": net(),
    "densenet121": net(),
    "efficientnet_b0": net(),
    "efficientnet_v2_s": net(),
    "mobilenet_v2": net(),
    "mobilenet_v3_small": net(),
    "mobilenet_v3_large": net(),
    "mnasnet0_5": net(),
    "shufflenet_v2_x1_0": net(),
    "squeezenet1_0": net(),
    "squeezenet1_1": net(),
    "googlenet": net(96, aux_logits=False, init_weights=False),
    "inception_v3": net(128, aux_logits=False, init_weights=False),
    "convnext_tiny": net(),
    "swin_t": net(),
    "swin_v2_t": net(),
    "vit_b_16": net(32, image_size=32),
    "maxvit_t": net(224),
    "fcn_resnet50": net(65, weights_backbone=None),
    "deeplabv3_resnet50": net(65, weights_backbone=None),
    "deeplabv3_mobilenet_v3_large": net(65, weights_backbone=None),
    "lraspp_mobilenet_v3_large": net(65, weights_backbone=None),
    "r3d_18": net(32, frames=4),
    "mc3_18": net(32, frames=4),
    "r2plus1d_18": net(32, frames=4),
    "swin3d_t": net(32, frames=4),
    "mvit_v1_b": net(224, frames=16),
    "raft_small": net(128),
}

TIMM = {
    "resnet26d": net(),
    "resnetv2_50": net(),
    "resnetaa50": net(),
    "seresnet50": net(),
    "ecaresnet26t": net(),
    "skresnet18": net(),
    "resnest14d": net(),
    "res2net50_26w_4s": net(),
    "gcresnet33ts": net(),
    "cspresnet50": net(),
    "cspdarknet53": net(),
    "darknet53": net(),
    "bat_resnext26ts": net(256),
    "botnet26t_256": net(256),
    "halonet26t": net(256),
    "lambda_resnet26t": net(256),
    "dla34": net(),
    "dpn48b": net(),
    "densenet121": net(),
    "hrnet_w18_small": net(),
    "selecsls42b": net(),
    "vovnet39a": net(),
    "xception41": net(),
    "legacy_xception": net(96),
    "inception_v4": net(128),
    "inception_resnet_v2": net(128),
    "nasnetalarge": net(64),
    "tresnet_m": net(),
    "nf_regnet_b0": net(),
    "nfnet_f0": net(),
    "regnetz_b16": net(),
    "rexnet_100": net(),
    "tinynet_e": net(),
    "tf_efficientnet_lite0": net(),
    "tf_efficientnet_b0": net(),
    "efficientnetv2_rw_t": net(),
    "mixnet_s": net(),
    "fbnetc_100": net(),
    "hardcorenas_a": net(),
    "lcnet_050": net(),
    "mobilenetv2_100": net(),
    "mobilenetv3_small_100": net(),
    "mobilenetv4_conv_small": net(),
    "mobilenetv4_hybrid_medium": net(),
    "ghostnet_100": net(),
    "ghostnetv2_100": net(),
    "repghostnet_050": net(),
    "repvgg_a0": net(),
    "repvit_m0_9": net(),
    "mobileone_s0": net(),
    "starnet_s1": net(),
    "fasternet_t0": net(),
    "convnext_atto": net(),
    "convnextv2_atto": net(),
    "convmixer_768_32": net(),
    "inception_next_tiny": net(),
    "rdnet_tiny": net(),
    "mambaout_femto": net(),
    "focalnet_tiny_srf": net(),
    "edgenext_xx_small": net(),
    "mobilevit_xxs": net(),
    "mobilevitv2_050": net(),
    "fastvit_t8": net(),
    "efficientformer_l1": net(224),
    "efficientformerv2_s0": net(224),
    "efficientvit_b0": net(),
    "efficientvit_m0": net(224),
    "poolformer_s12": net(),
    "pvt_v2_b0": net(),
    "davit_tiny": net(),
    "shvit_s1": net(),
    "swiftformer_xs": net(),
    "nextvit_small": net(),
    "sequencer2d_s": net(224, layers=(1, 1, 1, 1)),
    "vit_tiny_patch16_224": net(32, img_size=32, depth=3),
    "vit_relpos_small_patch16_224": net(32, img_size=32, depth=3),
    "vit_tiny_r_s16_p8_224": net(64, img_size=64),
    "deit_tiny_patch16_224": net(32, img_size=32, depth=3),
    "deit_tiny_distilled_patch16_224": net(32, img_size=32, depth=3),
    "deit3_small_patch16_224": net(32, img_size=32, depth=3),
    "beit_base_patch16_224": net(32, img_size=32, depth=2),
    "beitv2_base_patch16_224": net(32, img_size=32, depth=2),
    "eva02_tiny_patch14_224": net(56, img_size=56, depth=3),
    "cait_xxs24_224": net(32, img_size=32, depth=3),
    "convit_tiny": net(32, img_size=32, depth=3, local_up_to_layer=2),
    "crossvit_tiny_240": net(240),
    "coat_tiny": net(64, img_size=64),
    "coat_lite_tiny": net(64, img_size=64),
    "coatnet_pico_rw_224": net(224),
    "gcvit_xxtiny": net(224),
    "gmlp_ti16_224": net(32, img_size=32),
    "levit_128s": net(224),
    "mixer_s32_224": net(64, img_size=64),
    "mvitv2_tiny": net(224),
    "nest_tiny": net(224),
    "pit_ti_224": net(224),
    "swin_tiny_patch4_window7_224": net(224),
    "swinv2_tiny_window8_256": net(256),
    "swinv2_cr_tiny_ns_224": net(224),
    "tiny_vit_5m_224": net(224),
    "tnt_s_patch16_224": net(224),
    "twins_svt_small": net(224),
    "twins_pcpvt_small": net(224),
    "visformer_tiny": net(224),
    "volo_d1_224": net(224),
    "xcit_nano_12_p16_224": net(64, depth=3),
    "cpubone_nano": net(),
    "csatv2": net(256),
    "cspnext_tiny": net(),
    "efficientvim_m1": net(224),
    "hgnet_tiny": net(),
    "hiera_tiny_224": net(224),
    "hieradet_small": net(224),
    "iformer_s": net(224),
    "inception_v3": net(128),
    "lcnetv2_small": net(),
    "legacy_seresnet18": net(),
    "lowformer_b0": net(224),
    "mobilenetv5_base": net(),
    "naflexvit_base_patch16_gap": net(64, depth=2),
    "pnasnet5large": net(64),
    "regnetx_002": net(),
    "regnety_002": net(),
    "regnetv_040": net(),
    "regnetz_b16_evos": net(),
    "vgg11": net(),
    "vitamin_small_224": net(224),
    "gernet_s": net(),
    "resnetblur18": net(),
    "resnet50_gn": net(),
    "resnet50_clip_gap": net(224),
    "ecaresnext26t_32x4d": net(),
    "gcresnext26ts": net(),
    "resmlp_12_224": net(32, img_size=32),
    "flexivit_small": net(48, img_size=48, depth=3),
    "coatnext_nano_rw_224": net(224),
    "maxvit_nano_rw_256": net(256),
    "ese_vovnet19b_dw": net(),
    "res2next50": net(),
    "mnasnet_small": net(),
    "semnasnet_050": net(),
    "spnasnet_100": net(),
    "efficientnet_es": net(),
    "mobilenet_edgetpu_v2_xs": net(),
    "eca_nfnet_l0": net(),
    "haloregnetz_b": net(224),
    "sebotnet33ts_256": net(256),
    "lamhalobotnet50ts_256": net(256),
    "vit_srelpos_small_patch16_224": net(32, img_size=32, depth=3),
    "vit_small_patch16_rope_mixed_224": net(32, img_size=32, depth=3),
    "samvit_base_patch16": net(64, img_size=64, depth=2, global_attn_indexes=(1,)),
}


def _with_image(make: Callable[[], Any], found: Net) -> tuple[Any, list[Any]]:
    module = make()
    time = () if found.frames is None else (found.frames,)
    return module, [torch.randn(2, 3, *time, found.extent, found.extent)]


def of_torchvision(name: str) -> tuple[Any, list[Any]]:
    import torchvision

    found = TORCHVISION[name]
    create = partial(torchvision.models.get_model, name, weights=None, **found.options)
    module, inputs = _with_image(create, found)
    return (module, inputs * 2) if name.startswith("raft") else (module, inputs)


def of_timm(name: str) -> tuple[Any, list[Any]]:
    import timm

    found = TIMM[name]
    return _with_image(partial(timm.create_model, name, **found.options), found)
