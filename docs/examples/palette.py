"""An image in five colours: every pixel becomes the nearest colour of a palette.

ARGMIN over the distances to all colours finds it. Distances may be integers or floats; the first of equal ones wins.
"""

import numpy as np

import dmlgpu

PALETTE = {".": (0, 0, 0), "r": (255, 0, 0), "g": (0, 255, 0), "y": (255, 255, 0), "o": (128, 128, 0)}

# To the right there is more red, downwards there is more green.
y, x = np.mgrid[:16, :64].astype(np.int32)
image = np.stack([x * 255 // 63, y * 255 // 15, np.zeros_like(x)], axis=-1)  # (height, width, 3)

colours = np.array(list(PALETTE.values()), np.int32)
differences = image - colours[:, np.newaxis, np.newaxis]  # (colours, height, width, 3)
nearest = dmlgpu.argmin((differences**2).sum(axis=-1), axis=0)  # (height, width)

symbols = np.array(list(PALETTE))
for row in symbols[nearest]:
    print("".join(row))
