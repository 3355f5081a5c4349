"""A scanned letter without its specks and holes: an opening and a closing of a grey image.

Max pooling with stride 1 is a dilation; of the negative image it is an erosion. Padding never wins, so the border needs
no fill value.
"""

import numpy as np

import dmlgpu


def dilated(image, size):
    return dmlgpu.max_pooling(image, size, padding=size // 2)


def eroded(image, size):
    return -dilated(-image, size)


scan = np.full((12, 21), 0.9, np.float32)  # paper, and a letter of ink
scan[2:5, 3:18] = scan[2:10, 9:12] = 0.1
scan[[3, 6, 8], [6, 10, 11]] = 0.8  # holes in the ink
scan[[7, 8, 10], [4, 16, 5]] = 0.2  # specks on the paper

opened = dilated(eroded(scan, 3), 3)  # fills holes that are smaller than 3x3
clean = eroded(dilated(opened, 3), 3)  # a closing, which removes specks

for before, after in zip(scan, clean, strict=True):
    print("".join(np.where(before < 0.5, "#", ".")), " ", "".join(np.where(after < 0.5, "#", ".")))
