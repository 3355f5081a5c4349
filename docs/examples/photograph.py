"""A photograph at half its size: each pixel is the average of four pixels, colour by colour.

Image files have the colours last, (height, width, 3); pooling needs them first. The first argument is an image file, by
default the demo's photograph; the second, if any, is the file to write.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import dmlgpu

path = sys.argv[1] if sys.argv[1:] else Path(dmlgpu.__file__).parent / "tools" / "grace_hopper.jpg"
photo = np.asarray(Image.open(path).convert("RGB"))  # (height, width, 3), uint8
colours = photo.transpose(2, 0, 1).astype(np.float32)  # (3, height, width)

half = dmlgpu.average_pooling(colours, 2, strides=2)  # (3, height / 2, width / 2)
small = Image.fromarray(half.round().astype(np.uint8).transpose(1, 2, 0))
if sys.argv[2:]:
    small.save(sys.argv[2])

print(photo.shape, "->", np.asarray(small).shape)
for name, place in zip(("red", "green", "blue"), dmlgpu.argmax(colours, axis=(1, 2)), strict=True):
    print(f"brightest {name}: row {place // photo.shape[1]}, column {place % photo.shape[1]}")
