"""Libraries under test: a class for each writes a call as the text of a program, which also serves as a reproducer."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dmlgpu.descriptors.tensor import Array
from dmlgpu.errors import extra, shown

# Quotations of documents, by function and outcome.
Rules = Mapping[tuple[str, str], str]


class LibraryError(Exception):
    """There is no such library; the message lists the libraries."""


@dataclass(frozen=True)
class Window:
    """The windows of a pooling."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False
    """Whether the number of windows is rounded up."""
    include_padding: bool = False
    p: int = 2

    @property
    def padding(self) -> list[tuple[int, int]]:
        """Pairs (before, after), for each spatial dimension."""
        return list(zip(self.start_padding, self.end_padding, strict=True))


class Library:
    """Base class: a library without functions.

    Each method returns the text of a program, whose last line is an expression for the result or a tuple of results;
    None: the library cannot express the call. The input is `x`. Reduced axes may have size 1 in the result, or be
    dropped. Indices may have any type of integers.
    """

    imports = "import numpy as np"
    """Lines that every program begins with."""
    version = "np.__version__"
    """Expression for the version of the library."""
    from_numpy = "{}"
    """Expression that converts an array of NumPy to one of the library."""
    to_numpy = "result"
    """Expression that converts `result`, an array of the library, to one of NumPy."""
    folders: tuple[str, ...] = ()
    """Folders with the modules that `imports` names."""
    plane_indices = False
    """Whether indices of pooling count within a plane (H, W), not in the whole tensor."""
    promises: ClassVar[Rules] = {}
    """Quotations that make the oracle's value right."""
    disclaimers: ClassVar[Rules] = {}
    """Quotations that leave the value open. The function "" stands for all, with the outcome "NaN", or "subnormals" or
    "infinities" in inputs."""

    def reduce(self, function: str, x: Array, axes: tuple[int, ...], *, last: bool) -> str | None:
        """A reduction over axes.

        Args:
            function: argmax, argmin, or another of DirectML's in lower case; max_with_index and min_with_index have
                two results.
            x: the input.
            axes: in ascending order; indices count in row-major order along them.
            last: whether the last of equal elements wins.
        """

    def cumulative(self, function: str, x: Array, axis: int, *, reverse: bool, exclusive: bool) -> str | None:
        """The sums, or the products, of each line up to each element; `function` is sum or product."""

    def top_k(self, x: Array, k: int, axis: int, *, largest: bool) -> str | None:
        """The k greatest or least elements in order, and their indices."""

    def pool(self, function: str, x: Array, window: Window, *, indices: bool) -> str | None:
        """A pooling of (N, C, H, W) or (N, C, D, H, W); `function` is max, average or lp."""

    def pool_grad(self, function: str, x: Array, window: Window) -> str | None:
        """The gradient of a pooling for x; `gradient` has an element for each window."""

    def quantized_pool(self, x: Array, window: Window, parameters: Mapping[str, Array], dtype: str) -> str | None:
        """The average pooling of quantized elements.

        Args:
            x: the input, of int8 or uint8.
            window: as for `pool`.
            parameters: `x_scale`, `y_scale`, and perhaps `x_zero_point` and `y_zero_point`: (), or (1, C, 1, 1).
            dtype: of the result.
        """

    def unpool(self, x: Array, indices: Array, sizes: tuple[int, ...]) -> str | None:
        """Zeros of (N, C, *sizes) with the elements of x at `indices`, which count in row-major order in all of it."""

    def roi_pool(self, x: Array, rois: Array, size: tuple[int, int], scale: float) -> str | None:
        """The maxima of size[0] x size[1] bins of regions: batch, x1, y1, x2, y2 in each row of `rois`."""

    def literal(
        self, values: str | None, dtype: str, sizes: Sequence[int], strides: Sequence[int] | None, bits: str = ""
    ) -> str:
        """An expression for an array of the library.

        Args:
            values: the text of a list of the elements; with strides, of all elements in memory; None: zeros.
            dtype: NumPy's name of the type.
            sizes: of the array.
            strides: in elements; None: packed.
            bits: the type of integers whose bits are those of floats, if `values` has these; empty: it has elements.
        """
        array = f"np.array({values}, np.{bits or dtype}){f'.view(np.{dtype})' if bits else ''}"
        if values is None:
            array = f"np.zeros({tuple(sizes)}, np.{dtype})"
        elif strides is not None:
            size = np.dtype(dtype).itemsize
            array = f"np.lib.stride_tricks.as_strided({array}, {tuple(sizes)}, {tuple(s * size for s in strides)})"
        return self.from_numpy.format(array)


