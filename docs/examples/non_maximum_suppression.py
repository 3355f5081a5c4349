"""The objects in a detector's heat map: the points that are the maximum of the 5x5 window around them.

CenterNet replaces the usual non-maximum suppression by this: one max pooling, a comparison and a threshold. Maxima have
the same bits as the input, so `==` is safe.
"""

import numpy as np

import dmlgpu

THRESHOLD = 0.3

# Instead of a detector: two objects, a weaker answer beside the first, and a faint one.
y, x = np.mgrid[:10, :32].astype(np.float32)
heat = np.zeros((10, 32), np.float32)
for score, cy, cx in [(0.9, 3, 7), (0.7, 4, 9), (0.8, 6, 25), (0.2, 1, 18)]:
    heat = np.maximum(heat, score / (1 + (y - cy) ** 2 + (x - cx) ** 2))

maxima = dmlgpu.max_pooling(heat, 5, padding=2)  # the padding keeps the heat map's shape
above = heat > THRESHOLD
objects = above & (heat == maxima)

for row in np.where(objects, "O", np.where(above, "+", ".")):
    print("".join(row))
for point in np.argwhere(objects):
    print("row {}, column {}:".format(*point), f"{heat[tuple(point)]:.2f}")
