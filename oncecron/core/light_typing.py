"""Provide `NamedTuple` and `TYPE_CHECKING` without `typing`, whose import (with `re`, ...) costs a firing a third.

Every host pays for its imports at every tick. So the modules that a firing imports (`core`, `config`, `run`, `stores`)
take these two from here. They import `typing` only for the type checker, under `if TYPE_CHECKING`. Annotations are
never evaluated (`from __future__ import annotations`). A test lists what a firing imports.
"""

from __future__ import annotations

# ruff: noqa: ANN001, ANN002, ANN003, ANN202, ANN204 - the type checker sees the class of `typing`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - a re-export
else:
    try:
        from _collections import _tuplegetter as _field  # what `collections.namedtuple` uses

        if _field(1, None).__get__(("", "second"), tuple) != "second":
            raise ImportError  # noqa: TRY301 - it has another meaning on this Python
    except (ImportError, TypeError, AttributeError):

        def _field(place, doc):
            return property(lambda values: tuple.__getitem__(values, place), doc=doc)

    class _Fields(type):
        """Makes a class body with annotations a tuple's class, 15 times as fast as `typing.NamedTuple`."""

        def __new__(cls, name, bases, body):
            """Turn the annotations of the body into the fields of the tuple."""
            del bases
            annotations = body.get("__annotations__")
            # A module that evaluates them, when they are asked for (PEP 649).
            if annotations is None:
                annotations = type(name, (), dict(body)).__annotations__
            fields = tuple(annotations)
            body["_fields"] = body["__match_args__"] = fields
            body["_field_defaults"] = {field: body[field] for field in fields if field in body}
            body["__slots__"] = ()
            for place, field in enumerate(fields):
                body[field] = _field(place, None)
            # Not of a common class: each base is searched for some ninety special methods when a class is made, which
            # is most of what that costs, and a firing makes sixty.
            return type(name, (tuple,), _METHODS | body)

    def _new(cls, *values, **named):
        fields = cls._fields
        if named or len(values) != len(fields):
            rest, others = fields[len(values) :], cls._field_defaults
            try:
                values += tuple([named.pop(f) if f in named else others[f] for f in rest])
            except KeyError as error:
                raise TypeError(f"{cls.__name__} lacks {error}") from None
            if named or len(values) > len(fields):
                raise TypeError(f"{cls.__name__} takes {', '.join(fields)}, not {values} {named}")
        return tuple.__new__(cls, values)

    def _make(cls, values):
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}, not {values}")
        return made

    def _replace(self, **named):
        values = [named.pop(field, value) for field, value in zip(self._fields, self, strict=True)]
        if named:
            raise ValueError(f"{type(self).__name__} has no {', '.join(named)}")
        return tuple.__new__(type(self), values)

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _shown(self):
        fields = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    _METHODS = {
        "__new__": _new, "_make": classmethod(_make), "_replace": _replace, "_asdict": _asdict,
        "__repr__": _shown, "__getnewargs__": lambda self: (*self,),  # for `copy` and `pickle`
    }  # fmt: skip
    NamedTuple = type.__new__(_Fields, "NamedTuple", (), {})
