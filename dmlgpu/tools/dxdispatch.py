"""`dmlgpu run`: runs model files of Microsoft's DxDispatch, JSON documents with resources, operators and commands.

Supported are the operators of the registry; data as numbers in the document, as `.npy` files, or as files of raw bytes;
and the commands dispatch, print and writeFile. Other features of DxDispatch, such as HLSL shaders and ONNX models, are
errors. The output has DxDispatch's wording.

A resource is an array of bytes on the host: a dispatch uploads its inputs, computes, and downloads its outputs.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import numpy as np

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.reduction import AxisDirection, ReduceFunction
from dmlgpu.descriptors.tensor import Array, Bytes, TensorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.files import open_npy, written
from dmlgpu.registry import DESCRIPTORS
from dmlgpu.runtime.device import Device

_ENUMERATIONS = {
    "function": (ReduceFunction, "DML_REDUCE_FUNCTION_"),
    "axis_direction": (AxisDirection, "DML_AXIS_DIRECTION_"),
}
# What JSON does not allow: a comment, or a comma before a closing bracket. The patterns also match strings, which are
# kept, so that no part of a string is replaced.
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


class ModelError(ValueError):
    """A document is not a valid model; the message begins with the path of the wrong value in it."""


class _Node:
    """A value of the document, and its path."""

    def __init__(self, value: Any, path: str) -> None:
        self.value, self.path = value, path

    def error(self, text: str) -> ModelError:
        return ModelError(f"{self.path}: {text}")

    def _is(self, kind: Any, name: str) -> Any:
        if not isinstance(self.value, kind) or (isinstance(self.value, bool) and kind is not bool):
            raise self.error(f"{shown(self.value)} is not {name}")
        return self.value

    def text(self) -> str:
        text: str = self._is(str, "a string")
        return text

    def flag(self) -> bool:
        flag: bool = self._is(bool, "true or false")
        return flag

    def integer(self, least: int = 0) -> int:
        number: int = self._is(int, "an integer")
        if number < least:
            raise self.error(f"{number} is not allowed; allowed are integers from {least} on")
        return number

    def real(self) -> float:
        number: float = self._is((int, float), "a number")
        return number

    def entries(self) -> list[_Node]:
        return [_Node(value, f"{self.path}[{i}]") for i, value in enumerate(self._is(list, "an array"))]

    def members(self) -> dict[str, _Node]:
        prefix = f"{self.path}." if self.path != "the document" else ""
        nodes = {name: _Node(value, f"{prefix}{name}") for name, value in self._is(dict, "an object").items()}
        for node in nodes.values():
            if node.value is _TWICE:
                raise node.error("the field is given twice")
        return nodes

    def get(self, name: str) -> _Node | None:
        """A field that may be missing, or null."""
        node = self.members().get(name)
        return None if node is None or node.value is None else node

    def __getitem__(self, name: str) -> _Node:
        node = self.get(name)
        if node is None:
            raise self.error(f"field {name} is required")
        return node

    def member_of(self, enumeration: Any, prefix: str) -> Any:
        name = self.text().removeprefix(prefix)
        if name not in enumeration.__members__:
            allowed = ", ".join(enumeration.__members__)
            raise self.error(f"{shown(self.value)} is not allowed; allowed are {allowed}")
        return enumeration[name]

    def data_type(self) -> DataType:
        data_type: DataType = self.member_of(DataType, "DML_TENSOR_DATA_TYPE_")
        if data_type.bits < 8:
            raise self.error(f"{data_type.name} is not supported")
        return data_type


# The value of a field that an object has twice.
_TWICE = object()


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(name for name, _ in fields)
    return {name: value if counts[name] == 1 else _TWICE for name, value in fields}


def _text(content: bytes) -> str:
    encoding = json.detect_encoding(content)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not text; allowed are UTF-8, UTF-16 and UTF-32") from None


def _document(text: str) -> Any:
    """Parses a document, which may have comments, trailing commas, and text after it."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])  # line breaks stay, so that errors have the right line

    strict = _STRING_OR_COMMA.sub(blank, _STRING_OR_COMMENT.sub(blank, text))
    return json.JSONDecoder(object_pairs_hook=_object).raw_decode(strict, len(strict) - len(strict.lstrip()))[0]


