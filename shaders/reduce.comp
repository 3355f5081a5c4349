#version 430
// Reductions over any layout. One invocation accumulates an output's elements, or one split of them, in order of their
// index, and writes the output, or a partial result for combine.comp.

#include "core/axes.glsl"

// Accumulates the element at `address`, if the bound segment has it.
void accumulate_at(inout State state, uint address, uint index)
{
    if (!SEGMENTED)
        accumulate(state, operand_of(LOAD(source, address + source_base)), index);
    else if (address - source_first < source_count)
        state = combine(state, state_of(operand_of(LOAD(source, address + source_base)), index));
}

// The innermost dimension has `innermost` elements, which are `step` apart.
State reduce(uint origin, uint begin, uint end, uint rank, uint innermost, uint step, uint outermost_stride)
{
    State state = identity();
    if (!SEGMENTED)
        state = empty_from(begin);
    for (uint index = begin; index < end;) {
        uint address = origin + address_of(index, kept_rank, rank, outermost_stride);
        uint innermost_end = min(end, index - index % innermost + innermost);
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
    uint rank = kept_rank + push.reduced_rank, innermost = push.size[rank - 1], step = push.stride[rank - 1];
    uint outermost_stride = push.stride[kept_rank];
    Items mine = items_of(output_count * split_count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint split = TO_PARTIALS ? item / output_count : 0;
        uint i = item - split * output_count;
        uint begin, end;
        split_range(split, begin, end);
        uint origin = address_of_kept(first_output + i, kept_rank);
        write(i, split, reduce(origin, begin, end, rank, innermost, step, outermost_stride));
    }
    report(item, mine.end);
}
