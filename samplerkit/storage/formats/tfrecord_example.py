"""Parses `tf.train.Example` by protobuf: features by name, each a list of bytes, float32 or int64."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from samplerkit.storage.files.packages import extra

# On the wire a map is a list of its entries. Of several lists of a feature, the last one counts.
_SCHEMA: Final = """
name: "samplerkit/example.proto" package: "samplerkit" syntax: "proto3"
message_type { name: "Example" field { name: "features" number: 1 type: TYPE_MESSAGE type_name: "Features" } }
message_type { name: "Features"
  field { name: "entries" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Entry" } }
message_type { name: "Entry" field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "Feature" } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes" number: 1 type: TYPE_MESSAGE type_name: "Bytes" oneof_index: 0 }
  field { name: "floats" number: 2 type: TYPE_MESSAGE type_name: "Floats" oneof_index: 0 }
  field { name: "integers" number: 3 type: TYPE_MESSAGE type_name: "Integers" oneof_index: 0 } }
message_type { name: "Bytes" field { name: "values" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Floats" field { name: "values" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Integers" field { name: "values" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
"""
"""The messages, as protobuf writes a `FileDescriptorProto` as text."""


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


def _values_of(feature: Any, unknown_fields: Any) -> Any:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    message = getattr(feature, kind)
    if any(unknown.field_number == 1 for unknown in unknown_fields(message)):  # of another wire type
        raise ValueError(f"a list of {kind} that holds something else")
    values = message.values
    return list(values) if kind == "bytes" else np.array(values, np.float32 if kind == "floats" else np.int64)


@cache
def _parser() -> tuple[Any, Any]:
    """Makes the message type in a pool of its own, since TensorFlow adds its own to the global one."""
    file = extra("google.protobuf.descriptor_pb2", "tfrecord").FileDescriptorProto()
    extra("google.protobuf.text_format", "tfrecord").Parse(_SCHEMA, file)
    pool = extra("google.protobuf.descriptor_pool", "tfrecord").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("samplerkit.Example")
    message_type = extra("google.protobuf.message_factory", "tfrecord").GetMessageClass(descriptor)
    return message_type, extra("google.protobuf.unknown_fields", "tfrecord").UnknownFieldSet
