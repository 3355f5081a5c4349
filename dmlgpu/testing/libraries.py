"""Libraries under test: each describes a call as the text of a program, which runs and is shown as a reproducer."""

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

# What documents say, by function and outcome.
Rules = Mapping[tuple[str, str], str]


class LibraryError(Exception):
    """There is no such library; the message says which there are."""


@dataclass(frozen=True)
class Window:
    """What a pooling has beside its input."""

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
        """Before and after, for each spatial dimension."""
        return list(zip(self.start_padding, self.end_padding, strict=True))


class Library:
    """A library without functions: a base class.

    Each method returns the text of a program, whose last line is an expression for the result or a tuple of results;
    None: the library cannot express the call. The input is `x`. Reduced axes may have size 1 in the result, or be
    dropped. Indices may have any type of integers.
    """

    imports = "import numpy as np"
    """Statements, one line each, before all programs."""
    version = "np.__version__"
    """An expression."""
    from_numpy = "{}"
    """An expression that makes the library's array of NumPy's."""
    to_numpy = "result"
    """An expression that makes an array of NumPy of the library's, `result`."""
    folders: tuple[str, ...] = ()
    """Where modules are that `imports` names."""
    plane_indices = False
    """Whether indices of pooling count within a plane (H, W), not in the whole tensor."""
    promises: ClassVar[Rules] = {}
    """By function and outcome, the text of a document by which the oracle's value is right."""
    disclaimers: ClassVar[Rules] = {}
    """The same of what leaves the value open. For all functions (""): NaN, and of inputs, subnormals and infinities."""

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
        """The gradient of a pooling for x, by `gradient`, which has an element for each window."""

    def literal(
        self, values: str | None, dtype: str, sizes: Sequence[int], strides: Sequence[int] | None, bits: str = ""
    ) -> str:
        """An expression for an array of the library.

        Args:
            values: a list; with strides, of the buffer; None: zeros.
            dtype: NumPy's name of the type.
            sizes: of the array.
            strides: in elements; None: packed.
            bits: the type of integers that `values` has for the bits of floats; empty: it has the floats.
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
    """NumPy, or what has its functions."""

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

    def reduce(self, function: str, x: Array, axes: tuple[int, ...], *, last: bool) -> str | None:
        if function in ("argmax", "argmin") and not last and (len(axes) == 1 or len(axes) == x.ndim):
            return f"{self.module}.{function}(x, axis={None if len(axes) == x.ndim else axes[0]})"
        if function not in _NUMPY_NAMES:
            return None
        dtype = "" if function in ("max", "min", "average") else ", dtype=x.dtype"
        return f"{self.module}.{_NUMPY_NAMES[function]}(x, axis={axes}{dtype})"

    def cumulative(self, function: str, x: Array, axis: int, *, reverse: bool, exclusive: bool) -> str | None:
        if reverse or exclusive:
            return None
        return f"{self.module}.{self.cumulative_names[function]}(x, axis={axis}, dtype=x.dtype)"


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
        if reverse or exclusive:
            return None
        return f"torch.{'cumsum' if function == 'sum' else 'cumprod'}(x, {axis}, dtype=x.dtype)"

    def top_k(self, x: Array, k: int, axis: int, *, largest: bool) -> str | None:
        return f"tuple(torch.topk(x, {k}, {axis}, largest={largest}))"

    def pool(self, function: str, x: Array, window: Window, *, indices: bool) -> str | None:
        name, rank = {"max": "max", "average": "avg", "lp": "lp"}[function], len(window.size)
        if window.start_padding != window.end_padding or (function != "max" and any(d > 1 for d in window.dilations)):
            return None
        if function == "lp":
            if any(window.start_padding) or (window.p % 2 and x.dtype.kind == "f" and (x < 0).any()):
                return None  # PyTorch's norms are of powers with their sign
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
            return None
        return f"jax.lax.{self.cumulative_names[function]}(x, axis={axis}, reverse={reverse})"

    def top_k(self, x: Array, k: int, axis: int, *, largest: bool) -> str | None:
        return f"jax.lax.top_k(x, {k})" if largest and axis == x.ndim - 1 else None

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
# The first opset in which AveragePool has dilations.
_OPSET, _IR_VERSION = 19, 9


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

    def __init__(self, provider: str = "CPU") -> None:
        with extra("onnx", "onnx"):
            import onnx.helper
        self._onnx: Any = onnx
        self.imports = "import numpy as np, onnxruntime as ort"
        self._session = f"ort.InferenceSession(model, providers=[{provider + 'ExecutionProvider'!r}])"

    def _model(self, operator: str, inputs: Mapping[str, Array], results: int = 1, **attributes: Any) -> str:
        """A program that runs a node on x and constants."""
        helper = self._onnx.helper
        names = [f"y{i}" for i in range(results)]
        types = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in inputs.items()}
        constants = [helper.make_tensor(n, types[n], c.shape, c) for n, c in inputs.items() if n != "x"]
        source = [helper.make_tensor_value_info("x", types["x"], inputs["x"].shape)]
        targets = [helper.make_empty_tensor_value_info(name) for name in names]
        node = helper.make_node(operator, list(inputs), names, **attributes)
        graph = helper.make_graph([node], operator, source, targets, constants)
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)
        text = ", ".join(
            [f"{name}={value}" for name, value in attributes.items()]
            + [f"{name}={c.tolist()}" for name, c in inputs.items() if name != "x"]
        )
        content = model.SerializeToString().hex()
        return (
            f"model = bytes.fromhex({content!r})  # {operator}({text}) of opset {_OPSET}\n"
            f"{self._session}.run(None, {{'x': x}})"
        )

    def reduce(self, function: str, x: Array, axes: tuple[int, ...], *, last: bool) -> str | None:
        if function in ("argmax", "argmin"):
            options = {"axis": axes[0], "select_last_index": int(last)}
            return self._model(_ONNX_NAMES[function], {"x": x}, **options) if len(axes) == 1 else None
        if function not in _ONNX_NAMES:
            return None
        return self._model(_ONNX_NAMES[function], {"x": x, "axes": np.array(axes)})

    def cumulative(self, function: str, x: Array, axis: int, *, reverse: bool, exclusive: bool) -> str | None:
        if function != "sum":
            return None
        return self._model("CumSum", {"x": x, "axis": np.array(axis)}, reverse=int(reverse), exclusive=int(exclusive))

    def top_k(self, x: Array, k: int, axis: int, *, largest: bool) -> str | None:
        return self._model("TopK", {"x": x, "k": np.array([k])}, 2, axis=axis, largest=int(largest))

    def pool(self, function: str, x: Array, window: Window, *, indices: bool) -> str | None:
        options: dict[str, Any] = {
            "kernel_shape": window.size,
            "strides": window.strides,
            "pads": [*window.start_padding, *window.end_padding],
            "dilations": window.dilations,
            "ceil_mode": int(window.ceil),
        }
        if function == "average":
            options["count_include_pad"] = int(window.include_padding)
        if function == "lp":
            options["p"] = window.p
        return self._model({"max": "MaxPool", "average": "AveragePool", "lp": "LpPool"}[function], {"x": x},
                           1 + indices, **options)  # fmt: skip


class Webgpu(Onnxruntime):
    """ONNX Runtime with onnxruntime-ep-webgpu on its first device; no node moves to the CPU."""

    version = "f'{ort.__version__}, onnxruntime-ep-webgpu {version(\"onnxruntime-ep-webgpu\")}'"
    disclaimers: ClassVar[Rules] = {
        ("", "subnormals"): "WGSL, Floating Point Evaluation: implementations may flush subnormal floats to zero",
        **{
            (
                "",
                name,
            ): "WGSL, Floating Point Evaluation: implementations may assume that there is no NaN and no infinity"
            for name in ("NaN", "infinities")
        },
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
    """An object of the class of `Library` that a file defines."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise LibraryError(f"{path}: {type(error).__name__}: {error}") from None
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Library) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        count = f"{len(classes)} classes" if classes else "no class"
        raise LibraryError(f"{path} has {count} of dmlgpu.testing.libraries.Library; allowed is one")
    try:
        library: Library = classes[0]()
    except (Exception, SystemExit) as error:
        raise LibraryError(f"{path}: {type(error).__name__}: {error}") from None
    library.folders = (str(Path(path).resolve().parent), *library.folders)
    return library
