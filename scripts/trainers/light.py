"""Runs compare.py with a trainer's data code alone: what its packages import beside that (GPU kernels, image
code, the models) is replaced by names that hold nothing.

    python3 scripts/trainers/light.py PARQUET_OUT LOADER=OUT

For an environment into which the trainer was installed with `pip install --no-deps`. The modules that read and
collate the shards are the trainer's own; nothing of them is replaced.
"""

import importlib.machinery
import importlib.util
import sys
import types

# Packages that are looked up by their folders only, so that their __init__ does not import the models.
FOLDERS = {
    "llamafactory": ["llamafactory", "llamafactory.data", "llamafactory.extras"],
    "megatron_bridge": [
        "megatron.bridge", "megatron.bridge.data", "megatron.bridge.data.packing", "megatron.bridge.data.datasets",
        "megatron.bridge.training", "megatron.bridge.training.tokenizers", "megatron.bridge.utils",
        "megatron.core", "megatron.core.datasets",
    ],
}
# Modules that hold nothing.
EMPTY = {
    "streaming": ["torchvision"],
    "megatron_bridge": ["triton", "transformer_engine", "apex", "transformers", "requests", "megatron.core.tokenizers", "megatron.bridge.training.tokenizers.tokenizer",
        "megatron.bridge.utils.common_utils"],
}


class Nothing:
    """Whatever is asked of it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args, **kwargs):
        return args[0] if args and callable(args[0]) else Nothing()

    def __mro_entries__(self, bases):
        return (object,)

    def __or__(self, other):
        return self

    __ror__ = __or__


class Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Finder:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if any(name == own or name.startswith(own + ".") for own in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


def by_folder(name):
    """Registers a package without running its __init__."""
    parent, _, last = name.rpartition(".")
    places = sys.modules[parent].__path__ if parent in sys.modules else None
    if parent and places is None:
        places = importlib.util.find_spec(parent).submodule_search_locations
    spec = importlib.machinery.PathFinder.find_spec(name, list(places) if places is not None else None)
    if spec is None:
        raise ImportError(f"no package {name}")
    module = types.ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)


def main():
    for loader in (argument.split("=")[0] for argument in sys.argv[2:]):
        sys.meta_path.insert(0, Finder(EMPTY.get(loader, [])))
        for name in FOLDERS.get(loader, []):
            by_folder(name)
    import compare

    compare.main()


if __name__ == "__main__":
    main()
