"""What fills the buffers of tensors: values that operators are likely to get wrong, the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu.descriptors.tensor import Array, TensorDesc

# Returns the elements of a buffer, by type and count.
Fill = Callable[[np.dtype[Any], int], Array]


def arranged(tensor: TensorDesc, fill: Fill) -> Array:
    """The elements of a tensor whose buffer has this fill."""
    buffer = fill(tensor.data_type.numpy, tensor.reach)
    strides = [stride * buffer.itemsize for stride in tensor.element_strides]
    return np.lib.stride_tricks.as_strided(buffer, tensor.sizes, strides, writeable=False)


def literal(values: Any) -> Fill:
    """These values, in row-major order."""
    return lambda dtype, count: np.array(values, dtype).reshape(count)


def ties(dtype: np.dtype[Any], count: int) -> Array:
    """Few different values, many of them equal."""
    return np.random.default_rng(count).integers(0, 4, count).astype(dtype) - (dtype.kind != "u")


def any_bits(dtype: np.dtype[Any], count: int) -> Array:
    """Every bit pattern: in floats also NaN, infinities and denormals."""
    return np.frombuffer(np.random.default_rng(count).bytes(count * dtype.itemsize), dtype)


def distinct(dtype: np.dtype[Any], count: int) -> Array:
    """Values that differ as far as the type allows, shuffled."""
    with np.errstate(over="ignore"):  # float16 ends at 65504
        return np.random.default_rng(count).permutation(count).astype(dtype)


def rising(dtype: np.dtype[Any], count: int) -> Array:
    """Ones, with a 0 and a 2 near the end."""
    values = np.ones(count, dtype)
    values[-3:-1] = 0, 2
    return values


def small(dtype: np.dtype[Any], count: int) -> Array:
    """Integers so small that sums of a few hundred, also of squares, are exact."""
    return np.random.default_rng(count).integers(-4 if dtype.kind != "u" else 0, 5, count).astype(dtype)


def negative(dtype: np.dtype[Any], count: int) -> Array:
    """Negative values, in unsigned types only 0: padding with 0 would win."""
    values = np.random.default_rng(count).integers(1, 100, count)
    return (-values if dtype.kind != "u" else values * 0).astype(dtype)


def least(dtype: np.dtype[Any], count: int) -> Array:
    """The least value of the type: an initial value must not win."""
    return np.full(count, -np.inf if dtype.kind == "f" else np.iinfo(dtype).min, dtype)


def greatest(dtype: np.dtype[Any], count: int) -> Array:
    """The greatest value of the type."""
    return np.full(count, np.inf if dtype.kind == "f" else np.iinfo(dtype).max, dtype)


def negative_zeros(dtype: np.dtype[Any], count: int) -> Array:
    """-0 and -1: no maximum is +0."""
    return -np.random.default_rng(count).integers(0, 2, count).astype(dtype)


def special_values(dtype: np.dtype[Any]) -> Array:
    """The values of a type that comparisons are most likely to get wrong."""
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        return np.unique(np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], dtype))
    # The bits of positive values; the same with the sign follow.
    magnitudes = {
        2: [0x0000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF],
        4: [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF],
        # Zeros and ones in either word; NaN by the bits of either word.
        8: [
            0,
            1,
            0xFFFFFFFF,
            1 << 32,
            (1 << 52) - 1,
            1 << 52,
            0x3FF << 52,
            (0x3FF << 52) + 0xFFFFFFFF,
            (0x7FF << 52) - 1,
            0x7FF << 52,
            (0x7FF << 52) + 1,
            (0x7FF << 52) + (1 << 32),
            (1 << 63) - 1,
        ],
    }[dtype.itemsize]
    words = np.array(magnitudes, f"u{dtype.itemsize}")
    return np.concatenate([words, words | 1 << (8 * dtype.itemsize - 1)]).astype(words.dtype).view(dtype)


def special(dtype: np.dtype[Any], count: int) -> Array:
    """Extremes; for floats both zeros, denormals, infinities, and NaN of several payloads, quiet and signalling."""
    return np.random.default_rng(count).choice(special_values(dtype).view(f"u{dtype.itemsize}"), count).view(dtype)


def special_without_nan(dtype: np.dtype[Any], count: int) -> Array:
    """As `special`, without NaN, because NaN wins wherever it is."""
    values = special_values(dtype)
    words = values[values == values].view(f"u{dtype.itemsize}")
    return np.random.default_rng(count).choice(words, count).view(dtype)


def normal(dtype: np.dtype[Any], count: int) -> Array:
    """Floats around 0, whose sums are rounded."""
    return np.random.default_rng(count).standard_normal(count).astype(dtype)


def few_extremes(dtype: np.dtype[Any], count: int) -> Array:
    """As `normal`, with some special values."""
    is_special = np.random.default_rng(count).random(count) < 0.02
    values: Array = np.where(is_special, special_without_nan(dtype, count), normal(dtype, count))
    return values


def few_nan(dtype: np.dtype[Any], count: int) -> Array:
    """As `special_without_nan`; in floats with some NaN."""
    values = special_without_nan(dtype, count)
    if dtype.kind == "f":
        values[np.random.default_rng(count).random(count) < 0.02] = np.nan
    return values


def factors(dtype: np.dtype[Any], count: int) -> Array:
    """Floats whose products stay in range; odd integers, whose product is never 0."""
    rng = np.random.default_rng(count)
    if dtype.kind != "f":
        return rng.integers(0, np.iinfo(dtype).max, count, dtype) | dtype.type(1)
    return (np.exp2(rng.uniform(-1, 1, count)) * rng.choice([-1, 1], count)).astype(dtype)
