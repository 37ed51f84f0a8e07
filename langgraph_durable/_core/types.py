"""Which stored type names may be turned back into classes.

`classes.py` writes a class as a reference: a number of the `CORE` table, "module:qualname", or
`[reference, arguments]` for a parametrised pydantic model. `serde.py` owns one `Gate` and asks it
for the class behind a reference. The gate looks names up in `sys.modules` and in `__dict__`s, never
with `getattr` (a module's `__getattr__`, PEP 562, a lazy module or a metaclass would run code), and
imports only what its owner allowed. Whether a class is data at all is `plans.py`'s verdict; it
comes here as `is_data`, for the type arguments of generic models.
"""

from __future__ import annotations

import collections.abc
import functools
import importlib
import operator
import pathlib
import sys
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from weakref import WeakValueDictionary

from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES

from langgraph_durable.errors import (
    ConfigurationError,
    CorruptionError,
    SerializationError,
    UnsafeTypeError,
)

Reference = Any  # int | str | list: what msgpack gives back
IsData = Callable[[type], bool]

# Stored data holds positions in this table: append only, never reorder or remove.
CORE = (
    "langchain_core.messages.base:BaseMessage",
    "langchain_core.messages.base:BaseMessageChunk",
    "langchain_core.messages.human:HumanMessage",
    "langchain_core.messages.human:HumanMessageChunk",
    "langchain_core.messages.ai:AIMessage",
    "langchain_core.messages.ai:AIMessageChunk",
    "langchain_core.messages.system:SystemMessage",
    "langchain_core.messages.system:SystemMessageChunk",
    "langchain_core.messages.chat:ChatMessage",
    "langchain_core.messages.chat:ChatMessageChunk",
    "langchain_core.messages.tool:ToolMessage",
    "langchain_core.messages.tool:ToolMessageChunk",
    "langchain_core.messages.function:FunctionMessage",
    "langchain_core.messages.function:FunctionMessageChunk",
    "langchain_core.messages.modifier:RemoveMessage",
    "langchain_core.documents.base:Document",
    "langchain_core.messages.base:TextAccessor",
    "langgraph.types:Send",
    "langgraph.types:TimeoutPolicy",
    "langgraph.types:Interrupt",
    "langgraph.types:Command",
    "langgraph.types:StateSnapshot",
    "langgraph.types:PregelTask",
    "langgraph.types:Overwrite",
    "langgraph.store.base:Item",
    "langgraph.store.base:SearchItem",
    "langgraph.checkpoint.serde.types:_DeltaSnapshot",
    "pydantic.types:SecretStr",
    "pydantic.types:SecretBytes",
    "pydantic.v1.types:SecretStr",
    "pydantic.v1.types:SecretBytes",
)
CORE_NUMBER = {name: number for number, name in enumerate(CORE)}

# What LangGraph has called its own classes before. (Its modules still know the old names, but only
# through a `__getattr__`.)
_FORMER = {
    "langgraph.constants:Send": "langgraph.types:Send",
    "langgraph.constants:Interrupt": "langgraph.types:Interrupt",
}

# Classes that their own name does not lead to (made inside a function, by a call ...), by name.
# Filled when such a class is stored, so that it comes back within the same process.
_unreachable: dict[str, WeakValueDictionary[int, type]] = {}

