"""Registries of components, plugins, and settings derived from constructors.

A component is a class that a recipe can refer to by name, such as an aggregator, an
encoder or a connectivity. Its options are defined only by its constructor.
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

PLUGINS = "PERRON_PLUGINS"  # environment variable: comma-separated modules
ENTRY_POINTS = "perron.plugins"  # entry point group of installed packages

Item = TypeVar("Item")


class UnknownNameError(SettingsError, KeyError):
    """Unknown name of a component."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would put the message in quotes


class Registry(Mapping[str, Item], Generic[Item]):
    """Mapping from names to components of one kind, in the order of registration.

    Plugins are loaded when an unknown name is looked up, but not for iteration. Call
    `load_plugins` first to iterate over the components of plugins, too.
    """

    def __init__(self, kind: str) -> None:
        """Initialize an empty registry.

        Args:
            kind: Kind of the components for error messages, such as "aggregator".
        """
        self.kind = kind
        self._items: dict[str, Item] = {}

    def register(self, name: str, item: Item) -> None:
        """Add a component.

        A class or function that is defined again, for example in a notebook, replaces
        the first definition.

        Raises:
            SettingsError: If another component has the same name.
        """
        known = self._items.get(name)
        if known is not None and _identity(known) != _identity(item):
            raise SettingsError(
                f"the name of each {self.kind} must be unique, got {name!r} for both "
                f"{_qualified_name(known)} and {_qualified_name(item)}. Rename one of "
                "them."
            )
        self._items[name] = item

    def unregister(self, name: str) -> None:
        """Remove a component, for example at the end of a test."""
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
        """Return all names as a quoted, comma-separated list."""
        load_plugins()
        return ", ".join(f'"{name}"' for name in self)


PLUGIN_ADVICE = (
    f"If your own module defines it, import the module, or load it with --plugin "
    f"MODULE or {PLUGINS}=MODULE."
)


def _identity(item: Any) -> Any:
    if hasattr(item, "__qualname__"):
        return item.__module__, item.__qualname__
    return id(item)


def _qualified_name(item: Any) -> str:
    if hasattr(item, "__qualname__"):
        return f"{item.__module__}.{item.__qualname__}"
    return repr(item)


_lock = RLock()
_loaded: set[str] = set()


def load_plugins(modules: Sequence[str] = ()) -> None:
    """Import plugins, the modules that define additional components.

    Plugins are the given modules, the modules in the environment variable
    ``PERRON_PLUGINS`` (separated by commas), and the entry points of installed packages
    in the group ``perron.plugins``. Modules in the current folder can be imported, too.
    Each module is imported once. Given modules are added to ``PERRON_PLUGINS``, so
    worker processes import them as well.

    Args:
        modules: Names of modules, such as ``my_package.pools``.

    Raises:
        SettingsError: If a module cannot be imported.
    """
    with _lock:
        for module in modules:
            _load(module, module, partial(_import, module))
        from_environment = _environment_modules()
        new = [module for module in modules if module not in from_environment]
        if new:
            os.environ[PLUGINS] = ",".join([*from_environment, *new])
        for module in from_environment:
            _load(module, f"{module} ({PLUGINS})", partial(_import, module))
        if ENTRY_POINTS in _loaded:
            return
        _loaded.add(ENTRY_POINTS)
        for point in entry_points(group=ENTRY_POINTS):
            package = "an installed package" if point.dist is None else point.dist.name
            _load(point.value, f"{point.value} (from {package})", point.load)


def _environment_modules() -> list[str]:
    names = os.environ.get(PLUGINS, "").split(",")
    return [name.strip() for name in names if name.strip()]


