"""Parses `tf.train.Example` by protobuf: features by name, each a list of bytes, float32 or int64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from samplerkit.storage.files.packages import extra

_BYTES, _FLOAT, _INT64, _STRING, _MESSAGE = 12, 2, 3, 9, 11
"""Types of fields, as in protobuf's `FieldDescriptorProto`."""
_ONE, _MANY = 1, 3
_SCHEMA: Final[dict[str, tuple[tuple[str, int, int, str], ...]]] = {
    "Example": (("features", _MESSAGE, _ONE, "Features"),),
    "Features": (("entries", _MESSAGE, _MANY, "Entry"),),  # on the wire a map is a list of its entries
    "Entry": (("key", _STRING, _ONE, ""), ("value", _MESSAGE, _ONE, "Feature")),
    "Feature": tuple((name, _MESSAGE, _ONE, name) for name in ("Bytes", "Floats", "Integers")),
    "Bytes": (("values", _BYTES, _MANY, ""),),
    "Floats": (("values", _FLOAT, _MANY, ""),),
    "Integers": (("values", _INT64, _MANY, ""),),
}
"""The fields of each message, in the order of their numbers: name, type, label, and type of a message."""


def example_of(record: bytes) -> dict[str, Any]:
    """Reads an Example.

    Returns:
        A dict of features, sorted by name because protobuf maps have no order: an array of int64 or float32,
        or a list of bytes; None if a feature holds no list.

    Raises:
        ValueError: the record has other fields than an Example, or a list has values of another type.
        google.protobuf.message.DecodeError: it is no message.

    Example:
        >>> example_of(bytes([10, 13, 10, 11, 10, 1, 120, 18, 6, 26, 4, 10, 2, 7, 9]))
        {'x': array([7, 9])}
    """
    message_type, unknown_fields = _parser()
    example = message_type.FromString(record)
    for unknown in unknown_fields(example):
        # A SequenceExample begins the same way, and would lose its feature lists.
        raise ValueError(f"field {unknown.field_number} of an Example, which has but one")
    features = {entry.key: entry.value for entry in example.features.entries}
    return {name: _values_of(features[name], unknown_fields) for name in sorted(features)}


def scalars_of(sample: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Returns the features of a sample, those in `names` as the one value that they hold.

    Raises:
        ValueError: one of these holds no value, or several.
    """
    chosen = dict(sample)
    for name in names & chosen.keys():
        values = chosen[name]
        if values is None or len(values) != 1:
            count = 0 if values is None else len(values)
            raise ValueError(f"feature {name!r} has {count} values, and one was to be")
        chosen[name] = values[0]
    return chosen


def _values_of(feature: Any, unknown_fields: Any) -> Any:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    message = getattr(feature, kind)
    if any(unknown.field_number == 1 for unknown in unknown_fields(message)):  # of another wire type
        raise ValueError(f"a list of {kind.lower()} that holds something else")
    values = message.values
    return list(values) if kind == "Bytes" else np.array(values, np.float32 if kind == "Floats" else np.int64)


@cache
def _parser() -> tuple[Any, Any]:
    """Makes the message type in a pool of its own, since TensorFlow adds its own to the global one."""
    file = extra("google.protobuf.descriptor_pb2", "tfrecord").FileDescriptorProto(
        name="samplerkit/example.proto", package="samplerkit", syntax="proto3"
    )
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, (field, kind, label, of) in enumerate(fields, start=1):
            of_type = {"type_name": f".samplerkit.{of}"} if of else {}
            message.field.add(name=field, number=number, type=kind, label=label, **of_type)
        if name == "Feature":  # of several lists, the last one counts
            message.oneof_decl.add(name="kind")
            for described in message.field:
                described.oneof_index = 0
    pool = extra("google.protobuf.descriptor_pool", "tfrecord").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("samplerkit.Example")
    message_type = extra("google.protobuf.message_factory", "tfrecord").GetMessageClass(descriptor)
    return message_type, extra("google.protobuf.unknown_fields", "tfrecord").UnknownFieldSet
