"""A scanned letter without its specks and holes: an opening and a closing of a grey image.

Max pooling with stride 1 is a dilation; of the negative image it is an erosion. Padding never wins, so the border needs
no fill value.
"""

import numpy as np

import dmlgpu

scan = np.full((12, 21), 0.9, np.float32)  # paper, and a letter of ink
scan[2:5, 3:18] = scan[2:10, 9:12] = 0.1
scan[[3, 6, 8], [6, 10, 11]] = 0.8  # holes in the ink
scan[[7, 8, 10], [4, 16, 5]] = 0.2  # specks on the paper

window = {"window_size": 3, "padding": 1}
eroded = -dmlgpu.max_pooling(-scan, **window)
opened = dmlgpu.max_pooling(eroded, **window)  # fills holes that are smaller than 3x3
dilated = dmlgpu.max_pooling(opened, **window)
closed = -dmlgpu.max_pooling(-dilated, **window)  # removes specks

for before, after in zip(scan, closed, strict=True):
    print("".join(np.where(before < 0.5, "#", ".")), " ", "".join(np.where(after < 0.5, "#", ".")))
