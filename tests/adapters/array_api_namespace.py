"""The library under test of `conformance.py`: NumPy's namespace with the functions of dmlgpu.interop.array_api."""

import atexit
import collections
import functools

import numpy

from dmlgpu.interop import array_api

calls = collections.Counter()
atexit.register(lambda: print("calls:", ", ".join(f"{count} {name}" for name, count in sorted(calls.items()))))


def counted(name):
    ours, numpys = getattr(array_api, name), getattr(numpy, name)

    @functools.wraps(ours)
    def function(x, /, **options):
        types = {x.dtype.name, numpy.dtype(options.get("dtype") or x.dtype).name}
        refused = name in ("cumulative_prod", "cumulative_sum", "mean", "prod", "sum") and types & {
            "float64",
            "complex64",
            "complex128",
        }
        calls[f"{name} by NumPy" if refused else name] += 1
        return (numpys if refused else ours)(x, **options)

    return function


globals().update({name: value for name, value in vars(numpy).items() if name not in globals()})
globals().update({name: counted(name) for name in array_api.__all__ if hasattr(numpy, name)})
