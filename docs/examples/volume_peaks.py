"""The peaks of a volume: the voxels that are the maximum of the 3x3x3 window around them.

Pooling returns the index of each maximum; a peak is a voxel that is the maximum of its own window. The first of two
equal neighbours wins, so a flat top counts once. A comparison of values would count it twice.
"""

import numpy as np

import dmlgpu

z, y, x = np.mgrid[:9, :16, :16].astype(np.float32)
volume = np.zeros((9, 16, 16), np.float32)
for height, cz, cy, cx in [(1, 2, 4, 5), (2, 5, 12, 3), (3, 6, 7, 13)]:
    volume += height / (1 + (z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2)
volume[5, 12, 4] = volume[5, 12, 3]  # a flat top of two voxels

# A window of three entries moves along all three dimensions.
maxima, indices = dmlgpu.max_pooling(volume, (3, 3, 3), padding=1, output_indices=True)

own_indices = np.arange(volume.size).reshape(volume.shape)
print(" z  y  x  value")
for peak in np.argwhere(indices == own_indices):
    print("{:2} {:2} {:2}".format(*peak), f" {volume[tuple(peak)]:.3f}")
print("found by value:", np.count_nonzero(maxima == volume))