_NUMPY_NAMES = {"sum": "sum", "average": "mean", "multiply": "prod", "max": "max", "min": "min"}
_FIRST = "the indices corresponding to the first occurrence are returned"


class Numpy(Library):
    """NumPy, and base class of libraries with the same functions."""

    promises: ClassVar[Rules] = {
        **{(name, "tie"): f'numpy.{name}: "{_FIRST}"' for name in ("argmax", "argmin")},
        **{(name, "NaN"): f'numpy.{name}: "NaN values are propagated"' for name in ("max", "min")},
        **{(name, "value"): f'numpy.{name}: "Arithmetic is modular when using integer types"' for name in ("sum",)},
    }
    disclaimers: ClassVar[Rules] = {
        ("sum", "rounding"): 'numpy.sum: "the exact precision may vary depending on other parameters"',
        ("average", "rounding"): 'numpy.mean: "the mean is computed using the same precision the input has"',
    }
    module = "np"
    cumulative_names: ClassVar[Mapping[str, str]] = {"sum": "cumsum", "product": "cumprod"}
    """Names of cumulative functions without initial values."""

    def reduce(self, function: str, x: Array, axes: tuple[int, ...], *, last: bool) -> str | None:
        if function in ("argmax", "argmin") and not last and (len(axes) == 1 or len(axes) == x.ndim):
            return f"{self.module}.{function}(x, axis={None if len(axes) == x.ndim else axes[0]})"
        if function not in _NUMPY_NAMES:
            return None
        dtype = "" if function in ("max", "min", "average") else ", dtype=x.dtype"
        return f"{self.module}.{_NUMPY_NAMES[function]}(x, axis={axes}{dtype})"

    def cumulative(self, function: str, x: Array, axis: int, *, reverse: bool, exclusive: bool) -> str | None:
        name = f"cumulative_{function[:4]}" if exclusive else self.cumulative_names[function]
        options = ", include_initial=True" if exclusive else ""
        text = f"{self.module}.{name}({self._flipped('x', axis, reverse)}, axis={axis}, dtype=x.dtype{options})"
        return self._flipped(f"{text}[{':, ' * axis}:-1, ...]" if exclusive else text, axis, reverse)

    def _flipped(self, text: str, axis: int, reverse: bool) -> str:
        return f"{self.module}.flip({text}, axis={axis})" if reverse else text


class Cupy(Numpy):
    """CuPy, on the current GPU of CUDA or ROCm."""

    imports = "import numpy as np, cupy as cp"
    version = "cp.__version__"
    from_numpy = "cp.asarray({})"
    to_numpy = "cp.asnumpy(result)"
    module = "cp"
    # CuPy's page compares itself with NumPy's functions; it does not mention NaN and ties.
    promises: ClassVar[Rules] = {}
    disclaimers: ClassVar[Rules] = {}


class ArrayApi(Numpy):
    """A namespace of the array API standard."""

    promises: ClassVar[Rules] = {
        **{(name, "tie"): f'array API standard, {name}: "{_FIRST}"' for name in ("argmax", "argmin")},
        **{(name, "NaN"): f'array API standard, {name}: "If x_i is NaN, the value is NaN"' for name in ("max", "min")},
    }
    disclaimers: ClassVar[Rules] = {
        (name, "rounding"): "the array API standard leaves accuracy to implementations"
        for name in ("sum", "average", "multiply", "cumulative sum", "cumulative product")
    }
    version = "getattr(xp, '__version__', '')"
    from_numpy = "xp.asarray({})"
    module = "xp"
    cumulative_names: ClassVar[Mapping[str, str]] = {"sum": "cumulative_sum", "product": "cumulative_prod"}

    def __init__(self, module: str) -> None:
        self.imports = f"import numpy as np, {module} as xp"


