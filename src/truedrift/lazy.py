"""Names of a package that are imported on first use (PEP 562), so that importing the package does not import torch."""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Collection[str]], public: Collection[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package.

    Args:
        package: The name of the package.
        modules: Module → the names that it defines. A module without names is itself an attribute of the package.
        public: The names that `dir(package)` lists, usually `__all__`.

    Returns:
        `__getattr__`, which imports the module of a name and keeps the name in the package, and `__dir__`.

    Example:
        >>> getattr_, dir_ = lazy_names("truedrift", {"truedrift.errors": ("UserError",)}, ("UserError",))
        >>> getattr_("UserError"), dir_()
        (<class 'truedrift.errors.UserError'>, ['UserError'])
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get_attribute(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(module_of[name]), name)
        elif f"{package}.{name}" in modules:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return get_attribute, lambda: sorted(public)
