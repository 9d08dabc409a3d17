"""Extension of griffe: reads the section `Example:` of a docstring as the section `Examples:`, which it knows."""

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Rename the section in every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\n\nExample:\n", "\n\nExamples:\n")
