"""SciPy: max pooling as a filter, of which the outputs are cut out."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, first_line
from dmlgpu import DataType, MaxPooling2OperatorDesc
from tests.support.cases import Array


class ScipyPeer(Peer):
    """SciPy, on one thread."""

    name = "SciPy"

    def __init__(self) -> None:
        try:
            import scipy
            from scipy import ndimage
        except ModuleNotFoundError:
            raise UnavailableError("not installed") from None
        except (ImportError, OSError) as error:
            raise UnavailableError(f"cannot be imported: {first_line(error)}") from None
        self._filter: Any = ndimage.maximum_filter
        self._version: str = scipy.__version__

    @property
    def description(self) -> str:
        return f"{self._version}, 1 thread"

    def max_pooling(self, desc: MaxPooling2OperatorDesc, x: Array) -> Contender:
        if desc.output_indices_tensor:
            raise UnavailableError("no indices in SciPy's maximum_filter")
        if {*desc.strides, *desc.dilations} != {1} or any((*desc.start_padding, *desc.end_padding)):
            raise UnavailableError("no strides, dilations and padding of pooling in SciPy's maximum_filter")
        if desc.input_tensor.data_type is DataType.FLOAT16:
            raise UnavailableError("no float16 in SciPy's maximum_filter")
        # Its windows stand around their outputs, and hang over the edges of the input.
        size = (1, 1, *desc.window_size)
        inside = tuple(
            slice(side // 2, side // 2 + count) for side, count in zip(size, desc.output_tensor.sizes, strict=True)
        )
        return Contender(lambda: self._filter(x, size)[inside], lambda output: as_outputs(desc, output))
