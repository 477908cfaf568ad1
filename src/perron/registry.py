"""Components by name, plugins that add components, and settings from constructors.

A component is a class that a recipe can name: an aggregator, an encoder, a
connectivity. Its constructor is the only place where its options are written down.
"""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from threading import RLock
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import torch
from torch.overrides import TorchFunctionMode

from perron.errors import SettingsError

PLUGINS = "PERRON_PLUGINS"  # environment variable: modules, separated by commas
ENTRY_POINTS = "perron.plugins"  # group of entry points of installed packages

Item = TypeVar("Item")


class UnknownNameError(SettingsError, KeyError):
    """A name that no component has."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would put the message in quotes


class Registry(Mapping[str, Item], Generic[Item]):
    """The components of one kind by their names, in the order of registration.

    A name that is not there is looked for in the plugins before it is an error. To
    iterate imports nothing: call `load_plugins` first to see those of plugins too.
    """

    def __init__(self, kind: str) -> None:
        """Start without components.

        Args:
            kind: What the components are, for messages: "aggregator".
        """
        self.kind = kind
        self._items: dict[str, Item] = {}

    def register(self, name: str, item: Item) -> None:
        """Add a component.

        A class or function that is defined a second time, as in a notebook, replaces
        the first one.

        Raises:
            SettingsError: The name belongs to another component.
        """
        known = self._items.get(name)
        if known is not None and _origin(known) != _origin(item):
            raise SettingsError(
                f"the name of each {self.kind} must be unique, got {name!r} for both "
                f"{_described(known)} and {_described(item)}. Rename one of them."
            )
        self._items[name] = item

    def unregister(self, name: str) -> None:
        """Remove a component, for instance at the end of a test."""
        del self._items[name]

    def __getitem__(self, name: str) -> Item:
        if name not in self._items:
            load_plugins()
        try:
            return self._items[name]
        except KeyError:
            raise UnknownNameError(
                f"{self.kind} must be one of {self.options()}, got {name!r}. "
                f"{PLUGIN_ADVICE}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def options(self) -> str:
        """Return all names in quotes, separated by commas."""
        load_plugins()
        return ", ".join(f'"{name}"' for name in self)


PLUGIN_ADVICE = (
    f"If a module of your own defines it, name the module with --plugin MODULE or "
    f"{PLUGINS}=MODULE."
)


def _origin(item: Any) -> Any:
    if hasattr(item, "__qualname__"):
        return item.__module__, item.__qualname__
    return id(item)


def _described(item: Any) -> str:
    if hasattr(item, "__qualname__"):
        return f"{item.__module__}.{item.__qualname__}"
    return repr(item)


_lock = RLock()
_loaded: set[str] = set()


def load_plugins(modules: Sequence[str] = ()) -> None:
    """Import the modules that define further components, each of them once.

    These are the given modules, those in the environment variable ``PERRON_PLUGINS``
    (separated by commas), and those that installed packages declare as entry points
    in the group ``perron.plugins``. Modules in the current folder are found as well.
    Given modules are added to ``PERRON_PLUGINS``, so that worker processes import them
    too.

    Args:
        modules: Names of modules, such as ``my_package.pools``.

    Raises:
        SettingsError: A module cannot be imported.
    """
    with _lock:
        for module in modules:
            _load(module, module, partial(_import, module))
        present = _environment()
        new = [module for module in modules if module not in present]
        if new:
            os.environ[PLUGINS] = ",".join([*present, *new])
        for module in present:
            _load(module, f"{module} ({PLUGINS})", partial(_import, module))
        if ENTRY_POINTS in _loaded:
            return
        _loaded.add(ENTRY_POINTS)
        for point in entry_points(group=ENTRY_POINTS):
            package = "an installed package" if point.dist is None else point.dist.name
            _load(point.value, f"{point.value} (of {package})", point.load)


def _environment() -> list[str]:
    names = os.environ.get(PLUGINS, "").split(",")
    return [name.strip() for name in names if name.strip()]


def _load(key: str, shown: str, load: Callable[[], Any]) -> None:
    if key in _loaded:
        return
    _loaded.add(key)  # first: the plugin may look up components itself
    try:
        load()
    except Exception as error:
        _loaded.discard(key)
        raise SettingsError(
            f"plugin must be a module that can be imported, got {shown}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _import(module: str) -> None:
    # The perron command does not have the current folder on its path, as python has.
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        import_module(module)
    finally:
        sys.path.remove(folder)


# A width that the usual numbers of heads and groups divide, for settings that are
# checked before the width of the states is known. On the meta device it costs nothing.
_WIDTH = 403_200


def options_of(component: type, given: Sequence[str] = ()) -> dict[str, Any]:
    """Return the parameters of a constructor that are options of the component.

    These are all but ``embed_dim``, ``device`` and ``dtype``.

    Args:
        component: A class.
        given: Parameters that are not options, instead of ``embed_dim``.

    Raises:
        TypeError: The constructor has ``*args`` or ``**kwargs``.
    """
    parameters = inspect.signature(component).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"{component.__qualname__} must name its options, got {parameter} in "
                "its constructor"
            )
    left_out = {*(given or ("embed_dim",)), "device", "dtype"}
    return {name: p for name, p in parameters.items() if name not in left_out}


@cache
def settings_from(component: type, **given: Any) -> type[Any]:
    """Return the pydantic class of a component's settings, made from its constructor.

    It has a field for each option, with the annotation, the default and the
    description that the constructor has for it. If the component has a
    ``recipe_name``, that is the field ``name``. The class is frozen, and an unknown
    field is an error. Values are checked by the annotations and then by the constructor
    itself, on the meta device.

    Of an annotation only those types remain that a recipe can hold: of
    ``str | nn.Module``, ``str``. An option that has none of them is left out.

    Args:
        component: A class.
        given: Arguments of the constructor that are not settings, with values for the
            check. Defaults to ``embed_dim``.
    """
    from pydantic import ConfigDict, Field, create_model, model_validator

    arguments = given or {"embed_dim": _WIDTH}
    hints = get_type_hints(component.__init__, include_extras=True)  # type: ignore[misc]
    descriptions = _descriptions(component)
    fields: dict[str, Any] = {}
    name = getattr(component, "recipe_name", None)
    if name is not None:
        fields["name"] = (Literal[name], name)
    for option, parameter in options_of(component, tuple(arguments)).items():
        annotation = _plain(hints.get(option, Any))
        is_required = parameter.default is parameter.empty
        if annotation is None and is_required:
            raise TypeError(
                f"{component.__qualname__} needs {option}, which a recipe cannot hold: "
                "give it a default, or a type such as str, int or float"
            )
        if annotation is not None:
            default = ... if is_required else parameter.default
            field = Field(default, description=descriptions.get(option))
            fields[option] = (annotation, field)

    def check(self: Any) -> Any:
        _check(component, arguments | self.model_dump(exclude={"name"}))
        return self

    def reduce(self: Any) -> Any:
        return _restore, (component, given, self.model_dump())

    settings = create_model(
        f"{component.__name__}Settings",
        __config__=ConfigDict(frozen=True, extra="forbid"),
        __doc__=f"Settings of `{component.__name__}`.",
        __module__=component.__module__,
        __validators__={"check": model_validator(mode="after")(check)},  # type: ignore[dict-item]
        **fields,
    )
    settings.__reduce__ = reduce  # type: ignore[method-assign]
    return settings


def _restore(component: type, given: dict[str, Any], values: dict[str, Any]) -> Any:
    """Return settings that were pickled; their class is not in any module."""
    return settings_from(component, **given).model_validate(values)


class _NoInitialization(TorchFunctionMode):
    """Skips `torch.nn.init`: ``normal_`` on the meta device imports torch.compile."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        initializes = getattr(func, "__module__", None) == "torch.nn.init"
        if initializes or func is torch.Tensor.normal_:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _check(component: type, arguments: Mapping[str, Any]) -> None:
    """Call the constructor, which refuses wrong values; nothing is allocated."""
    rng = torch.random.fork_rng(devices=[])
    try:
        with rng, torch.device("meta"), _NoInitialization():
            component(**arguments)
    except TypeError as error:
        raise ValueError(str(error)) from error
    except (NotImplementedError, RuntimeError):
        return  # it looks at numbers, which meta tensors do not have


