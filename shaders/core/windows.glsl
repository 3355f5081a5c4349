// Shared by the kernels over windows. Windows have a depth, a height and a width; a 4-D tensor has depth 1.

#define POOLING
#include "core/constants.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/blocks.glsl"
#include "core/stores.glsl"
#include "core/counted.glsl"
#include "accumulator.glsl"

uvec3 all_of(uint dimensions[3]) { return uvec3(dimensions[0], dimensions[1], dimensions[2]); }

#ifdef HAS_BIN
#define Stored Long

// The element at `address`; 0, which adds nothing, if the bound segment does not have it. That has `count` elements from
// address `first` on.
Bits element_at(uint address, uint first, uint count)
{
    Bits element = 0;
    if (!SEGMENTED || address - first < count)
        element = LOAD(source, address);
    return element;
}

// The sum of a window's elements, if the bin has all but those that it missed: of `begin`, `begin` + `dilation`, ...
// below `end`. Element (0, 0, 0) is at `address`.
Long whole(Bin bin, uint address, uvec3 begin, uvec3 end, uvec3 dilation, uvec3 stride, uint first, uint count)
{
    Long sum = long_of(bin);
    for (uint z = begin.x; has_missed(bin) && z < end.x; z += min(dilation.x, end.x - z))
        for (uint y = begin.y; y < end.y; y += min(dilation.y, end.y - y))
            for (uint x = begin.z; x < end.z; x += min(dilation.z, end.z - x))
                add_missed(sum, bin, element_at(address + z * stride.x + y * stride.y + x * stride.z, first, count));
    return sum;
}

// The average of a window without a bin, for one that missed an element. The window begins at `at`, counted from the begin
// of the padding.
Bits average_of(uint address, uvec3 at, uvec3 window, uvec3 dilation, uvec3 size, uvec3 stride, uvec3 padding,
                uvec3 counted_begin, uvec3 counted_end)
{
    uvec3 begin, end;
    uint count = 1;
    [[unroll]] for (uint d = 0; d < 3; ++d) {
        uint last = at[d] + min((window[d] - 1) * dilation[d], ~at[d]);
        uint steps_outside = at[d] < padding[d] ? (padding[d] - at[d] - 1) / dilation[d] + 1 : 0;
        begin[d] = at[d] + steps_outside * dilation[d] - padding[d];
        end[d] = last >= padding[d] ? min(size[d] - 1, last - padding[d]) + 1 : 0;
        count *= counted(at[d], window[d], dilation[d], counted_begin[d], counted_end[d]);
    }
    return value_of(whole(closed(), address, begin, end, dilation, stride, 0, 0), count);
}

#else
#define Stored State
#define whole(state, address, begin, end, dilation, stride, first, count) (state)
#define has_missed(state) false
#endif