def _load(key: str, description: str, load: Callable[[], Any]) -> None:
    if key in _loaded:
        return
    _loaded.add(key)  # before loading, because the plugin may look up components
    try:
        load()
    except Exception as error:
        _loaded.discard(key)
        raise SettingsError(
            f"plugin must be a module that can be imported, got {description}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _import(module: str) -> None:
    # Unlike python, the perron command does not have the current folder on its path.
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        import_module(module)
    finally:
        sys.path.remove(folder)


# Width for validating settings before the width of the states is known. It is divisible
# by all common numbers of heads. On the meta device it takes no memory.
_WIDTH = 403_200


def component_options(component: type, excluded: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options of a component, as parameters of its constructor.

    These are all parameters except ``embed_dim``, ``device`` and ``dtype``.

    Args:
        component: Class of the component.
        excluded: Names of parameters that are not options. Defaults to ``embed_dim``.

    Raises:
        TypeError: If the constructor has ``*args`` or ``**kwargs``.
    """
    parameters = inspect.signature(component).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"the constructor of {component.__qualname__} must name its options, "
                f"got {parameter}."
            )
    names = {*(excluded or ("embed_dim",)), "device", "dtype"}
    return {name: p for name, p in parameters.items() if name not in names}


@cache
def settings_from(component: type, **fixed: Any) -> type[Any]:
    """Return a pydantic model of the settings of a component.

    The model has one field per option, with the annotation, default and description
    from the constructor. If the component has a ``recipe_name``, it is stored in the
    field ``name``. The model is frozen and rejects unknown fields. Values are
    validated by the annotations and then by calling the constructor on the meta device.

    Annotations are reduced to the types that a recipe can contain, for example
    ``str | nn.Module`` to ``str``. Options without such a type are left out.

    Args:
        component: Class of the component.
        fixed: Arguments of the constructor that are not settings, with values for
            validation. Defaults to ``embed_dim``.
    """
    from pydantic import ConfigDict, Field, create_model, model_validator

    arguments = fixed or {"embed_dim": _WIDTH}
    hints = get_type_hints(component.__init__, include_extras=True)  # type: ignore[misc]
    descriptions = _descriptions(component)
    fields: dict[str, Any] = {}
    name = getattr(component, "recipe_name", None)
    if name is not None:
        fields["name"] = (Literal[name], name)
    for option, parameter in component_options(component, tuple(arguments)).items():
        annotation = _recipe_types(hints.get(option, Any))
        is_required = parameter.default is parameter.empty
        if annotation is None and is_required:
            raise TypeError(
                f"{option} of {component.__qualname__} must have a default or a type "
                f"that a recipe can contain, such as str, int or float, got "
                f"{hints[option]}."
            )
        if annotation is not None:
            default = ... if is_required else parameter.default
            field = Field(default, description=descriptions.get(option))
            fields[option] = (annotation, field)

    def check(self: Any) -> Any:
        _validate(component, arguments | self.model_dump(exclude={"name"}))
        return self

    def reduce(self: Any) -> Any:
        return _unpickle, (component, fixed, self.model_dump())

    settings = create_model(
        f"{component.__name__}Settings",
        __config__=ConfigDict(frozen=True, extra="forbid"),
        __doc__=f"Settings of `{component.__name__}`.",
        __module__=component.__module__,
        __validators__={
            "check": model_validator(mode="after")(check),  # type: ignore[dict-item]
            "names": model_validator(mode="before")(check_setting_names),  # type: ignore[dict-item]
        },
        **fields,
    )
    settings.__reduce__ = reduce  # type: ignore[method-assign]
    return settings


def check_setting_names(cls: type[Any], values: Any) -> Any:
    """Check the names of settings, as a validator of a pydantic model.

    Unlike the errors of ``extra="forbid"``, those raised here contain the valid names.

    Raises:
        ValidationError: If a setting is unknown.
    """
    from pydantic import ValidationError
    from pydantic_core import InitErrorDetails, PydanticCustomError

    unknown = set(values) - set(cls.model_fields) if isinstance(values, dict) else ()
    if not unknown:
        return values
    context = {"known": list(_setting_names(cls))}
    kind = PydanticCustomError("unknown_setting", "is not a valid setting", context)
    details = [
        InitErrorDetails(type=kind, loc=(name,), input=value)
        for name, value in values.items()
        if name in unknown
    ]
    raise ValidationError.from_exception_data(cls.__name__, details)


def _setting_names(settings: type[Any]) -> Iterator[str]:
    """Yield the names of settings, with dots for those of nested tables."""
    for name, field in settings.model_fields.items():
        yield name
        for table in (field.annotation, type(field.default)):
            if hasattr(table, "model_fields"):
                yield from (f"{name}.{inner}" for inner in _setting_names(table))
                break


def _unpickle(component: type, fixed: dict[str, Any], values: dict[str, Any]) -> Any:
    """Rebuild pickled settings, whose class is created at run time."""
    return settings_from(component, **fixed).model_validate(values)


class _NoInitialization(TorchFunctionMode):
    """Skip `torch.nn.init`: ``normal_`` on the meta device imports torch.compile."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        initializes = getattr(func, "__module__", None) == "torch.nn.init"
        if initializes or func is torch.Tensor.normal_:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _validate(component: type, arguments: Mapping[str, Any]) -> None:
    """Call the constructor to validate its arguments, without allocating memory."""
    rng = torch.random.fork_rng(devices=[])
    try:
        with rng, torch.device("meta"), _NoInitialization():
            component(**arguments)
    except TypeError as error:
        raise ValueError(str(error)) from error
    except (NotImplementedError, RuntimeError):
        return  # the constructor uses values, which meta tensors do not have


_SCALARS = (bool, int, float, str, NoneType)
_CONTAINERS = (list, tuple, dict, set, frozenset, Mapping, Sequence)


def _recipe_types(annotation: Any) -> Any:
    """Return the part of an annotation that a recipe can contain, or None."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        parts = [_recipe_types(part) for part in get_args(annotation)]
        valid = tuple(part for part in parts if part is not None)
        return Union[valid] if valid else None  # noqa: UP007
    if origin is Annotated:
        inner = _recipe_types(annotation.__origin__)
        return None if inner is None else Annotated[(inner, *annotation.__metadata__)]
    if annotation is Any or origin is Literal or annotation in _SCALARS:
        return annotation
    if (origin or annotation) in _CONTAINERS:
        parts = [part for part in get_args(annotation) if part is not Ellipsis]
        is_valid = all(_recipe_types(part) is not None for part in parts)
        return annotation if is_valid else None
    return None


def _descriptions(component: type) -> dict[str, str]:
    """Return the descriptions in the ``Args`` section of the constructor or class."""
    for docstring in (component.__init__.__doc__, component.__doc__):  # type: ignore[misc]
        _, heading, section = inspect.cleandoc(docstring or "").partition("Args:\n")
        if heading:
            section = re.split(r"\n(?=\S)", section)[0]
            entries = re.findall(
                r"^ {4}(\w+)(?: \([^)\n]*\))?: (.*?)(?=^ {4}\w|\Z)",
                section,
                re.M | re.S,
            )
            return {name: " ".join(text.split()) for name, text in entries}
    return {}
