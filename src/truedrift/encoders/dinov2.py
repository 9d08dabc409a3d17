"""DINOv2 ViT-S/14 (Oquab et al. 2023): patch tokens after blocks 3, 6, 9 and 12, pooled to 384 numbers each.

Images are resized to 98 px (7×7 patches of 14; bilinear, align_corners=False) and normalized with the ImageNet
statistics. The published drifting code passes values in [−1, 1] without the statistics that the network was trained
with; `input_normalization="published"` does the same.

Tokens are those of `hidden_states[k]`: the output of block k, without the final layer norm and without the class
token. Transformers interpolates the position embeddings. Blocks after the last requested one are not computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.encoders.base import MapEncoder, require_image
from truedrift.encoders.pooling import parse_poolings
from truedrift.encoders.preprocessing import ImageNetNormalization, resize, rgb
from truedrift.errors import UserError, import_package, require_choice, require_integer, require_integers
from truedrift.options import use_plain_integers
from truedrift.seeding import stream

REPOSITORY = "facebook/dinov2-small"
REVISION = "ed25f3a31f01632728cabb09d1542f84ab7b0056"
RANDOM_DEVIATION = 0.02
"""Standard deviation of random weights, as usual for initializing vision transformers."""

InputNormalization = Literal["imagenet", "published"]
INPUT_NORMALIZATIONS: tuple[InputNormalization, ...] = get_args(InputNormalization)


@dataclass(frozen=True, kw_only=True)
class DINOv2Options:
    """Options of `DINOv2`, which has one feature group per block (several with some poolings)."""

    kind: Literal["dinov2"] = "dinov2"
    folder: str | None = None
    """Folder with config.json and model.safetensors, for machines without the hub; None: the hub or its cache."""
    revision: str = REVISION
    """Commit of the repository on the hub, which identifies the weights exactly."""
    image_size: int = 98
    """Side to which images are resized, a multiple of the patch size 14."""
    blocks: tuple[int, ...] = (3, 6, 9, 12)
    """Blocks whose output tokens are used, counted from 1; later blocks are not computed."""
    input_normalization: InputNormalization = "imagenet"
    """ImageNet statistics, or [−1, 1] as in the published code."""
    pooling: str = "mean"
    """How feature maps become groups, see `truedrift.encoders.pooling`: one name, or one per block with commas."""
    random_weights: bool = False
    """Use random weights: for measuring speed and for tests, not for training."""
    seed: int = 0
    """Seed of the random weights."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        require_integer("image_size", self.image_size, 1, 98)
        require_integers("blocks", self.blocks, 1, ascending=True)
        require_choice("input_normalization", self.input_normalization, INPUT_NORMALIZATIONS)
        parse_poolings(self.pooling, len(self.blocks))
        require_integer("seed", self.seed, 0, 0)
        if self.random_weights and self.folder is not None:
            problem = f"is True and folder is {self.folder!r}"
            raise UserError(problem, "must not both be set", "remove one of the two", field="random_weights")


class DINOv2(MapEncoder):
    """Encoder of square images with 1 or 3 channels."""

    options_type: ClassVar[type[Any]] = DINOv2Options

    def __init__(self, options: DINOv2Options, *, sample_shape: Sequence[int]) -> None:
        require_image("dinov2", sample_shape, square=True)
        transformers = import_package("transformers", "the encoder dinov2", "dinov2")
        model = (_random_network if options.random_weights else _load_network)(transformers, options)
        _require_fit(options, model.config)
        grid = options.image_size // model.config.patch_size
        super().__init__(
            options,
            sample_shape=sample_shape,
            network=FirstBlocks(model, options.blocks[-1]),
            channels=[model.config.hidden_size] * len(options.blocks),
            sizes=[(grid, grid)] * len(options.blocks),
        )
        self.grid = grid
        self.normalization = ImageNetNormalization()

    def maps(self, values: Tensor) -> list[Tensor]:
        values = rgb(values)
        if self.options.input_normalization == "imagenet":
            values = self.normalization(values)
        states = self.network(resize(values, self.options.image_size))
        # Arrange the patch tokens on their grid; the first token is the class token.
        tokens = (states[block][:, 1:].transpose(1, 2) for block in self.options.blocks)
        return [each.unflatten(-1, (self.grid, self.grid)) for each in tokens]