def _number(node: _Node, data_type: DataType) -> Any:
    """A number that fits a type; nan, inf and -inf are written as strings."""
    number: float
    largest: float
    if not data_type.is_float:
        limits = np.iinfo(data_type.numpy)
        number, largest = node.integer(int(limits.min)), limits.max
    elif isinstance(node.value, str) and node.value.lower() in ("nan", "inf", "-inf"):
        return float(node.value)
    else:
        number, largest = node.real(), float(np.finfo(data_type.numpy).max)
    if not -largest - 1 <= number <= largest:
        raise node.error(f"{shown(number)} is not allowed; {data_type.name} ends at {largest}")
    return number


@dataclass
class _Resource:
    """A buffer. Its first bytes are the initial values, of `data_type`; None: raw bytes, or values of several types."""

    memory: Bytes
    data_type: DataType | None
    initial_bytes: int

    @property
    def values(self) -> Array:
        return self.memory[: self.initial_bytes].view(self.data_type.numpy if self.data_type else np.uint8)


def _initial_values(node: _Node, data_type: DataType | None, folder: Path) -> tuple[Array, DataType | None]:
    if isinstance(node.value, list):
        if data_type:
            numbers = [_number(entry, data_type) for entry in node.entries()]
            return np.array(numbers, data_type.numpy), data_type
        parts = []
        for entry in node.entries():
            kind = entry["type"].data_type()
            parts.append(np.array([_number(entry["value"], kind)], kind.numpy).view(np.uint8))
        return np.concatenate(parts) if parts else np.empty(0, np.uint8), None
    if source := node.get("sourcePath"):
        return _file(source, data_type, folder)
    if not data_type:
        raise node.error("initialValuesDataType is required for these values")
    count = node["valueCount"].integer(1)
    if value := node.get("value"):
        if node.get("valueStart"):
            raise node.error("value and valueStart are given; give one of them")
        return np.full(count, _number(value, data_type), data_type.numpy), data_type
    terms = np.full(count, _number(node["valueDelta"], data_type), data_type.numpy)
    terms[0] = _number(node["valueStart"], data_type)
    with np.errstate(over="ignore"):
        return np.add.accumulate(terms, dtype=terms.dtype), data_type


def _file(source: _Node, data_type: DataType | None, folder: Path) -> tuple[Array, DataType | None]:
    path = next((path for path in (folder / source.text(), Path(source.text())) if path.is_file()), None)
    if path is None:
        raise source.error(f"there is no file {source.text()!r} in {folder} or the current folder")
    if path.suffix.lower() in (".png", ".jpg", ".jpeg"):
        raise source.error("images are not supported; convert them to .npy")
    is_npy = path.suffix.lower() == ".npy"
    try:
        array = open_npy(path) if is_npy else np.fromfile(path, np.uint8)
        kind = DataType.of(array.dtype, f"{path}: type")
    except (OSError, ValueError) as error:
        raise source.error(str(error)) from None
    if not is_npy:
        if data_type and array.size % data_type.numpy.itemsize:
            unit = f"{data_type.numpy.itemsize} of a {data_type.name}"
            raise source.error(f"{path} has {array.size} bytes, not a multiple of the {unit}")
        return array, data_type
    if data_type and kind is not data_type:
        raise source.error(f"{path} has {kind.name}, but initialValuesDataType is {data_type.name}")
    return np.ascontiguousarray(array, kind.numpy).reshape(-1), kind


