"""The interface of every generator: x = f(z, c, s, k), a pure function of noise, label, strength and style ids.

| axis | meaning                                     |
|------|---------------------------------------------|
| B    | samples                                     |
| K    | style draws per sample (0: no styles)       |

Labels are 0 … classes − 1. The number `classes` itself is the null class, "no label": to drop a label, pass it instead.
A generator draws nothing inside its forward pass, neither noise nor styles nor dropout. `initialize` draws its
parameters from an explicit `torch.Generator`; the global random state is never used.

Generators can be saved to and loaded from a folder or the Hugging Face hub (`save_pretrained`, `from_pretrained`,
`push_to_hub`, from huggingface_hub's mixin). The networks themselves need torch alone: without huggingface_hub these
methods raise an error that says how to install it.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from truedrift.axes import Float, Int, Tensor
from truedrift.errors import UserError, error_text, import_package, require_integer, require_sample_shape
from truedrift.options import from_dict

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
"""Names of the two files that the mixin writes."""

CARD = """---
{{ card_data }}
---

A one-step generator trained by drifting. Load it with

    from truedrift.generators import from_pretrained

    generator = from_pretrained("this folder")
"""
"""Template of the README.md that the mixin writes into the same folder."""

if TYPE_CHECKING:
    from huggingface_hub import PyTorchModelHubMixin
else:
    try:
        from huggingface_hub import PyTorchModelHubMixin
    except ModuleNotFoundError:

        class PyTorchModelHubMixin:
            """Stand-in for the mixin: saving and loading raise an error that names the missing package."""

            def __init_subclass__(cls, **_: Any) -> None:
                super().__init_subclass__()

            @classmethod
            def from_pretrained(cls, *_: Any, **__: Any) -> None:
                import_package("huggingface_hub", "saving and loading generators", "train")

            save_pretrained = push_to_hub = from_pretrained


class Generator(nn.Module, PyTorchModelHubMixin, library_name="truedrift", tags=["drifting"], model_card_template=CARD):
    """Map (z [B, *noise_shape], labels [B], strength [B], style_ids [B, K]) to samples [B, *sample_shape].

    A subclass sets `architecture` and `options_type`, builds its layers, calls `initialize` and writes `generate`.

    Args:
        options: Options of the network, written to config.json.
        sample_shape: (D,) for points or (C, H, W) for images.
        classes: Number of classes C; label C is the null class.
        noise_shape: Shape of the noise z of one sample.
        style_draws: Style ids per sample (K).
        style_entries: Number of different style ids.
    """

    architecture: ClassVar[str]
    """Name in `GENERATORS` and in config.json."""

    options_type: ClassVar[type[Any]]

    def __init__(
        self,
        options: Any,
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        noise_shape: tuple[int, ...],
        style_draws: int = 0,
        style_entries: int = 0,
    ) -> None:
        super().__init__()
        require_sample_shape(sample_shape)
        classes = require_integer("classes", classes, 1, 1)
        self.sample_shape = tuple(sample_shape)
        self.noise_shape = noise_shape
        self.classes = classes
        self.style_draws = style_draws
        self.style_entries = style_entries
        self._hub_mixin_config = {  # the mixin writes this to config.json, and passes it to __init__ on loading
            "architecture": self.architecture,
            "options": {name: value for name, value in dataclasses.asdict(options).items() if name != "kind"},
            "sample_shape": list(sample_shape),
            "classes": classes,
        }

    def initialize(self, generator: torch.Generator | None = None) -> None:
        """Draw every parameter, module by module in their order. On the meta device there is nothing to draw.

        Args:
            generator: Source of the random numbers; None: a generator with seed 0.
        """
        if any(parameter.is_meta for parameter in self.parameters()):
            return
        generator = generator or torch.Generator().manual_seed(0)
        with torch.no_grad():
            for module in self.modules():
                draw: Any = getattr(module, "draw_parameters", None)
                if draw is not None:
                    draw(generator)

    def forward(
        self,
        z: Float[Tensor, "B ..."],
        labels: Int[Tensor, " B"],
        strength: Float[Tensor, " B"],
        style_ids: Int[Tensor, "B K"],
    ) -> Float[Tensor, "B ..."]:
        """Compute the samples. Shapes and dtypes are checked, values are not."""
        self._require_inputs(z, labels, strength, style_ids)
        return self.generate(z, labels, strength, style_ids)

    @abstractmethod
    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        """Compute the samples of inputs whose shapes were checked."""

    def _require_inputs(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> None:
        B = z.shape[0] if z.ndim else 0
        expected = {
            "z": (z, (B, *self.noise_shape)),
            "labels": (labels, (B,)),
            "strength": (strength, (B,)),
            "style_ids": (style_ids, (B, self.style_draws)),
        }
        for name, (value, shape) in expected.items():
            if value.shape != shape:
                problem = f"has shape {list(value.shape)} and z holds the noise of {B} samples"
                raise UserError(problem, f"must have shape {list(shape)}", "pass one row per sample", field=name)
        for name, value in (("labels", labels), ("style_ids", style_ids)):
            if value.dtype not in (torch.int64, torch.int32):
                raise UserError(f"has dtype {value.dtype}", "must be int64", "call .long() on it", field=name)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        map_location: str = "cpu",
        strict: bool = True,
        options: Any = None,
        sample_shape: Any = None,
        classes: Any = None,
        **download_options: Any,
    ) -> Self:
        """Load a generator for the mixin: prints nothing, and reads no pickle if there are no safetensors.

        The names and shapes of the weights are compared with those of the network before its memory is allocated.
        """
        make: Any = cls  # a subclass, whose __init__ derives noise_shape from the options
        shape = tuple(sample_shape) if isinstance(sample_shape, (list, tuple)) else ()
        build = partial(make, from_dict(cls.options_type, options, "options"), sample_shape=shape, classes=classes)
        file = Path(model_id) / WEIGHTS
        if not file.parent.is_dir():
            from huggingface_hub import hf_hub_download  # noqa: PLC0415  an extra

            file = hf_hub_download(repo_id=model_id, filename=WEIGHTS, **download_options)
        if strict:
            _require_shapes(build, Path(file))
        return cls._load_as_safetensor(build(), str(file), map_location, strict)


def _require_shapes(build: Callable[[], nn.Module], file: Path) -> None:
    """Require that a network has the tensors of a file. The network is built without memory for its parameters.

    Raises:
        RuntimeError: If it has other tensors.
    """
    safetensors = import_package("safetensors", "loading generators", "train")
    with safetensors.safe_open(file, framework="pt") as weights:
        found = {name: list(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    expected = _find_shapes(build, most=len(found))
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            kind = "size mismatch" if name in expected and name in found else "missing or unexpected"
            raise RuntimeError(
                f"{kind}: {name} is {found.get(name)} in the file and {expected.get(name)} in the network"
            )


def _find_shapes(build: Callable[[], nn.Module], most: int) -> dict[str, list[int]]:
    """Return names and shapes of the tensors of a network, which may have so many parameters."""
    count = 0

    def require_few(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal count
        count += parameter is not None and parameter.is_meta
        if count > most:
            raise RuntimeError(f"missing tensors: the file has {most} and the network has more")

    hook = register_module_parameter_registration_hook(require_few)
    try:
        with torch.device("meta"):
            network = build()
    except (TypeError, OverflowError) as error:  # a size beyond 64 bits
        raise RuntimeError(f"size mismatch: the network cannot be built, {error_text(error)}") from None
    finally:
        hook.remove()
    return {name: list(tensor.shape) for name, tensor in network.state_dict().items()}


def require_image_shape(sample_shape: tuple[int, ...], architecture: str) -> None:
    """Require (C, H, W), for a generator that makes images only."""
    if len(sample_shape) != 3:
        problem, allowed = f"sample_shape is {sample_shape}", f'the generator "{architecture}" makes images (C, H, W)'
        raise UserError(problem, allowed, 'use the generator "mlp" for points')