_TORCH_NAMES = {"max": "amax", "min": "amin", "average": "mean", "log_sum_exp": "logsumexp"}


class Torch(Library):
    """PyTorch, on a device."""

    version = "torch.__version__"
    to_numpy = "result.cpu().numpy()"
    plane_indices = True
    promises: ClassVar[Rules] = {
        ("argmax", "tie"): 'torch.argmax: "the indices of the first maximal value are returned"',
        ("argmin", "tie"): 'torch.argmin: "the indices of the first minimal value are returned"',
        ("max with index", "tie"): 'torch.max: "the indices of the first maximal value are returned"',
        ("min with index", "tie"): 'torch.min: "the indices of the first minimal value are returned"',
    }
    disclaimers: ClassVar[Rules] = {
        ("top-k", "tie"): 'torch.topk: "the indices of tied elements are not guaranteed to be stable"',
    }

    def __init__(self, device: str = "cpu") -> None:
        self.imports = "import torch"
        self._device = "" if device == "cpu" else f".to({device!r})"
        self.from_numpy = f"torch.from_numpy({{}}){self._device}"

    def literal(
        self, values: str | None, dtype: str, sizes: Sequence[int], strides: Sequence[int] | None, bits: str = ""
    ) -> str:
        array = f"torch.tensor({values}, dtype=torch.{bits or dtype}){f'.view(torch.{dtype})' if bits else ''}"
        if strides is not None:
            array += f".as_strided({tuple(sizes)}, {tuple(strides)})"
        if values is None:
            array = f"torch.zeros({tuple(sizes)}, dtype=torch.{dtype})"
        return array + self._device

    def reduce(self, function: str, x: Array, axes: tuple[int, ...], *, last: bool) -> str | None:
        if function in ("argmax", "argmin"):
            fits = not last and (len(axes) == 1 or len(axes) == x.ndim)
            return f"torch.{function}(x{'' if len(axes) == x.ndim else f', {axes[0]}'})" if fits else None
        if function in ("max_with_index", "min_with_index"):
            return f"tuple(torch.{function[:3]}(x, {axes[0]}))" if len(axes) == 1 else None
        if function == "sum":
            return f"torch.sum(x, {axes}, dtype=x.dtype)"
        if function == "multiply":
            return f"torch.prod(x, {axes[0]}, dtype=x.dtype)" if len(axes) == 1 else None
        if function in ("l1", "l2") and x.dtype.kind == "f":
            return f"torch.linalg.vector_norm(x, {function[1]}, {axes})"
        return f"torch.{_TORCH_NAMES[function]}(x, {axes})" if function in _TORCH_NAMES else None

    def cumulative(self, function: str, x: Array, axis: int, *, reverse: bool, exclusive: bool) -> str | None:
        if exclusive:
            return None
        flip = f".flip({axis})" if reverse else ""
        return f"torch.{'cumsum' if function == 'sum' else 'cumprod'}(x{flip}, {axis}, dtype=x.dtype){flip}"

    def top_k(self, x: Array, k: int, axis: int, *, largest: bool) -> str | None:
        return f"tuple(torch.topk(x, {k}, {axis}, largest={largest}))"

    def pool(self, function: str, x: Array, window: Window, *, indices: bool) -> str | None:
        name, rank = {"max": "max", "average": "avg", "lp": "lp"}[function], len(window.size)
        if window.start_padding != window.end_padding or (function != "max" and any(d > 1 for d in window.dilations)):
            return None
        if function == "lp":
            if any(window.start_padding) or (window.p % 2 and x.dtype.kind == "f" and (x < 0).any()):
                return None  # PyTorch adds powers with their signs
            return (
                f"torch.nn.functional.lp_pool{rank}d(x, {window.p}, {window.size}, {window.strides}, "
                f"ceil_mode={window.ceil})"
            )
        arguments = f"{window.size}, {window.strides}, {window.start_padding}"
        if function == "average":
            return (
                f"torch.nn.functional.avg_pool{rank}d(x, {arguments}, ceil_mode={window.ceil}, "
                f"count_include_pad={window.include_padding})"
            )
        options = f"{window.dilations}, ceil_mode={window.ceil}, return_indices={indices}"
        return f"torch.nn.functional.{name}_pool{rank}d(x, {arguments}, {options})"

    def pool_grad(self, function: str, x: Array, window: Window) -> str | None:
        pool = self.pool(function, x, window, indices=False)
        return pool and f"torch.autograd.grad({pool.replace('(x,', '(x.requires_grad_(),')}, x, gradient)[0]"

    def unpool(self, x: Array, indices: Array, sizes: tuple[int, ...]) -> str | None:
        planes = np.arange(np.prod(x.shape[:2])).reshape(*x.shape[:2], 1, 1)
        window = tuple(size - count + 1 for size, count in zip(sizes, x.shape[2:], strict=True))
        area = sizes[0] * sizes[1]
        if min(window) < 1 or (indices // area != planes).any():
            return None  # PyTorch's indices count within a plane
        return f"torch.nn.functional.max_unpool2d(x, indices % {area}, {window}, 1, output_size={sizes})"


class Jax(Numpy):
    """JAX, on its default device."""

    imports = "import jax, jax.numpy as jnp, numpy as np; jax.config.update('jax_enable_x64', True)"
    version = "jax.__version__"
    from_numpy = "jnp.asarray({})"
    promises: ClassVar[Rules] = {
        ("top-k", "tie"): 'jax.lax.top_k: "If two elements are equal, the lower-index element appears first"',
        **{(name, "tie"): f'jax.numpy.{name} is that of NumPy: "{_FIRST}"' for name in ("argmax", "argmin")},
    }
    disclaimers: ClassVar[Rules] = {}
    module = "jnp"

    def reduce(self, function: str, x: Array, axes: tuple[int, ...], *, last: bool) -> str | None:
        if function == "log_sum_exp":
            return f"jax.scipy.special.logsumexp(x, axis={axes})"
        return super().reduce(function, x, axes, last=last)

    def cumulative(self, function: str, x: Array, axis: int, *, reverse: bool, exclusive: bool) -> str | None:
        if exclusive:
            return super().cumulative(function, x, axis, reverse=reverse, exclusive=True)
        return f"jax.lax.{self.cumulative_names[function]}(x, axis={axis}, reverse={reverse})"

    def top_k(self, x: Array, k: int, axis: int, *, largest: bool) -> str | None:
        return f"jax.lax.top_k(x, {k}, axis={axis})" if largest else None

    def pool(self, function: str, x: Array, window: Window, *, indices: bool) -> str | None:
        if function != "max" or indices or window.ceil:
            return None
        least = "-np.inf" if x.dtype.kind == "f" else f"np.iinfo(np.{x.dtype}).min"
        return (
            f"jax.lax.reduce_window(x, np.array({least}, np.{x.dtype}), jax.lax.max, {(1, 1, *window.size)}, "
            f"{(1, 1, *window.strides)}, {[(0, 0), (0, 0), *window.padding]}, None, {(1, 1, *window.dilations)})"
        )

    def pool_grad(self, function: str, x: Array, window: Window) -> str | None:
        pool = self.pool(function, x, window, indices=False)
        return pool and f"jax.vjp(lambda x: {pool}, x)[1](gradient)[0]"


_ONNX_NAMES = {
    "argmax": "ArgMax", "argmin": "ArgMin", "average": "ReduceMean", "l1": "ReduceL1", "l2": "ReduceL2",
    "log_sum": "ReduceLogSum", "log_sum_exp": "ReduceLogSumExp", "max": "ReduceMax", "min": "ReduceMin",
    "multiply": "ReduceProd", "sum": "ReduceSum", "sum_square": "ReduceSumSquare",
}  # fmt: skip
# The first opset in which AveragePool has dilations, and the first ones with operators that it lacks.
_OPSET = "", 19
_OPSETS = {"CumProd": ("", 26), "QLinearAveragePool": ("com.microsoft", 1)}


class Onnxruntime(Library):
    """ONNX Runtime, by models of one node on a provider."""

    version = "ort.__version__"
    promises: ClassVar[Rules] = {
        **{
            (name, "tie"): f'ONNX {_ONNX_NAMES[name]}: "Whether to select the last index or the first index"'
            for name in ("argmax", "argmin")
        },
        ("top-k", "tie"): 'ONNX TopK: "the element with the lower index will appear first"',
    }
    disclaimers: ClassVar[Rules] = {
        ("quantized average pooling", "rounding"): "ContribOperators.md, QLinearAveragePool: "
        '"Dequantize(Input) -> AveragePool on fp32 data -> Quantize(output)"',
    }

    def __init__(self, provider: str = "CPU") -> None:
        with extra("onnx", "onnx"):
            import onnx.helper
        self._onnx: Any = onnx
        self.imports = "import numpy as np, onnxruntime as ort"
        self._session = f"ort.InferenceSession(model, providers=[{provider + 'ExecutionProvider'!r}])"

    def _model(
        self,
        operator: str,
        inputs: Mapping[str, Array | None],
        constants: Mapping[str, Array] | None = None,
        results: int = 1,
        **attributes: Any,
    ) -> str:
        """A program that runs one node; its inputs, of which None are left out, precede its constants."""
        helper, constants, (domain, opset) = self._onnx.helper, constants or {}, _OPSETS.get(operator, _OPSET)
        present = {name: x for name, x in inputs.items() if x is not None}
        types = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in {**present, **constants}.items()}
        names = [*(name if name in present else "" for name in inputs), *constants]
        targets = [f"y{i}" for i in range(results)]
        graph = helper.make_graph(
            [helper.make_node(operator, names, targets, domain=domain, **attributes)],
            operator,
            [helper.make_tensor_value_info(name, types[name], x.shape) for name, x in present.items()],
            [helper.make_empty_tensor_value_info(name) for name in targets],
            [helper.make_tensor(name, types[name], x.shape, x) for name, x in constants.items()],
        )
        opsets = [helper.make_opsetid(*name) for name in dict([_OPSET, (domain, opset)]).items()]
        version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
        content = helper.make_model(graph, opset_imports=opsets, ir_version=version).SerializeToString().hex()
        fields = {**attributes, **{name: x.tolist() for name, x in constants.items()}}
        text = ", ".join(f"{name}={value}" for name, value in fields.items())
        comment = f"{operator}({text}) of {domain or 'opset'} {opset}"
        feeds = ", ".join(f"{name!r}: {name}" for name in present)
        return f"model = bytes.fromhex({content!r})  # {comment}\n{self._session}.run(None, {{{feeds}}})"

    def reduce(self, function: str, x: Array, axes: tuple[int, ...], *, last: bool) -> str | None:
        if function in ("argmax", "argmin"):
            options: dict[str, Any] = {"axis": axes[0], "select_last_index": int(last)}
            return self._model(_ONNX_NAMES[function], {"x": x}, **options) if len(axes) == 1 else None
        if function not in _ONNX_NAMES:
            return None
        return self._model(_ONNX_NAMES[function], {"x": x}, {"axes": np.array(axes)})

    def cumulative(self, function: str, x: Array, axis: int, *, reverse: bool, exclusive: bool) -> str | None:
        name = "CumSum" if function == "sum" else "CumProd"
        options: dict[str, Any] = {"reverse": int(reverse), "exclusive": int(exclusive)}
        return self._model(name, {"x": x}, {"axis": np.array(axis)}, **options)

    def top_k(self, x: Array, k: int, axis: int, *, largest: bool) -> str | None:
        return self._model("TopK", {"x": x}, {"k": np.array([k])}, 2, axis=axis, largest=int(largest))

    def pool(self, function: str, x: Array, window: Window, *, indices: bool) -> str | None:
        options: dict[str, Any] = _attributes(window) | {"dilations": window.dilations}
        if function == "average":
            options["count_include_pad"] = int(window.include_padding)
        if function == "lp":
            options["p"] = window.p
        name = {"max": "MaxPool", "average": "AveragePool", "lp": "LpPool"}[function]
        return self._model(name, {"x": x}, results=1 + indices, **options)

    def quantized_pool(self, x: Array, window: Window, parameters: Mapping[str, Array], dtype: str) -> str | None:
        if x.dtype != dtype or any(y.ndim for y in parameters.values()) or any(d > 1 for d in window.dilations):
            return None
        names = "x_scale", "x_zero_point", "y_scale", "y_zero_point"
        inputs = {"x": x, **{name: parameters.get(name) for name in names}}
        options = _attributes(window) | {"count_include_pad": int(window.include_padding)}
        return self._model("QLinearAveragePool", inputs, **options)

    def unpool(self, x: Array, indices: Array, sizes: tuple[int, ...]) -> str | None:
        constants = {"output_shape": np.array([*x.shape[:2], *sizes])}
        return self._model("MaxUnpool", {"x": x, "indices": indices}, constants, kernel_shape=(1, 1))

    def roi_pool(self, x: Array, rois: Array, size: tuple[int, int], scale: float) -> str | None:
        return self._model("MaxRoiPool", {"x": x, "rois": rois}, pooled_shape=size, spatial_scale=scale)


