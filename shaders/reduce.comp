#version 430
// Reductions over any layout. One invocation accumulates an output's elements, or one split of them, in order of their
// index, and writes the output, or a partial result for combine.comp.

#include "core/axes.glsl"
#include "core/accumulate_at.glsl"

uint rank = kept_rank + push.reduced_rank, outermost_stride = push.stride[kept_rank];
uint innermost = push.size[rank - 1], step = push.stride[rank - 1];  // of the innermost dimension

State reduce(Split split)
{
    State state = identity();
    if (!SEGMENTED)
        state = empty_from(split.begin);
    for (uint index = split.begin; index < split.end;) {
        uint address = split.address + address_of(index, kept_rank, rank, outermost_stride);
        uint innermost_end = min(split.end, index - index % innermost + innermost);
        for (; innermost_end - index >= 4; index += 4, address += 4 * step) {
            accumulate_at(state, address, index);
            accumulate_at(state, address + step, index + 1);
            accumulate_at(state, address + 2 * step, index + 2);
            accumulate_at(state, address + 3 * step, index + 3);
        }
        for (; index < innermost_end; ++index, address += step)
            accumulate_at(state, address, index);
    }
    return state;
}

void main()
{
    Items mine = items_of(output_count * split_count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        Split split = split_of(item);
        write(split.i, split.number, reduce(split));
    }
    report(item, mine.end);
}