_mro = type.__dict__["__mro__"].__get__
_module = type.__dict__["__module__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_flags = type.__dict__["__flags__"].__get__
_namespace = vars(types.ModuleType)["__dict__"].__get__
_ABSENT = object()
_HEAP_TYPE = 1 << 9  # set on all classes made by a class statement, and on some written in C


def is_class(value: object) -> bool:
    """Tell whether `value` is a class, without asking its own `__class__` (proxies lie)."""
    return issubclass(type(value), type)


def lineage(cls: type) -> tuple[type, ...]:
    """Return the classes that `cls` inherits from, itself first, whatever its metaclass does."""
    found: tuple[type, ...] = _mro(cls)
    return found


def is_c(cls: type) -> bool:
    """Tell whether `cls` is written in C, so that its objects may hold more than they show."""
    # Extensions make heap types too, whose `__new__` is one of C: pandas does for its Timestamp.
    made = type.__getattribute__(cls, "__dict__").get("__new__")
    return not _flags(cls) & _HEAP_TYPE or type(made) is types.BuiltinMethodType


def class_attribute(cls: type, name: str) -> Any:
    """Return a class attribute as it is stored, or None: no descriptor or metaclass code runs."""
    for owner in lineage(cls):
        found = type.__getattribute__(owner, "__dict__").get(name, _ABSENT)
        if found is not _ABSENT:
            return found
    return None


def name_of(cls: type) -> str:
    """Return "module:qualname", whatever the metaclass would say."""
    return f"{_module(cls)}:{_qualname(cls)}"


def _look_up(module: object, qualname: str) -> object:
    """Follow a qualified name through `__dict__`s only; None when it leads nowhere."""
    if not issubclass(type(module), types.ModuleType):
        return None
    # A LazyLoader module imports itself on any attribute access, apipkg's on that of `__dict__`.
    space = _namespace(module)
    found: Any = None
    # `Box[int]`, made where a module says so, is known there by that name, dots and all.
    for part in [qualname] if "[" in qualname else qualname.split("."):
        found = space.get(part)
        if not is_class(found):
            return None
        space = type.__getattribute__(found, "__dict__")
    return found


def reference_to(cls: type, is_data: IsData) -> Reference:
    """Return what is stored in place of `cls`."""
    generic = class_attribute(cls, "__pydantic_generic_metadata__")
    if generic and generic["origin"] is not None:
        try:
            arguments = [_spell(arg, is_data) for arg in generic["args"]]
        except SerializationError:
            if _reached(cls) is not cls:
                raise
        else:
            return [reference_to(generic["origin"], is_data), arguments]
    name, reached = name_of(cls), _reached(cls)
    if reached is cls and name in CORE_NUMBER:
        return CORE_NUMBER[name]
    if reached is not cls:
        _unreachable.setdefault(name, WeakValueDictionary())[id(cls)] = cls
    return name


def unreachable(name: str) -> list[type]:
    """The classes stored by this process under a name that does not lead to them, newest first."""
    return [*_unreachable[name].values()][::-1] if name in _unreachable else []


def _reached(cls: type) -> object:
    """What the name of a class leads to."""
    module = sys.modules.get(_module(cls))
    return None if module is None else _look_up(module, _qualname(cls))


# Type arguments of a generic model are spelt as a name, a class reference or [form, arguments].
# `typing.List[int]` is not `list[int]`: pydantic makes two classes of them.
_ABSTRACT = "Collection Iterable Mapping MutableMapping MutableSequence MutableSet Sequence Set"
_ALIASES = (
    "AbstractSet Collection DefaultDict Deque Dict FrozenSet Iterable List Mapping MutableMapping "
    "MutableSequence MutableSet OrderedDict Sequence Set Tuple Type"
)
_BUILTIN: dict[str, type] = {
    **{form.__name__: form for form in (list, dict, tuple, set, frozenset, type)},
    **{form.__name__: form for form in (defaultdict, deque, OrderedDict)},
    **{f"abc.{name}": getattr(collections.abc, name) for name in _ABSTRACT.split()},
}
_TYPING: dict[str, Any] = {f"typing.{name}": getattr(typing, name) for name in _ALIASES.split()}
_FORMS: dict[str, Any] = {
    **_BUILTIN,
    **_TYPING,
    "Union": typing.Union,
    "Literal": Literal,
}
_BUILTIN_NAMES = {form: name for name, form in _BUILTIN.items()}
_OTHER_NAMES = {
    typing.get_origin(form) or form: name for name, form in _FORMS.items() if name not in _BUILTIN
}
_PLAIN: dict[str, Any] = {
    **{t.__name__: t for t in (int, str, float, bool, bytes, complex, object)},
    **{t.__name__: t for t in (pathlib.Path, pathlib.PurePath)},
    **_BUILTIN,
    **_TYPING,
    "Any": Any,
    "None": type(None),
    "none": None,
    "...": ...,
}


def _spell(arg: Any, is_data: IsData) -> Any:
    for name, plain in _PLAIN.items():
        if arg is plain:
            return name
    origin = typing.get_origin(arg)
    if origin is types.UnionType:  # `A | B`, which pydantic does not take for `Union[A, B]`
        return ["|", [_spell(a, is_data) for a in typing.get_args(arg)]]
    names = _BUILTIN_NAMES if isinstance(arg, types.GenericAlias) else _OTHER_NAMES
    if origin is not None and (form := names.get(origin)) is not None:
        inner = typing.get_args(arg)
        literal = origin is Literal
        return [form, list(inner) if literal else [_spell(a, is_data) for a in inner]]
    if is_class(arg) and origin is None and is_data(arg):
        return ["class", reference_to(arg, is_data)]
    raise SerializationError(f"the type argument {arg!r} of a generic model cannot be stored")


@dataclass(frozen=True, slots=True)
class Gate:
    """What one serializer may rebuild: `names` may be imported, `classes` are given by object."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    classes: dict[str, type] = field(default_factory=dict)
    moves: dict[str, str | type | None] = field(default_factory=dict)
    """Classes by dotted name that are elsewhere now; None for one to be read as a dict."""
    plain: bool = False
    """No class of the user's is built at all: records are read as dicts."""

    def allowing(self, extra: Iterable[object]) -> Gate:
        """Return a gate that also lets through LangGraph's `(module, name)` tuples and classes."""
        names, classes = set(self.names), dict(self.classes)
        if isinstance(extra, str) or not isinstance(extra, Iterable):
            raise ConfigurationError(
                f"classes and (module, name)s to allow are a list, not {extra!r}"
            )
        for item in extra:
            if is_class(item):
                classes[name_of(item)] = item  # type: ignore[arg-type,assignment]
            elif isinstance(item, tuple) and item and all(isinstance(part, str) for part in item):
                names.add(".".join(item))
            else:
                raise ConfigurationError(f"cannot allow {item!r}: give a class or (module, name)")
        return replace(self, names=frozenset(names), classes=classes)

    def reads_plainly(self, reference: Reference) -> bool:
        """Whether a record of this class is to be read as plain data."""
        if type(reference) is list and reference:
            reference = reference[0]
        if type(reference) is not str:
            return False
        return self.plain or self.moves.get(reference.replace(":", "."), "") is None

    def _moved(self, reference: str, is_data: IsData) -> type | None:
        """Today's class, where the programmer has said that it has moved."""
        target = self.moves.get(reference.replace(":", "."))
        if target is None or isinstance(target, type):
            return target
        parts = target.split(".")
        for at in range(len(parts) - 1, 0, -1):
            module, qualname = ".".join(parts[:at]), ".".join(parts[at:])
            found = self.classes.get(f"{module}:{qualname}")
            if found is None:
                found = _imported(module, qualname)
            if found is not None:
                return found
        raise UnsafeTypeError(f"{reference} was moved to {target}, but no such class is there")

    def may_import(self, module: str, qualname: str) -> bool:
        """Tell whether `module` may be imported to find `qualname` in it."""
        if self.everything or f"{module}:{qualname}" in CORE_NUMBER:
            return True
        if (module, qualname) in SAFE_MSGPACK_TYPES:
            return True
        parts = f"{module}.{qualname}".split(".")
        return any(".".join(parts[:n]) in self.names for n in range(1, len(parts) + 1))

    def find(self, reference: Reference, is_data: IsData) -> type:
        """Return the class behind a reference, or refuse without running anything."""
        if type(reference) is int and 0 <= reference < len(CORE):
            reference = CORE[reference]
        if type(reference) is list and len(reference) == 2:
            return self._parametrise(self.find(reference[0], is_data), reference[1], is_data)
        if type(reference) is not str:
            raise CorruptionError(f"{reference!r} is not a reference to a class")
        reference = _FORMER.get(reference, reference)
        if self.moves and (moved := self._moved(reference, is_data)) is not None:
            return moved
        if (given := self.classes.get(reference)) is not None:
            return given
        module_name, _, qualname = reference.partition(":")
        module = sys.modules.get(module_name)
        if module is None and "<locals>" not in qualname and self.may_import(module_name, qualname):
            try:
                module = importlib.import_module(module_name)
            except ImportError as error:
                raise UnsafeTypeError(
                    f"{module_name}.{qualname} cannot be rebuilt: {error}"
                ) from error
        found = _look_up(module, qualname) if module is not None else None
        if found is None:
            found = next(iter(unreachable(reference)), None)
        if found is None:
            raise UnsafeTypeError(_refusal(module_name, qualname, module is not None))
        return found  # type: ignore[return-value]

    def _parametrise(self, cls: type, arguments: Any, is_data: IsData) -> type:
        from pydantic import BaseModel

        if BaseModel not in lineage(cls) or type(arguments) is not list:
            raise UnsafeTypeError(f"{name_of(cls)} is not a generic pydantic model")
        args = tuple(self._read_spelling(arg, is_data) for arg in arguments)
        made: type = BaseModel.__class_getitem__.__func__(cls, args)  # type: ignore[attr-defined]
        return made

    def _read_spelling(self, spelt: Any, is_data: IsData) -> Any:
        if type(spelt) is str:
            return _PLAIN[spelt]
        form, arguments = spelt
        if form == "class":
            found = self.find(arguments, is_data)
            # pydantic asks an argument how to validate: ImportString would import what data names.
            if not is_data(found):
                raise UnsafeTypeError(
                    f"stored data names {name_of(found)} as a type argument, which is no data class"
                )
            return found
        if form == "Literal":
            return Literal[tuple(arguments)]
        inner = tuple(self._read_spelling(arg, is_data) for arg in arguments)
        return functools.reduce(operator.or_, inner) if form == "|" else _FORMS[form][inner]


def _imported(module: str, qualname: str) -> type | None:
    """A class that the programmer has named, so its module may be imported."""
    try:
        return _look_up(importlib.import_module(module), qualname)  # type: ignore[return-value]
    except ImportError:
        return None


def _refusal(module: str, qualname: str, imported: bool) -> str:
    name = f"{module}.{qualname}"
    if "<locals>" in qualname or imported:
        last = qualname.rpartition(".")[2]
        why = "it is defined inside a function" if "<locals>" in qualname else "no such class there"
        return (
            f"stored data names {name}, but {why}: pass the class, types=[{last}], or say with a "
            'schema where it is now (move_class), or read it as a dict (load_as_dict, "plain")'
        )
    return (
        f"stored data names {name}, whose module is not imported: import it before loading, "
        f"or allow it with types=[{module!r}]; if it has moved, say so with a schema's move_class"
    )


def gate_for(allowed: object) -> Gate:
    """Turn the public `types=` argument into a gate, or say what is wrong with it."""
    if allowed == "safe":
        return Gate()
    if allowed == "any":
        return Gate(everything=True)
    if allowed == "plain":
        return Gate(plain=True)
    if isinstance(allowed, (str, bytes)) or not isinstance(allowed, Iterable):
        raise ConfigurationError(
            'types must be "safe", "any", "plain" or a list of module names, class names and '
            f"classes, not {allowed!r}"
        )
    names: set[str] = set()
    classes: dict[str, type] = {}
    for item in allowed:
        if is_class(item):
            classes[name_of(item)] = item
        elif isinstance(item, str) and all(part.isidentifier() for part in item.split(".")):
            names.add(item)
        else:
            raise ConfigurationError(f"types: {item!r} is neither a dotted name nor a class")
    return Gate(names=frozenset(names), classes=classes)