def _attributes(window: Window) -> dict[str, Any]:
    """The attributes of ONNX that all poolings have."""
    pads = [*window.start_padding, *window.end_padding]
    return {"kernel_shape": window.size, "strides": window.strides, "pads": pads, "ceil_mode": int(window.ceil)}


_NO_NAN = "WGSL, Floating Point Evaluation: implementations may assume that there is no NaN and no infinity"


class Webgpu(Onnxruntime):
    """ONNX Runtime with onnxruntime-ep-webgpu on its first device; no node moves to the CPU."""

    version = "f'{ort.__version__}, onnxruntime-ep-webgpu {version(\"onnxruntime-ep-webgpu\")}'"
    disclaimers: ClassVar[Rules] = {
        ("", "subnormals"): "WGSL, Floating Point Evaluation: implementations may flush subnormal floats to zero",
        ("", "NaN"): _NO_NAN,
        ("", "infinities"): _NO_NAN,
    }

    def __init__(self) -> None:
        super().__init__()
        self.imports = (
            "import os; os.environ['ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER'] = '1'; "
            "import numpy as np, onnxruntime as ort, onnxruntime_ep_webgpu as ep; "
            "from importlib.metadata import version; "
            "ort.register_execution_provider_library('webgpu', ep.get_library_path()); o = ort.SessionOptions(); "
            "o.add_session_config_entry('session.disable_cpu_ep_fallback', '1'); o.add_provider_for_devices("
            "[d for d in ort.get_ep_devices() if d.ep_name == ep.get_ep_name()][:1], {})"
        )
        self._session = "ort.InferenceSession(model, o)"


