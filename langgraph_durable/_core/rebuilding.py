"""From unpacked records to objects: what a load may build, and what is said when it goes wrong.

`reader` makes the function that `serde.py` hands to ormsgpack as its hook. It asks the plan of a
record's class, or the maker of its kind, and `types.py` for classes. ormsgpack hides what a hook
raises, so hooks are wrapped by `remembering`, and what comes out of it is `explained`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from langgraph_durable._core.classes import Named
from langgraph_durable._core.kinds import (
    ARTIFACT,
    ENUM,
    EXCEPTION,
    MODEL,
    MODEL_V1,
    NAMEDTUPLE,
    RECORD,
    SUBCLASS,
    Plan,
)
from langgraph_durable._core.plans import MAKERS, PLANS, is_data
from langgraph_durable._core.types import Gate, name_of, unreachable
from langgraph_durable.errors import (
    CorruptionError,
    DurableError,
    SerializationError,
    UnsafeTypeError,
)

# ormsgpack replaces an exception of its hook by a bare ValueError: the first one is kept here.
_trouble = threading.local()


def remembering(hook: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
    """The same hook; what it raises is kept for `explained`."""

    def remembered(code: int, data: Any) -> Any:
        try:
            return hook(code, data)
        except BaseException as error:
            if not hasattr(_trouble, "error"):
                _trouble.error = error
            raise

    return remembered


def _is_crowded() -> bool:
    """Whether calls take up so much of the stack that a value may be sound which finds no room."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth > sys.getrecursionlimit() // 2


def explained(error: BaseException) -> BaseException:
    """Return the error to raise for what went wrong while loading."""
    cause = _trouble.__dict__.pop("error", error)
    if isinstance(cause, DurableError) or not isinstance(cause, Exception):
        return cause
    no_room = isinstance(cause, RecursionError) or str(cause) == "ext_hook failed"
    if no_room and _is_crowded():  # the latter where not even the hook could be called
        return SerializationError("the calls around this load leave no room to rebuild the value")
    corrupt = CorruptionError(f"stored bytes are not a value this serializer wrote: {cause}")
    corrupt.__cause__ = cause
    return corrupt


def only_data(cls: type) -> UnsafeTypeError:
    """The error for a record that names a class which is not of its kind."""
    module, _, qualname = name_of(cls).partition(":")
    return UnsafeTypeError(
        f"stored data names {module}.{qualname}, which is not the kind of data class its record "
        "claims. Only pydantic models, dataclasses, enums, named tuples, exceptions and "
        f"subclasses of builtins are rebuilt, also with types=[{module!r}]"
    )


def reader(gate: Gate, messages: dict[Any, Plan], shelf: Any = None) -> Callable[[int, Any], Any]:
    """Return the function that turns an unpacked record into its object.

    Artifacts are told their `shelf`, where they will find their content.

    It notes in `messages` the plans of the models of the `CORE` table that it has met, so that the
    next one need not come here.
    """
    core: dict[int, Plan] = {}
    may_be_plain = gate.plain or bool(gate.moves)

    def rebuild(code: int, inner: Any) -> Any:
        make = MAKERS.get(code)
        if make is not None:
            made = make(inner)
            if code == ARTIFACT and shelf is not None:
                made.lie_on(shelf)
            return made
        if not SUBCLASS <= code <= MODEL_V1:
            raise CorruptionError(f"there is no record of kind {code}")
        if type(inner) is not list:
            raise CorruptionError("a record is not a list")
        ref = inner[0]
        if may_be_plain and gate.reads_plainly(ref):
            return _plainly(code, inner)
        plan = core.get(ref) if type(ref) is int else None
        if plan is None:
            plan = PLANS[gate.find(ref, is_data)]
            if type(ref) is int:
                core[ref] = plan
                if plan.code == MODEL:
                    messages[ref] = plan
            elif type(ref) is str and not gate.moves and not _fits(plan, code, inner):
                namesakes = (PLANS[cls] for cls in unreachable(ref))
                plan = next((each for each in namesakes if _fits(each, code, inner)), plan)
        if plan.code != code:
            fields = _plainly(code, inner) if gate.moves else None
            if type(fields) is dict and isinstance(plan, Named):
                return plan.construct(fields, lambda known: plan.cls(**known))
            raise only_data(plan.cls)
        return plan.rebuild(inner)

    return rebuild


def _fits(plan: Plan, code: int, inner: list[Any]) -> bool:
    """Whether a record is of this plan's kind, and of a class with the same fields."""
    return plan.code == code and getattr(plan, "fingerprint", inner[1]) == inner[1]


def _plainly(code: int, inner: Any) -> Any:
    """What a record of a user's class holds, without the class."""
    if code == MODEL and len(inner) > 4:
        return {**inner[3], **(inner[4] or {})}
    if code == EXCEPTION:
        return {"args": inner[1], **inner[2]}
    return inner[_CONTENT[code]]


_CONTENT = {MODEL: 3, MODEL_V1: 2, RECORD: 2, NAMEDTUPLE: 2, ENUM: 1, SUBCLASS: 1}