def _resource(node: _Node, folder: Path) -> _Resource:
    type_node = node.get("initialValuesDataType")
    values, data_type = _initial_values(node["initialValues"], type_node.data_type() if type_node else None, folder)
    data = values.view(np.uint8)
    if not data.size:
        raise node["initialValues"].error("there are no values")
    offset = offset_node.integer() if (offset_node := node.get("initialValuesOffsetInBytes")) else 0
    least = offset + data.size
    size = size_node.integer() if (size_node := node.get("sizeInBytes")) else -(-least // 4) * 4
    if size < least:
        raise node.error(f"sizeInBytes is too small: provided {size}, expected {least}")
    memory = np.zeros(size, np.uint8)
    memory[: data.size] = data
    return _Resource(memory, data_type, data.size)


def _tensor(node: _Node) -> TensorDesc:
    inner = node.get("Desc") or node
    sizes, strides = inner["Sizes"], inner.get("Strides")
    _check_count(inner, "DimensionCount", len(sizes.entries()), required=False)
    total = inner.get("TotalTensorSizeInBytes")
    return TensorDesc(
        inner["DataType"].data_type(),
        tuple(entry.integer() for entry in sizes.entries()),
        tuple(entry.integer() for entry in strides.entries()) or None if strides else None,
        total.integer() or None if total else None,
    )


def _check_count(node: _Node, name: str, count: int, *, required: bool = True) -> None:
    count_node = node[name] if required else node.get(name)
    if count_node and count_node.integer() != count:
        raise count_node.error(f"{count_node.value} is wrong; the arrays have {count} entries")


def _camel(field: str) -> str:
    """The name of a field in DirectML's structures, such as WindowSize."""
    return "".join(part.upper() if part == "roi" else part.title() for part in field.split("_"))


def _descriptor(node: _Node) -> OperatorDesc:
    kind = node["type"].text().removeprefix("DML_OPERATOR_")
    if kind not in DESCRIPTORS:
        raise node["type"].error(f"{node['type'].value!r} is not supported; allowed are {', '.join(DESCRIPTORS)}")
    inner = node.get("desc") or node.get("Desc") or node
    arguments: dict[str, Any] = {}
    for field in fields(DESCRIPTORS[kind]):  # type: ignore[arg-type]
        name = _camel(field.name)
        absent = "None" in str(field.type) and inner.get(name) is None
        arguments[field.name] = None if absent else _field(field.name, inner[name])
    for array, count in (("axes", "AxisCount"), ("window_size", "DimensionCount")):
        if array in arguments:
            _check_count(inner, count, len(arguments[array]))
    try:
        return DESCRIPTORS[kind](**arguments)
    except DescriptorError as error:
        raise inner.error(str(error)) from None


def _field(name: str, node: _Node) -> Any:
    if name.endswith("_tensor"):
        try:
            return _tensor(node)
        except DescriptorError as error:
            raise node.error(str(error)) from None
    if name in _ENUMERATIONS:
        return node.member_of(*_ENUMERATIONS[name])
    if name == "include_padding" or name.startswith("has_exclusive"):
        return node.flag()
    if name == "spatial_scale":
        return node.real()
    if name == "pooled_size":
        return node["Height"].integer(), node["Width"].integer()
    return node.integer() if name in ("p", "axis", "k") else tuple(entry.integer() for entry in node.entries())


# Commands


@dataclass(frozen=True)
class _Binding:
    """The memory of a tensor: the bytes of a resource from an offset on. `path`: where the document has the binding."""

    resource: str
    offset: int
    path: str


@dataclass(frozen=True)
class Options:
    """How to time dispatches, and what to print and write: DxDispatch's -i, -r, -w, -v and --output_path.

    `force`: whether to overwrite existing files.
    """

    dispatch_iterations: int = 1
    dispatch_repeat: int = 1
    warmup_samples: int = 1
    timing_verbosity: int = 0
    output_path: Path = Path()
    force: bool = False


class Model:
    """A model file. Its operators and bindings are checked when it is loaded.

    Args:
        path: the document.
        input_path: the folder to search first for files that the document names; None: the document's folder.

    Raises:
        ModelError: the document is wrong; the message begins with the path of the wrong value. OSError: the file cannot
            be read.
    """

    def __init__(self, path: Path, input_path: Path | None = None) -> None:
        try:
            root = _Node(_document(_text(path.read_bytes())), "the document")
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}: {error}") from None
        folder = input_path or path.parent
        self.resources = {}
        for name, node in root["resources"].members().items():
            try:
                self.resources[name] = _resource(node, folder)
            except ModelError:
                raise
            except (MemoryError, OverflowError, ValueError) as error:
                raise node.error(f"does not fit in this machine's memory: {error}") from None
        dispatchables = root["dispatchables"].members()
        self.operators = {name: _descriptor(node) for name, node in dispatchables.items()}
        self._dispatches: list[Callable[[Device, Options, Callable[[str], None]], None]] = []
        # DirectML binds tensors that it owns when it initializes the operator, so dispatchables have bindings.
        self._owned = {name: node.get("bindings") or _Node({}, node.path) for name, node in dispatchables.items()}
        self._targets: list[_Node] = []
        self._commands = [self._command(node) for node in root["commands"].entries()]

    def run(self, device: Device, options: Options, say: Callable[[str], None]) -> None:
        """Runs all commands; `say` receives the output.

        Raises:
            ModelError: a file would be written outside the output folder, or would overwrite a file; nothing is run.
            OutOfMemoryError: tensors do not fit the device. OSError: a file cannot be written.
        """
        self._check_targets(options)
        for name, desc in self.operators.items():
            start = perf_counter()
            device.compile(desc)
            if options.timing_verbosity:
                say(f"Initialize '{name}': {(perf_counter() - start) * 1e3:.4f} ms")
        for command in self._commands:
            command(device, options, say)

    def dispatch(self, device: Device) -> None:
        """Runs only the dispatches among the commands, each once; prints nothing and writes no file.

        Raises:
            ModelError: there is no dispatch.
            OutOfMemoryError: tensors do not fit the device.
        """
        if not self._dispatches:
            raise ModelError("commands: there is no dispatch")
        for command in self._dispatches:
            command(device, Options(), lambda line: None)

    def _known(self, node: _Node, known: Any, what: str) -> str:
        name = node.text()
        if name not in known:
            raise node.error(f"there is no {what} {name!r}; there are {', '.join(known) or 'none'}")
        return name

    def _command(self, node: _Node) -> Callable[[Device, Options, Callable[[str], None]], None]:
        kind = node["type"].text().lower()
        if kind == "dispatch":
            name = self._known(node["dispatchable"], self.operators, "dispatchable")
            members = self._owned[name].members() | node["bindings"].members()
            bindings = self._bindings(self.operators[name], members, node["bindings"])
            self._dispatches.append(lambda device, options, say: self._dispatch(name, bindings, device, options, say))
            return self._dispatches[-1]
        if kind not in ("print", "writefile"):
            raise node["type"].error(f"{node['type'].value!r} is not supported; allowed are dispatch, print, writeFile")
        name = self._known(node["resource"], self.resources, "resource")
        if kind == "print":
            verbose = (flag := node.get("verbose")) is not None and flag.flag()
            return lambda device, options, say: say(_printed(name, self.resources[name], verbose))
        target = node["targetPath"]
        if Path(target.text()).suffix.lower() in (".png", ".jpg", ".jpeg"):
            raise target.error("images are not supported; write .npy")
        dimensions, count = node.get("dimensions"), self.resources[name].values.size
        sizes = [entry.integer(1) for entry in dimensions.entries()] if dimensions else [count]
        if math.prod(sizes) != count:
            raise node["dimensions"].error(f"{sizes} is wrong; the resource has {count} elements")
        try:
            self.resources[name].values.reshape(sizes)
        except ValueError as error:
            raise node["dimensions"].error(f"NumPy has no arrays of {len(sizes)} dimensions: {error}") from None
        self._targets.append(target)
        return lambda device, options, say: self._write(name, target.text(), sizes, options, say)

    def _check_targets(self, options: Options) -> None:
        """Raises a ModelError if a file would be outside the output folder, or overwrite a file without `force`."""
        folder = os.path.realpath(options.output_path)
        paths = set()
        for target in self._targets:
            try:
                path = os.path.realpath(options.output_path / target.text())
                exists = os.path.lexists(path) or path in paths
            except ValueError as error:
                raise target.error(f"{shown(target.value)} is not a path: {error}") from None
            is_other = os.path.exists(path) and not os.path.isfile(path)  # a folder or a device
            if Path(folder) not in Path(path).parents or is_other:
                raise target.error(f"{shown(target.value)} is not allowed; allowed are files in {folder}")
            if exists and not options.force:
                raise target.error(f"{path} exists or is written twice; overwrite it with --force")
            paths.add(path)

    def _bindings(self, desc: OperatorDesc, members: dict[str, _Node], node: _Node) -> dict[str, _Binding]:
        """The bindings of an operator's tensors, by the fields of its descriptor."""
        names = {_camel(field): field for field in (*desc.input_fields, *_output_fields(desc))}
        for name, member in members.items():
            if name not in names:
                raise member.error(f"the operator has no tensor of this name; it has {', '.join(names)}")
        bound = {}
        for name, field in names.items():
            if name not in members:
                raise node.error(f"field {name} is required: the operator has this tensor")
            bound[field] = self._binding(members[name], getattr(desc, field))
        for field in _output_fields(desc):
            for other in bound.keys() - {field}:
                self._check_apart(bound[field], getattr(desc, field), bound[other], getattr(desc, other))
        return bound

    def _binding(self, node: _Node, tensor: TensorDesc) -> _Binding:
        if isinstance(node.value, list):
            if len(node.value) != 1:
                raise node.error(f"{len(node.value)} resources are bound; allowed is 1")
            node = node.entries()[0]
        offset = 0
        name = self._known(node if isinstance(node.value, str) else node["name"], self.resources, "resource")
        resource = self.resources[name]
        if not isinstance(node.value, str) and (elements := node.get("elementOffset")):
            size = (size_node := node.get("elementSizeInBytes")) and size_node.integer()
            size = size or (resource.data_type.bits // 8 if resource.data_type else 0)
            if elements.integer() and not size:
                raise node.error("elementSizeInBytes is required: the resource has elements of several types")
            offset = elements.integer() * size
        if resource.memory.size - offset < tensor.size_in_bytes:
            provided = max(resource.memory.size - offset, 0)
            raise node.error(f"resource {name!r} is too small: provided {provided}, expected {tensor.size_in_bytes}")
        return _Binding(name, offset, node.path)

    def _check_apart(self, one: _Binding, first: TensorDesc, other: _Binding, second: TensorDesc) -> None:
        """Raises a ModelError if an output overlaps another tensor."""
        apart = one.offset + first.size_in_bytes <= other.offset or other.offset + second.size_in_bytes <= one.offset
        if one.resource == other.resource and not apart:
            raise ModelError(f"{one.path}: an output shares memory with what is bound at {other.path}")

    def _dispatch(
        self, name: str, bindings: dict[str, _Binding], device: Device, options: Options, say: Callable[[str], None]
    ) -> None:
        desc = self.operators[name]
        tensors, memory = {}, {}
        for field, binding in bindings.items():
            tensor: TensorDesc = getattr(desc, field)
            whole = self.resources[binding.resource].memory
            memory[field] = whole[binding.offset : binding.offset + tensor.size_in_bytes]
            tensors[field] = device.tensor_from_bytes(memory[field], tensor)
        inputs, outputs = ([tensors[field] for field in names] for names in (desc.input_fields, _output_fields(desc)))
        operator, samples = device.compile(desc), []
        for _ in range(options.dispatch_iterations):
            start = perf_counter()
            with device.batch():
                for _ in range(options.dispatch_repeat):
                    operator(*inputs, out=outputs)
            samples.append((perf_counter() - start) * 1e3 / options.dispatch_repeat)
        for field in _output_fields(desc):
            memory[field][:] = tensors[field].bytes()
        for line in _timings(name, samples, options):
            say(line)

    def _write(self, name: str, target: str, sizes: list[int], options: Options, say: Callable[[str], None]) -> None:
        path = options.output_path / target
        path.parent.mkdir(parents=True, exist_ok=True)
        values = self.resources[name].values
        with written(os.path.realpath(path), force=options.force) as part, open(part, "xb") as file:
            if path.suffix.lower() == ".npy":
                np.save(file, values.reshape(sizes))
            else:
                values.tofile(file)
        say(f"Resource '{name}' written to '{path}'")


def _output_fields(desc: OperatorDesc) -> list[str]:
    return [field for field in desc.output_fields if getattr(desc, field) is not None]


def _printed(name: str, resource: _Resource, verbose: bool) -> str:
    values = resource.values
    texts = [f"{value:g}" if values.dtype.kind == "f" else str(value) for value in values.tolist()]
    if not verbose:
        return f"Resource '{name}': {', '.join(texts)}"
    width, digits = len(str(len(texts) - 1)), 2 * values.itemsize
    bits = values.view(f"u{values.itemsize}").tolist()
    lines = (
        f"[{i:{width}}] {text} (0x{word:{digits}X})" for i, (text, word) in enumerate(zip(texts, bits, strict=True))
    )
    return "\n".join([f"Resource '{name}':", *lines])


def _timings(name: str, samples: Sequence[float], options: Options) -> list[str]:
    """The output for samples of a dispatch, in milliseconds: cold ones come first, then at least one hot one."""
    cold = min(len(samples) - 1, options.warmup_samples)
    title = f"Dispatch '{name}': {len(samples)} iterations"
    if not options.timing_verbosity:
        return [f"{title}, {_median(samples[cold:]):.4f} ms median (CPU)"]
    lines = [title]
    for kind, times in ("(Cold) ", samples[:cold]), ("(Hot)  ", samples[cold:]):
        if times:
            figures = f"{fmean(times):.4f} ms average, {min(times):.4f} ms min, {_median(times):.4f} ms median"
            lines.append(f"CPU Timings {kind}: {len(times)} samples, {figures}, {max(times):.4f} ms max")
    if options.timing_verbosity > 1:
        lines.append("The timings of each iteration: ")
        lines += [f"iteration {i}: {sample:.4f} ms (CPU)" for i, sample in enumerate(samples)]
    return lines


def _median(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]