LIBRARIES = "numpy, torch[:DEVICE], onnxruntime[:PROVIDER], jax, cupy, array-api:MODULE, vulkan:NAME or FILE.py"


def library_of(name: str) -> Library:
    """The library that an argument names.

    Raises:
        LibraryError: there is none; the message lists what is allowed.
    """
    kind, _, where = name.partition(":")
    if name.endswith(".py"):
        return _library_in(name)
    if kind == "torch":
        return Torch(where or "cpu")
    if kind == "onnxruntime":
        return Webgpu() if where == "WebGPU" else Onnxruntime(where or "CPU")
    if kind == "array-api" and all(part.isidentifier() for part in where.split(".")):
        return ArrayApi(where)
    plain = {"numpy": Numpy, "jax": Jax, "cupy": Cupy}
    if name in plain:
        return plain[name]()
    raise LibraryError(f"{shown(name)} is not allowed; allowed are {LIBRARIES}")


def _library_in(path: str) -> Library:
    """An instance of the subclass of `Library` that a file defines."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        classes = [x for x in vars(module).values() if inspect.isclass(x) and x.__module__ == module.__name__]
        libraries = [kind() for kind in classes if issubclass(kind, Library)]
    except (Exception, SystemExit) as error:
        raise LibraryError(f"{path}: {type(error).__name__}: {error}") from None
    if len(libraries) != 1:
        count = f"{len(libraries)} classes" if libraries else "no class"
        raise LibraryError(f"{path} has {count} of dmlgpu.testing.libraries.Library; allowed is one")
    (library,) = libraries
    library.folders = (str(Path(path).resolve().parent), *library.folders)
    return library
