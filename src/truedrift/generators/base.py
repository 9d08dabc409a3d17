"""huggingface_hub's mixin (`save_pretrained`, `from_pretrained`, `push_to_hub`), or where that package is missing a
class that says so: the networks themselves need torch alone.

Options of a generator: a frozen dataclass of whole numbers, checked where it is made and where it is read.

x = f(z, c, s, k): what every generator is, a pure function of noise, label, strength and style ids.

| axis | meaning                                     |
|------|---------------------------------------------|
| B    | samples                                     |
| K    | style draws of one sample (0: no styles)    |

Labels are 0 … classes − 1, and `classes` itself is the null class, "no label": whoever drops labels passes it. Nothing
is drawn inside a generator, neither noise nor styles nor dropout. Its parameters are drawn by `initialize` from an
explicit `torch.Generator`; the global one is never touched.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import torch
from torch import nn

from truedrift.axes import Float, Int, Tensor
from truedrift.errors import UserError
from truedrift.generators.layers import SeededInit

__all__ = ["CARD", "CONFIG", "WEIGHTS", "PyTorchModelHubMixin", "download_weights"]

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
"""The mixin's names of the two files."""

CARD = """---
{{ card_data }}
---

A one-step generator trained by drifting. Load it with

    from truedrift.generators.pretrained import from_pretrained

    generator = from_pretrained("this folder")
"""
"""The README.md that the mixin writes beside them."""

if TYPE_CHECKING:
    from huggingface_hub import PyTorchModelHubMixin
else:
    try:
        from huggingface_hub import PyTorchModelHubMixin
    except ModuleNotFoundError:

        class PyTorchModelHubMixin:
            """Stands in for the mixin: the class can be made, saving and loading say what is missing."""

            def __init_subclass__(cls, **_: Any) -> None:
                super().__init_subclass__()

            def save_pretrained(self, *_: Any, **__: Any) -> None:
                raise _missing_hub()

            push_to_hub = save_pretrained

            @classmethod
            def from_pretrained(cls, *_: Any, **__: Any) -> None:
                raise _missing_hub()


def _missing_hub() -> ValueError:
    return UserError(
        "huggingface_hub is not installed",
        "saving and loading generators needs it",
        "run pip install 'truedrift[train]'",
    )


def download_weights(repository: str, **where: Any) -> str:
    """The weights of a repository on the hub, in its cache: safetensors or nothing."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415  an extra

    return hf_hub_download(repo_id=repository, filename=WEIGHTS, **where)


T = TypeVar("T")


def options_of(options_type: type[T], values: Any) -> T:
    """The options that config.json tells; every field is there or has a default, and no other one is."""
    if isinstance(values, options_type):
        return values
    known = {field.name: field for field in dataclasses.fields(options_type)}  # type: ignore[arg-type]
    if not isinstance(values, dict) or not set(values) <= set(known):
        came = f"has {', '.join(map(repr, values))}" if isinstance(values, dict) else f"is {values!r}"
        raise UserError(
            f"options of {options_type.__name__} {came}",
            f"allowed are {', '.join(name for name in known if name != 'kind')}",
            "take the config.json that save_pretrained wrote",
        )
    return options_type(**values)


class Options(Protocol):
    """A frozen dataclass of JSON-able fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Generator(nn.Module, PyTorchModelHubMixin, library_name="truedrift", tags=["drifting"], model_card_template=CARD):
    """f: (z [B, *noise_shape], labels [B], strength [B], style_ids [B, K]) → samples [B, *sample_shape]."""

    architecture: ClassVar[str]
    """Its name in the catalog and in config.json."""

    options_type: ClassVar[type[Any]]

    def __init__(
        self,
        options: Options,
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        noise_shape: tuple[int, ...],
        style_draws: int = 0,
        style_entries: int = 0,
    ) -> None:
        super().__init__()
        _require_sizes(sample_shape, classes)
        self.sample_shape = tuple(sample_shape)
        self.noise_shape = noise_shape
        self.classes = classes
        self.style_draws = style_draws
        self.style_entries = style_entries
        self._hub_mixin_config = {  # what the mixin writes to config.json, and passes to __init__ when it loads
            "architecture": self.architecture,
            "options": {name: each for name, each in dataclasses.asdict(options).items() if name != "kind"},
            "sample_shape": list(sample_shape),
            "classes": classes,
        }

    def initialize(self, generator: torch.Generator) -> None:
        """Draw every parameter again, in the order of the modules."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, SeededInit):
                    module.draw(generator)

    def forward(
        self,
        z: Float[Tensor, "B ..."],
        labels: Int[Tensor, " B"],
        strength: Float[Tensor, " B"],
        style_ids: Int[Tensor, "B K"],
    ) -> Float[Tensor, "B ..."]:
        """The samples; shapes are checked, values are not."""
        self._require_inputs(z, labels, strength, style_ids)
        return self.generate(z, labels, strength, style_ids)

    @abstractmethod
    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        """What `forward` returns, for inputs of the right shape."""

    def _require_inputs(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> None:
        B = z.shape[0] if z.ndim else 0
        wanted = {
            "z": (z, (B, *self.noise_shape)),
            "labels": (labels, (B,)),
            "strength": (strength, (B,)),
            "style_ids": (style_ids, (B, self.style_draws)),
        }
        for name, (value, shape) in wanted.items():
            if value.shape != shape:
                came = f"{name} has shape {list(value.shape)} beside {B} noises z"
                raise UserError(came, f"allowed is {list(shape)}", "give each sample its own row")
        for name, value in (("labels", labels), ("style_ids", style_ids)):
            if value.dtype not in (torch.int64, torch.int32):
                raise UserError(f"{name} has dtype {value.dtype}", "allowed is int64", "call .long() on it")

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
        **where: Any,
    ) -> Self:
        """The mixin's hook, without its note on stdout and without its way back to a pickle."""
        make: Any = cls  # of a subclass, which knows its noise_shape
        model = make(options_of(cls.options_type, options), sample_shape=_sizes(sample_shape), classes=classes)
        folder = Path(model_id)
        file = str(folder / WEIGHTS) if folder.is_dir() else download_weights(model_id, **where)
        return cls._load_as_safetensor(model, file, map_location, strict)


def _sizes(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _require_sizes(sample_shape: tuple[int, ...], classes: int) -> None:
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sample_shape)
    if not whole or len(sample_shape) not in (1, 3):
        raise UserError(
            f"sample_shape is {tuple(sample_shape)!r}",
            "allowed are (D,) for points and (C, H, W) for images",
            "pass the shape of one sample",
        )
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
        raise UserError(f"classes is {classes!r}", "allowed is an integer from 1", "pass 1 for data without labels")
