"""The manifest of a checkpoint: schema version, run, step, facts, and of each file its length and sha256.

It carries the sha256 of itself, H(canonical JSON of everything else), and its bytes must be the canonical ones. So no
bit of it can change unnoticed, not even one that JSON does not care for (1e-05 and 1E-05 are the same number).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MANIFEST = "manifest.json"
SCHEMA = 1
"""Raised whenever an older truedrift could not read the files."""

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")
"""What a file may be called: nothing that leads out of the directory, nothing hidden."""


@dataclass(frozen=True)
class Entry:
    """What a file was when it was saved."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of."""

    run: str
    step: int
    facts: Mapping[str, Any]
    files: Mapping[str, Entry]


def entry_of(content: bytes) -> Entry:
    """Length and sha256 of a file's content."""
    return Entry(hashlib.sha256(content).hexdigest(), len(content))


def is_file_name(name: str) -> bool:
    """Whether a checkpoint may have a file of that name."""
    return _FILE.fullmatch(name) is not None


def render(manifest: Manifest) -> bytes:
    """The manifest as the bytes of its file. Raises ValueError or TypeError over facts that are not JSON."""
    content = {
        "schema": SCHEMA,
        "run": manifest.run,
        "step": manifest.step,
        "facts": dict(manifest.facts),
        "files": {name: {"sha256": entry.sha256, "bytes": entry.bytes} for name, entry in manifest.files.items()},
    }
    return _canonical({**content, "sha256": _digest(content)})


def parse(content: bytes) -> Manifest:
    """The manifest of these bytes. Raises ValueError, which says what is wrong with them."""
    document = _document(content)
    digest = document.pop("sha256", None)
    if digest != _digest(document) or _canonical({**document, "sha256": digest}) != content:
        raise ValueError("its content is not what was saved")
    if document.get("schema") != SCHEMA:
        raise ValueError(f"its schema version is {document.get('schema')!r} and this truedrift reads {SCHEMA}")
    return _manifest(document)


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _manifest(document: dict[str, Any]) -> Manifest:
    try:
        files = {name: Entry(str(of["sha256"]), int(of["bytes"])) for name, of in document["files"].items()}
        manifest = Manifest(str(document["run"]), int(document["step"]), dict(document["facts"]), files)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError("it lacks what a manifest holds") from None
    for name in files:
        if not is_file_name(name):
            raise ValueError(f"it lists {name!r}, which is no name of a file of a checkpoint")
    return manifest


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"
