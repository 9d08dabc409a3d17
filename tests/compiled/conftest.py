"""Fixtures for compiled functions: no shape checks, and a compiler without cached graphs."""

import inspect
import sys

import pytest
import torch


@pytest.fixture
def plain_methods(monkeypatch):
    """Remove the shape checks from methods: torch.compile cannot trace them, even if they are disabled."""
    modules = [module for name, module in sys.modules.items() if name.startswith("truedrift.")]
    for each in {each for module in modules for each in vars(module).values() if inspect.isclass(each)}:
        for name, method in list(vars(each).items()) if each.__module__.startswith("truedrift.") else ():
            if inspect.isfunction(method):
                monkeypatch.setattr(each, name, inspect.unwrap(method))
            elif isinstance(method, property):
                monkeypatch.setattr(each, name, property(inspect.unwrap(method.fget)))


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()
