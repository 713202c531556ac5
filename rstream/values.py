"""What a tuple may hold, and how it is written down: one encoding for links, snapshots and savepoints.

A batch of values becomes bytes that are the plain concatenation of its elements' encodings (MessagePack), so a running
checksum over a channel does not depend on where its batches were cut. The same value always gives the same bytes. The
common cases, a batch of str, int, float, bool, bytes or None and of flat tuples of these, are recognised by their
types and encoded at once; everything else goes through `_lower`, element by element. Nothing is ever unpickled.

At the top level an array is a tuple; nested in a value an array is a list and a tuple is an extension. So the fast
path needs no marks, and both come out with the type that went in.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import importlib
import struct
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import countOf
from types import NoneType
from typing import Any

import msgspec.msgpack as msgpack
import pydantic

from rstream.errors import ValueNotSupported

ATOMS = frozenset({str, int, float, bool, bytes, NoneType})

PLAIN, FLAT, GENERAL = 0, 1, 2
"""How a batch was encoded: atoms only; flat tuples of atoms only; anything."""


def kind_of(values: Sequence[Any]) -> int:
    """Which of PLAIN, FLAT and GENERAL a batch is; the first two hold nothing that can be changed in place.

    >>> kind_of(["a", 1]), kind_of([("a", 1)]), kind_of([["a"]])
    (0, 1, 2)
    """
    # The hot path of every emit. Nearly all batches are of one type, or of short tuples of the same types: asking just
    # that costs half of what looking at every type for itself does.
    if values:
        first = type(values[0])
        if first in ATOMS and countOf(map(type, values), first) == len(values):
            return PLAIN
        if first is tuple:
            return FLAT if _are_alike(values) or _are_flat(values) else GENERAL
    return PLAIN if ATOMS.issuperset(map(type, values)) else GENERAL


def _are_flat(values: Sequence[Any]) -> bool:
    """All are tuples of atoms, of whatever types and lengths."""
    for value in values:
        if type(value) is not tuple:
            return False
        for item in value:
            if type(item) not in ATOMS:
                return False
    return True


def _are_alike(values: Sequence[Any]) -> bool:
    """All are tuples of two to four atoms with the types of the first; False only says that this is not known."""
    shape = tuple(map(type, values[0]))
    if not ATOMS.issuperset(shape) or countOf(map(type, values), tuple) != len(values):
        return False
    try:
        match shape:
            case (first, second):
                for one, two in values:
                    if type(one) is not first or type(two) is not second:
                        return False
            case (first, second, third):
                for one, two, three in values:
                    if type(one) is not first or type(two) is not second or type(three) is not third:
                        return False
            case (first, second, third, fourth):
                for one, two, three, four in values:
                    if type(one) is not first or type(two) is not second:
                        return False
                    if type(three) is not third or type(four) is not fourth:
                        return False
            case _:
                return False
    except ValueError:
        return False  # they are not of one length
    return True


def encode(values: list[Any], kind: int | None = None) -> tuple[int, bytes]:
    """A batch as (kind, bytes); `decode` needs the number of values too. Give `kind` where `kind_of` is known.

    >>> kind, body = encode([("word", 3), ("other", 1)])
    >>> decode(kind, 2, body)
    [('word', 3), ('other', 1)]
    """
    if kind is None:
        kind = kind_of(values)
    if kind != GENERAL:
        try:
            return kind, _body(msgpack.encode(values), len(values))
        except (OverflowError, UnicodeEncodeError):
            pass  # an integer beyond 64 bits, or a str with lone surrogates
    return GENERAL, _body(msgpack.encode([_lower_top(value) for value in values]), len(values))


def decode(kind: int, count: int, body: bytes | memoryview) -> list[Any]:
    """The values of a batch made by `encode`, new objects each time."""
    packed = b"".join((_header(count), body))
    if kind == PLAIN:
        return _plain.decode(packed)
    if kind == FLAT:
        return _flat.decode(packed)
    return [_raise_top(value) for value in _general.decode(packed)]


def encode_one(value: Any) -> bytes:
    """One value as bytes, for state and messages.

    >>> decode_one(encode_one({"a": {1, 2}}))
    {'a': {1, 2}}
    """
    return msgpack.encode(_lower(value))


def decode_one(packed: bytes | memoryview) -> Any:
    """The value made by `encode_one`."""
    return _general_one.decode(packed)


def register_codec(cls: type, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
    """Let values of your class travel: `encode` to a supported value, `decode` back.

    >>> class Point:
    ...     def __init__(self, x, y): self.x, self.y = x, y
    >>> register_codec(Point, encode=lambda p: (p.x, p.y), decode=lambda pair: Point(*pair))
    >>> decode_one(encode_one(Point(1, 2))).y
    2
    """
    name = f"{cls.__module__}:{cls.__qualname__}"
    _codecs[cls] = (name, encode)
    _decoders[name] = decode


_codecs: dict[type, tuple[str, Callable[[Any], Any]]] = {}
_decoders: dict[str, Callable[[Any], Any]] = {}


def _header(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65536:
        return struct.pack(">BH", 0xDC, count)
    return struct.pack(">BI", 0xDD, count)


def _body(packed: bytes, count: int) -> bytes:
    return packed[1:] if count < 16 else packed[3:] if count < 65536 else packed[5:]


class Ext(enum.IntEnum):
    """The extension codes of the encoding; never renumber them, savepoints hold them."""

    TUPLE = 1
    LIST = 2
    DICT = 3
    SET = 4
    FROZENSET = 5
    BIG_INT = 6
    SURROGATES = 7
    COMPLEX = 8
    DATETIME = 9
    DATE = 10
    TIME = 11
    TIMEDELTA = 12
    DECIMAL = 13
    UUID = 14
    ENUM = 15
    DATACLASS = 16
    PYDANTIC = 17
    NAMEDTUPLE = 18
    NUMPY_SCALAR = 19
    NUMPY_ARRAY = 20
    CODEC = 21
    BYTEARRAY = 22
    FLAG = 23


def _ext(code: Ext, value: Any) -> msgpack.Ext:
    return msgpack.Ext(int(code), msgpack.encode(value))


def _lower_top(value: Any) -> Any:
    if type(value) is tuple:
        return [_lower(item) for item in value]
    if type(value) is list:
        return _ext(Ext.LIST, [_lower(item) for item in value])
    return _lower(value)


def _raise_top(value: Any) -> Any:
    # Extensions were raised by the hook, innermost first; a bare array here is a top-level tuple.
    cls = type(value)
    return tuple(value) if cls is list else list(value) if cls is _TopList else value


class _TopList(list[Any]):
    """A list of the top level on its way through the decoder, which would else look like a tuple."""


def _lower(value: Any) -> Any:
    """A value in terms of what MessagePack has, with extensions for the rest."""
    cls = type(value)
    if cls is int:
        return value if -(1 << 63) <= value < (1 << 64) else _ext(Ext.BIG_INT, _big_int(value))
    if cls is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return _ext(Ext.SURROGATES, value.encode("utf-8", "surrogatepass"))
        return value
    if cls in ATOMS:
        return value
    if cls is list:
        return [_lower(item) for item in value]
    lower = _LOWER.get(cls)
    if lower is not None:
        return lower(value)
    return _lower_by_family(cls, value)


def _big_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _lower_by_family(cls: type, value: Any) -> Any:
    if cls in _codecs:
        name, encoder = _codecs[cls]
        return _ext(Ext.CODEC, [name, _lower(encoder(value))])
    if isinstance(value, enum.Flag):
        return _ext(Ext.FLAG, [_path(cls), _lower(value.value)])  # a combination of flags has no name of its own
    if isinstance(value, enum.Enum):
        return _ext(Ext.ENUM, [_path(cls), value.name])
    if dataclasses.is_dataclass(cls):
        fields = [_lower(getattr(value, field.name)) for field in dataclasses.fields(cls)]
        return _ext(Ext.DATACLASS, [_path(cls), fields])
    if isinstance(value, pydantic.BaseModel):
        parts = [value.__dict__, value.__pydantic_extra__, value.__pydantic_private__]
        return _ext(Ext.PYDANTIC, [_path(cls), *map(_lower, parts), sorted(value.model_fields_set)])
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return _ext(Ext.NAMEDTUPLE, [_path(cls), [_lower(item) for item in value]])
    if cls.__module__ == "numpy":
        return _lower_numpy(value)
    raise ValueNotSupported(
        f"a value of type {cls.__module__}.{cls.__qualname__} cannot travel between tasks: "
        "emit built-in types, dataclasses, enums, pydantic models or numpy values, "
        "or call rstream.values.register_codec for this class"
    )


def _lower_numpy(value: Any) -> Any:
    import numpy as np

    if not isinstance(value, np.generic) and type(value) is not np.ndarray:
        raise ValueNotSupported(f"a numpy.{type(value).__name__} cannot travel between tasks: use a plain array")
    if value.dtype.hasobject or value.dtype.type is np.record:
        raise ValueNotSupported(f"a numpy value of dtype {value.dtype} cannot travel between tasks: use a typed array")
    # A record's dtype is a list of (name, dtype) in numpy's own file format, any other dtype a str.
    dtype = _lower(np.lib.format.dtype_to_descr(value.dtype))
    if isinstance(value, np.generic):
        return _ext(Ext.NUMPY_SCALAR, [dtype, value.tobytes()])
    return _ext(Ext.NUMPY_ARRAY, [dtype, list(value.shape), value.tobytes()])


def _path(cls: type) -> str:
    if "<locals>" in cls.__qualname__:
        raise ValueNotSupported(
            f"class {cls.__qualname__} is defined inside a function, so other processes cannot find it: "
            "move it to the top level of its module"
        )
    return f"{cls.__module__}:{cls.__qualname__}"


def _find(path: str) -> Any:
    module, _, qualname = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise ValueNotSupported(f"{path} is not a class, so no value of it can be read")
    return found


def _zone(tz: dt.tzinfo | None) -> Any:
    if tz is None:
        return None
    if isinstance(tz, dt.timezone):
        return [tz.utcoffset(None).total_seconds()]
    if isinstance(tz, zoneinfo.ZoneInfo) and tz.key is not None:
        return tz.key
    raise ValueNotSupported(f"a datetime with tzinfo {tz!r} cannot travel: use datetime.timezone or zoneinfo.ZoneInfo")


def _unzone(zone: Any) -> dt.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        return zoneinfo.ZoneInfo(zone)
    return dt.timezone(dt.timedelta(seconds=zone[0]))


def _lower_all(values: Iterable[Any]) -> list[Any]:
    return [_lower(value) for value in values]


def _lower_set(values: Iterable[Any]) -> list[Any]:
    # Equal sets must give equal bytes, and a set's own order depends on how it was built.
    return sorted(_lower_all(values), key=msgpack.encode)


_LOWER: dict[type, Callable[[Any], Any]] = {
    tuple: lambda v: _ext(Ext.TUPLE, _lower_all(v)),
    dict: lambda v: _ext(Ext.DICT, _lower_all(chain.from_iterable(v.items()))),
    set: lambda v: _ext(Ext.SET, _lower_set(v)),
    frozenset: lambda v: _ext(Ext.FROZENSET, _lower_set(v)),
    bytearray: lambda v: _ext(Ext.BYTEARRAY, bytes(v)),
    complex: lambda v: _ext(Ext.COMPLEX, [v.real, v.imag]),
    decimal.Decimal: lambda v: _ext(Ext.DECIMAL, str(v)),
    uuid.UUID: lambda v: _ext(Ext.UUID, v.bytes),
    dt.date: lambda v: _ext(Ext.DATE, v.toordinal()),
    dt.timedelta: lambda v: _ext(Ext.TIMEDELTA, [v.days, v.seconds, v.microseconds]),
    dt.time: lambda v: _ext(Ext.TIME, [v.hour, v.minute, v.second, v.microsecond, v.fold, _zone(v.tzinfo)]),
    dt.datetime: lambda v: _ext(
        Ext.DATETIME,
        [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold, _zone(v.tzinfo)],
    ),
}


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _raise_dataclass(content: list[Any]) -> Any:
    cls = _find(content[0])
    fields = dataclasses.fields(cls)
    value = object.__new__(cls)
    for field, item in zip(fields, content[1], strict=True):
        object.__setattr__(value, field.name, item)
    return value


def _raise_pydantic(content: list[Any]) -> Any:
    cls: type[pydantic.BaseModel] = _find(content[0])
    value = cls.__new__(cls)
    # As pydantic's own copy does: neither validators nor defaults run again on arrival.
    for name, part in zip(_PYDANTIC_PARTS, (*content[1:4], set(content[4])), strict=True):
        object.__setattr__(value, name, part)
    return value


_PYDANTIC_PARTS = ("__dict__", "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__")


def _raise_array(content: list[Any]) -> Any:
    import numpy as np

    descr, shape, data = content
    dtype = np.lib.format.descr_to_dtype(descr)
    if not data or not dtype.itemsize:  # numpy makes no array from an empty buffer, nor of empty items
        return np.zeros(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _raise_scalar(content: list[Any]) -> Any:
    return _raise_array([content[0], [1], content[1]])[0]


_RAISE: dict[int, Callable[[Any], Any]] = {
    Ext.TUPLE: tuple,
    Ext.LIST: _TopList,
    Ext.DICT: _pairs,
    Ext.SET: set,
    Ext.FROZENSET: frozenset,
    Ext.BIG_INT: lambda v: int.from_bytes(v, "little", signed=True),
    Ext.SURROGATES: lambda v: v.decode("utf-8", "surrogatepass"),
    Ext.BYTEARRAY: bytearray,
    Ext.COMPLEX: lambda v: complex(*v),
    Ext.DECIMAL: decimal.Decimal,
    Ext.UUID: lambda v: uuid.UUID(bytes=v),
    Ext.DATE: dt.date.fromordinal,
    Ext.TIMEDELTA: lambda v: dt.timedelta(*v),
    Ext.TIME: lambda v: dt.time(v[0], v[1], v[2], v[3], _unzone(v[5]), fold=v[4]),
    Ext.DATETIME: lambda v: dt.datetime(v[0], v[1], v[2], v[3], v[4], v[5], v[6], _unzone(v[8]), fold=v[7]),
    Ext.ENUM: lambda v: _find(v[0])[v[1]],
    Ext.FLAG: lambda v: _find(v[0])(v[1]),
    Ext.DATACLASS: _raise_dataclass,
    Ext.PYDANTIC: _raise_pydantic,
    Ext.NAMEDTUPLE: lambda v: _find(v[0])._make(v[1]),
    Ext.NUMPY_SCALAR: _raise_scalar,
    Ext.NUMPY_ARRAY: _raise_array,
    Ext.CODEC: lambda v: _decoders[v[0]](v[1]),
}


def _ext_hook(code: int, data: memoryview) -> Any:
    return _RAISE[code](_general_one.decode(data))


_plain = msgpack.Decoder(list)
_flat = msgpack.Decoder(list[tuple[Any, ...]])
_general = msgpack.Decoder(list, ext_hook=_ext_hook)
_general_one = msgpack.Decoder(ext_hook=_ext_hook)
