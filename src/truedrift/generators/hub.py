"""huggingface_hub's mixin (`save_pretrained`, `from_pretrained`, `push_to_hub`), or where that package is missing a
class that says so: the networks themselves need torch alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truedrift.validation import mistake

__all__ = ["CARD", "CONFIG", "WEIGHTS", "PyTorchModelHubMixin", "downloaded"]

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
                raise _missing()

            push_to_hub = save_pretrained

            @classmethod
            def from_pretrained(cls, *_: Any, **__: Any) -> None:
                raise _missing()


def _missing() -> ValueError:
    return mistake(
        "huggingface_hub is not installed",
        "saving and loading generators needs it",
        "run pip install 'truedrift[train]'",
    )


def downloaded(repository: str, **where: Any) -> str:
    """The weights of a repository on the hub, in its cache: safetensors or nothing."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415  an extra

    return hf_hub_download(repo_id=repository, filename=WEIGHTS, **where)