class FirstBlocks(nn.Module):
    """The embeddings and the first `count` blocks of a transformers model."""

    def __init__(self, model: Any, count: int) -> None:
        super().__init__()
        self.embeddings = model.embeddings
        self.blocks = nn.ModuleList(model.encoder.layer[:count])

    def forward(self, values: Float[Tensor, "B 3 H W"]) -> list[Tensor]:
        """Return the tokens before block 1 and after each block."""
        states = [self.embeddings(values)]
        for block in self.blocks:
            output = block(states[-1])
            states.append(output[0] if isinstance(output, tuple) else output)  # a tuple before transformers 5
        return states


def _load_network(transformers: Any, options: DINOv2Options) -> Any:
    """Load the Dinov2Model of transformers from the folder, or from the hub at the revision; never from a pickle."""
    from safetensors import SafetensorError  # noqa: PLC0415  an extra

    if options.folder is not None and not Path(options.folder).is_dir():
        raise _load_error(options, "the folder does not exist")
    settings: dict[str, Any] = {"use_safetensors": True, "attn_implementation": "sdpa", "output_loading_info": True}
    settings |= {"revision": options.revision} if options.folder is None else {"local_files_only": True}
    try:
        model, info = transformers.Dinov2Model.from_pretrained(options.folder or REPOSITORY, **settings)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise _load_error(options, shorten(str(error), 160, placeholder=" …")) from None
    if info["missing_keys"]:  # transformers would leave those random
        raise _load_error(options, f"{min(info['missing_keys'])} is missing")
    return model.float()


def _load_error(options: DINOv2Options, reason: str) -> UserError:
    source = f"folder {options.folder!r}" if options.folder is not None else f"{REPOSITORY} from the hub"
    return UserError(
        f"DINOv2 could not be loaded: {source} ({reason})",
        "needs the hub, or a folder with config.json and model.safetensors",
        f"run hf download {REPOSITORY} --revision {options.revision} with network access and copy its cache, "
        "or, to train, add --local-dir DIR and set encoder.folder to DIR",
    )


def _random_network(transformers: Any, options: DINOv2Options) -> Any:
    """Build ViT-S/14 with random weights: matrices uniform with standard deviation 0.02, one stream per matrix."""
    config = transformers.Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, attn_implementation="sdpa"
    )
    with torch.device("meta"):  # draws nothing from the global random state
        model = transformers.Dinov2Model(config)
    model.encoder.layer = model.encoder.layer[: options.blocks[-1]]  # the others are not used
    model.to_empty(device="cpu")
    with torch.no_grad():
        for number, (name, weight) in enumerate(model.named_parameters()):
            if weight.ndim == 1:
                weight.fill_(0 if name.endswith("bias") else 1)
            else:
                uniform = torch.rand(weight.shape, generator=stream(options.seed, "dinov2", number))
                weight.copy_((2 * uniform - 1) * (RANDOM_DEVIATION * 3**0.5))
    return model


def _require_fit(options: DINOv2Options, config: Any) -> None:
    """Require blocks that the network has, and an image size of whole patches."""
    if options.blocks[-1] > config.num_hidden_layers:
        allowed = f"must be in 1 to {config.num_hidden_layers}, the blocks of this network"
        raise UserError(f"is {options.blocks}", allowed, "choose among these", field="blocks")
    if options.image_size % config.patch_size:
        allowed = f"must be a multiple of the patch size {config.patch_size}"
        raise UserError(f"is {options.image_size}", allowed, "pass for example 98 or 224", field="image_size")
