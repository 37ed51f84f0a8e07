"""Plans of pydantic models, of both generations.

A conversation is made of them, so encoding and rebuilding one is all in one function here. They
are rebuilt by setting their slots: nothing is validated unless the fields of the class have
changed since.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from langgraph_durable._core.classes import Named, fingerprint_of, storable
from langgraph_durable._core.kinds import MODEL, MODEL_V1, Pack, exactly
from langgraph_durable._core.types import IsData, class_attribute, name_of
from langgraph_durable.errors import CorruptionError

_new, _set = object.__new__, object.__setattr__
# The slots of every model; setting through them is twice as fast as by name.
_set_fields_set, _set_extra, _set_private = (
    BaseModel.__dict__[f"__pydantic_{slot}__"].__set__
    for slot in ("fields_set", "extra", "private")
)
_set_values = BaseModel.__dict__["__dict__"].__set__


def _default(private: Any) -> Any:
    """What a new object would have there; pydantic 2.14 calls a factory only when asked to."""
    factory = getattr(private, "default_factory", None)
    return private.get_default() if factory is None else factory()


class ModelPlan(Named):
    """A pydantic model: `__dict__`, which fields were set, extras and private attributes.

    The usual model has no extras and no private attributes, and its record says nothing of them.
    """

    code = MODEL

    def __init__(self, cls: type, is_data: IsData) -> None:
        super().__init__(cls, is_data)
        self.infos = class_attribute(cls, "__pydantic_fields__") or {}
        self.fields = tuple(self.infos)
        self.fingerprint = fingerprint_of(self.fields)
        self.bits = {name: 1 << n for n, name in enumerate(self.fields)}
        self.sets: dict[int, frozenset[str]] = {}
        config = class_attribute(cls, "model_config") or {}
        self.extra: dict[str, Any] | None = {} if config.get("extra") == "allow" else None
        self.private: dict[str, Any] = class_attribute(cls, "__private_attributes__") or {}

    def encode(self, obj: Any, pack: Pack) -> bytes:
        fields_set: Any = 0
        bits = self.bits
        try:
            for name in obj.__pydantic_fields_set__:
                fields_set |= bits[name]
        except KeyError:  # extras count as set too
            fields_set = sorted(obj.__pydantic_fields_set__)
        extra, private = obj.__pydantic_extra__, obj.__pydantic_private__
        body = [self.ref, self.fingerprint, fields_set, obj.__dict__]
        if private is not None or extra != self.extra:
            body += [extra, None if private is None else storable(private, pack)]
            body[-1] = body[-1] and list(body[-1])
        return pack(body)

    def rebuild(self, inner: Any) -> Any:
        if len(inner) == 4:
            _, fingerprint, fields_set, values = inner
            extra: dict[str, Any] | None = None if self.extra is None else {}
            private = None
        else:
            _, fingerprint, fields_set, values, extra, private = inner
            if extra is not None:
                exactly(dict, extra)
            if private is not None:
                private = self._private(*exactly(list, private))
        if type(values) is not dict:
            raise CorruptionError(f"a stored {name_of(self.cls)} has no fields")
        if fingerprint != self.fingerprint:
            return self.construct(values | (extra or {}), self._validate)
        made: Any = _new(self.cls)
        _set_values(made, values)
        names = self.sets.get(fields_set) if type(fields_set) is int else None
        _set_fields_set(made, self._names(fields_set) if names is None else set(names))
        _set_extra(made, extra)
        _set_private(made, private)
        return made

    def _names(self, fields_set: Any) -> set[str]:
        if type(fields_set) is list:
            return set(fields_set)
        names = self.sets.get(fields_set)
        if names is None:
            names = frozenset(name for name, bit in self.bits.items() if fields_set & bit)
            if len(self.sets) < 256:  # what is stored must not fill the memory
                self.sets[fields_set] = names
        return set(names)

    def _private(self, kept: dict[str, Any], left: list[str]) -> dict[str, Any]:
        """Give attributes that could not be stored the value that a new object would have."""
        exactly(dict, kept)
        for name in exactly(list, left):
            default = _default(self.private[name]) if name in self.private else ...
            if default is not ... and type(default).__name__ != "PydanticUndefinedType":
                kept[name] = default
        return kept

    def _validate(self, known: dict[str, Any]) -> Any:
        def key(name: str) -> str:
            alias = self.infos[name].validation_alias
            return alias if isinstance(alias, str) else name

        return self.cls(**{key(name): value for name, value in known.items()})


class ModelV1Plan(Named):
    """A model of pydantic's first generation, through the `pydantic.v1` module."""

    code = MODEL_V1

    def __init__(self, cls: type, is_data: IsData) -> None:
        super().__init__(cls, is_data)
        self.fields = tuple(class_attribute(cls, "__fields__") or ())
        self.fingerprint = fingerprint_of(self.fields)
        self.private: dict[str, Any] = class_attribute(cls, "__private_attributes__") or {}

    def encode(self, obj: Any, pack: Pack) -> bytes:
        private = {name: getattr(obj, name) for name in self.private if hasattr(obj, name)}
        kept = list(storable(private, pack))
        names = sorted(obj.__fields_set__)
        return pack([self.ref, self.fingerprint, obj.__dict__, names, kept])

    def rebuild(self, inner: Any) -> Any:
        _, fingerprint, values, names, (kept, left) = inner
        if fingerprint != self.fingerprint:
            return self.construct(values, lambda known: self.cls(**known))
        made: Any = _new(self.cls)
        _set(made, "__dict__", exactly(dict, values))
        _set(made, "__fields_set__", set(exactly(list, names)))
        # Only the slots of private attributes: another name might lead to a property.
        for name, value in exactly(dict, kept).items():
            if name in self.private:
                _set(made, name, value)
        for name in exactly(list, left):
            _set(made, name, _default(self.private[name]))
        return made
