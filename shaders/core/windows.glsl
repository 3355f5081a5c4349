// Shared by the kernels over windows. Windows have a depth, a height and a width; a 4-D tensor has depth 1.

#define FIRST_MAXIMUM  // of equal elements the first wins (selection.glsl)
#include "core/kernel.glsl"
#include "accumulator.glsl"

uvec3 all_of(uint dimensions[3]) { return uvec3(dimensions[0], dimensions[1], dimensions[2]); }

// Number of elements of a window that count for an average, along one dimension. The window begins at position `at`,
// and positions begin to end - 1 count. Position 0 is the start of the padding, so padding that does not count is
// before `begin`, or from `end` on. Every window has an element that counts.
uint counted(uint at, uint window, uint dilation, uint begin, uint end)
{
    uint before = at < begin ? (begin - at - 1) / dilation + 1 : 0;
    return min(window, (end - 1 - at) / dilation + 1) - before;
}
