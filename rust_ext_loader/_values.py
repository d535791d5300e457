"""
Value classes: what the toolkit uses of `dataclasses`, without its cost at import.

`dataclasses` imports `inspect`, and compiles the methods of each class when the class
is defined. That took nearly half of the time to import the modules of a decision. Here
all value classes share the same methods. Calling them is slower, but a decision creates
only hundreds of values.

Type checkers see `dataclasses` itself. Constructor, equality, hash and `repr` are those of
`dataclasses` for the options that the parameters below name. Errors are of the types
`TypeError` and `AttributeError`. The functions of `dataclasses` (`fields`, `replace`,
`asdict`) accept values of these classes.

Invariant: annotations are strings (`from __future__ import annotations`).
"""
# ruff: noqa: ANN401 - the methods serve values of any class

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import KW_ONLY, dataclass, field, replace
    from typing import Any
else:
    #: `_: KW_ONLY` makes the fields below it keyword-only.
    KW_ONLY = None

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, kw_only: bool = False
    ) -> Any:
        """
        Make a class a value class; used as `@dataclass` or with options.
        """

        def convert(cls: type) -> type:
            return _value_class(cls, frozen=frozen, slots=slots, kw_only=kw_only)

        return convert if cls is None else convert(cls)

    def field(
        *,
        default: object = ...,
        default_factory: Callable[[], object] | None = None,
        kw_only: bool = False,
        compare: bool = True,
    ) -> Any:
        """
        A field with options. With *compare* false, equality and hash ignore it.
        """
        return _Field(default, default_factory, kw_only=kw_only, compare=compare)

    def replace(value: Any, /, **changes: object) -> Any:
        """
        A copy of a value with some fields changed.
        """
        return type(value)(**{**{one.name: getattr(value, one.name) for one in value.__value_fields__}, **changes})


__all__ = ["KW_ONLY", "dataclass", "field", "replace"]


class _Field:
    """
    One field of a value class; the default `...` means that the field has no default.
    """

    __slots__ = ("annotation", "compare", "default", "factory", "kw_only", "name")

    def __init__(
        self,
        default: object = ...,
        factory: Callable[[], object] | None = None,
        *,
        kw_only: bool = False,
        compare: bool = True,
    ) -> None:
        self.name = self.annotation = ""
        self.default = default
        self.factory = factory
        self.kw_only = kw_only
        self.compare = compare


class _DataclassFields:
    """
    The attribute by which `dataclasses` recognises a class; made when it is first read.
    """

    def __get__(self, value: object, owner: Any) -> dict[str, Any]:
        import dataclasses

        fields = []
        for one in owner.__value_fields__:
            options: dict[str, Any] = {"kw_only": one.kw_only, "compare": one.compare}
            if one.factory is not None:
                options["default_factory"] = one.factory
            elif one.default is not ...:
                options["default"] = one.default
            fields.append((one.name, one.annotation, dataclasses.field(**options)))
        twin: Any = dataclasses.make_dataclass(owner.__name__, fields)
        owner.__dataclass_fields__ = twin.__dataclass_fields__
        found: dict[str, Any] = owner.__dataclass_fields__
        return found


def _value_class(cls: type, *, frozen: bool, slots: bool, kw_only: bool) -> type:
    """
    The class with its fields and the shared methods. With *slots* it is a new class, because slots cannot be added.
    """
    body = dict(cls.__dict__)
    # Fields of a base class come first, as in `dataclasses`.
    fields = {one.name: one for one in getattr(cls, "__value_fields__", ())}
    inherited = tuple(fields)
    for name, annotation in cls.__annotations__.items():
        if annotation == "KW_ONLY":
            kw_only = True
            continue
        default = body.pop(name, ...)
        one = default if isinstance(default, _Field) else _Field(default)
        one.name, one.annotation, one.kw_only = name, annotation, one.kw_only or kw_only
        fields[name] = one
    shared: dict[str, object] = {
        "__value_fields__": tuple(fields.values()),
        "__dataclass_fields__": _DataclassFields(),
        "__match_args__": tuple(one.name for one in fields.values() if not one.kw_only),
        "__init__": _init,
        "__repr__": _repr,
        "__eq__": _eq,
        "__hash__": _hash if frozen else None,
        "__reduce__": _reduce,
    }
    if frozen:
        shared |= {"__setattr__": _refuse, "__delattr__": _refuse}
    if slots:
        shared["__slots__"] = tuple(name for name in fields if name not in inherited)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    made: type = type(cls)(cls.__name__, cls.__bases__, {**body, **shared})
    return made


def _init(self: Any, /, *positional: object, **named: object) -> None:
    names = self.__match_args__
    if len(positional) > len(names):
        raise TypeError(f"{type(self).__name__}() takes {len(names)} positional arguments, not {len(positional)}")
    values = dict(zip(names, positional, strict=False))
    if twice := values.keys() & named.keys():
        raise TypeError(f"{type(self).__name__}() got {min(twice)!r} twice")
    values.update(named)
    for one in self.__value_fields__:
        if one.name in values:
            value = values.pop(one.name)
        elif one.factory is not None:
            value = one.factory()
        elif one.default is not ...:
            value = one.default
        else:
            raise TypeError(f"{type(self).__name__}() lacks the argument {one.name!r}")
        object.__setattr__(self, one.name, value)
    if values:
        raise TypeError(f"{type(self).__name__}() has no field {min(values)!r}")


def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in self.__value_fields__)
    return f"{type(self).__qualname__}({shown})"


def _compared(value: Any) -> tuple[object, ...]:
    return tuple([getattr(value, one.name) for one in value.__value_fields__ if one.compare])


def _eq(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _reduce(self: Any) -> tuple[object, ...]:
    """
    How `copy` and `pickle` make the value again. Their default assigns to slots, which a frozen value refuses.
    """
    return _restored, (type(self), tuple([getattr(self, one.name) for one in self.__value_fields__]))


def _restored(cls: Any, values: tuple[object, ...]) -> object:
    value = object.__new__(cls)
    for one, content in zip(cls.__value_fields__, values, strict=True):
        object.__setattr__(value, one.name, content)
    return value


def _refuse(self: object, name: str, *_value: object) -> None:
    from dataclasses import FrozenInstanceError  # imported only for the error

    raise FrozenInstanceError(f"{type(self).__name__} is frozen: {name!r} cannot be changed")
