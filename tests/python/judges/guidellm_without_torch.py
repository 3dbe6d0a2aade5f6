"""Runs guidellm's command line without PyTorch.

guidellm uses PyTorch only to iterate over its prompts. PyPI's PyTorch for Linux needs gigabytes of CUDA libraries, so this file replaces the
classes that guidellm and `datasets` name. guidellm's worker processes import this file again if they are spawned.
"""
import importlib.machinery
import sys
import types
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Generator:
    """A source of random numbers. The prompts are not shuffled, so it has none."""

    def manual_seed(self, seed):
        return self


class Dataset(Generic[Item]):
    """Base class of guidellm's list of prompts."""


class DataLoader(Generic[Item]):
    """Iterates over a dataset, in its order and in this process."""

    def __init__(self, dataset, collate_fn, **_):
        self.dataset, self.collate = dataset, collate_fn

    def __iter__(self):
        return (self.collate([item]) for item in self.dataset)


def module(name, **members):
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(made).update(members)
    sys.modules[name] = made
    return made


data = module("torch.utils.data", get_worker_info=lambda: None,
              dataset=module("torch.utils.data.dataset", IterableDataset=Dataset),
              dataloader=module("torch.utils.data.dataloader", DataLoader=DataLoader))
# `datasets` asks whether a value is one of these types.
module("torch", Generator=Generator, Tensor=type("Tensor", (), {}), nn=types.SimpleNamespace(Module=type("Module", (), {})),
       utils=module("torch.utils", data=data))

if __name__ == "__main__":
    from guidellm.cli import cli

    cli()
