"""Max pooling and unpooling: every maximum returns to its place.

Decoders such as SegNet's use the indices that the encoder keeps. Indices are positions in the whole input, so one call
unpools all channels.
"""

import numpy as np

import dmlgpu

# Two channels of 4x6, the numbers from 0 to 47 in a mixed order.
x = np.arange(48, dtype=np.int32).reshape(2, 4, 6) * 29 % 48

pooled, indices = dmlgpu.max_pooling(x, 2, strides=2, output_indices=True)

unpooled = dmlgpu.max_unpooling(pooled, indices, x.shape)

for name, array in [("before", x), ("pooled", pooled), ("indices", indices), ("put back", unpooled)]:
    print(f"{name}:")
    for rows in zip(*array, strict=True):  # the channels side by side
        print("  |  ".join(" ".join(f"{number:2}" for number in row) for row in rows))