_PLAIN = (bool, int, float, str, NoneType)
_PLAIN_CONTAINERS = (list, tuple, dict, set, frozenset, Mapping, Sequence)


def _plain(annotation: Any) -> Any:
    """Return the part of an annotation that TOML can hold, or None."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        parts = [_plain(part) for part in get_args(annotation)]
        kept = tuple(part for part in parts if part is not None)
        return Union[kept] if kept else None  # noqa: UP007
    if origin is Annotated:
        inner = _plain(annotation.__origin__)
        return None if inner is None else Annotated[(inner, *annotation.__metadata__)]
    if annotation is Any or origin is Literal or annotation in _PLAIN:
        return annotation
    if (origin or annotation) in _PLAIN_CONTAINERS:
        parts = [part for part in get_args(annotation) if part is not Ellipsis]
        return annotation if all(_plain(part) is not None for part in parts) else None
    return None


def _descriptions(component: type) -> dict[str, str]:
    """Return what the Google-style ``Args`` of a constructor, or class, say."""
    for docstring in (component.__init__.__doc__, component.__doc__):  # type: ignore[misc]
        _, found, section = inspect.cleandoc(docstring or "").partition("Args:\n")
        if found:
            section = re.split(r"\n(?=\S)", section)[0]
            entries = re.findall(
                r"^ {4}(\w+)(?: \([^)\n]*\))?: (.*?)(?=^ {4}\w|\Z)",
                section,
                re.M | re.S,
            )
            return {name: " ".join(text.split()) for name, text in entries}
    return {}
