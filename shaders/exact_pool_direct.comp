#version 430
// Exact averages over windows of any size, in any input layout (exact.glsl). One invocation computes an output, or one
// split of its window; splits are those of pool_direct.comp.

#include "core/any_windows.glsl"
#include "core/element_at.glsl"

layout(set = 0, binding = 2) buffer Target { uint target[]; };  // outputs or partials

struct Item {
    uint number;     // of its output, in the dispatch
    uint split;
    uint address;    // of its first element in the input
    uvec3 elements;  // along each dimension
    uint count;      // divisor of an average
};

// Items are numbered split by split.
Item item_number(uint number)
{
    Item item;
    item.split = TO_PARTIALS ? number / output_count : 0;
    item.number = number - item.split * output_count;
    uvec3 steps = first_step(item.split), reach = (min(split_sizes, window_size - steps) - 1) * dilation;
    Window window = window_of(first_output + item.number, steps * dilation, reach);
    uvec3 first = window.begin * stride, last = window.end - 1 - window.begin;
    item.address = window.plane * plane_stride + first.x + first.y + first.z;
    item.elements = (last / dilation + 1) * uvec3(lessThan(window.begin, window.end));
    item.count = window.count;
    return item;
}

// The sum of an item's elements, without those that the bin misses.
Bin bin_of(Item item)
{
    uvec3 step = dilation * stride;
    uint greatest = 0;
    for (uint i = 0; i < 4; ++i) {
        uvec3 at = (item.elements - 1 >> i) * step;
        greatest = max(greatest, finite_exponent(element_at(item.address + at.x + at.y + at.z)));
    }
    Bin bin = empty_bin(greatest);
    for (uint z = 0; z < item.elements.x; ++z)
        for (uint y = 0; y < item.elements.y; ++y) {
            uint address = item.address + z * step.x + y * step.y, x = 0;
            // One by one, loads take as long as the loop over them.
            for (; x + 3 < item.elements.z; x += 4, address += 4 * step.z) {
                Bits elements[4];
                [[unroll]] for (uint k = 0; k < 4; ++k)
                    elements[k] = element_at(address + k * step.z);
                [[unroll]] for (uint k = 0; k < 4; ++k)
                    add(bin, bin_of(bin.least, elements[k]), k, 4);
            }
            for (; x < item.elements.z; ++x, address += step.z)
                add(bin, bin_of(bin.least, element_at(address)), 0, 1);
        }
    return bin;
}

// The sum of all elements of an item, without a bin.
Long sum_of(Item item)
{
    uvec3 step = dilation * stride;
    Long sum = identity();
    for (uint z = 0; z < item.elements.x; ++z)
        for (uint y = 0; y < item.elements.y; ++y)
            for (uint x = 0; x < item.elements.z; ++x)
                add(sum, element_at(item.address + z * step.x + y * step.y + x * step.z));
    return sum;
}

// Writes the output of an item, or its partial result.
void write(Item item, Long sum, Bits value)
{
    uint at = (item.split * output_count + item.number) * PARTIAL_WORDS + partials_base;
    if (TO_PARTIALS)
        STORE_PARTIAL(target, at, sum, item.count)
    else
        STORE_ELEMENT(target, first_output + item.number + partials_base, value)
}

void main()
{
    Items mine = items_of(output_count * push.split_count);
    uint next = mine.next;
    while (next < mine.end) {
        uint first = next, missed = 0;  // bit i: the bin of item i has missed an element
        for (uint iteration = 0; iteration < 32 && next < mine.end; ++iteration, next += ITEM_STRIDE) {
            Item item = item_number(next);
            Bin bin = bin_of(item);
            write(item, long_of(bin), value_of(bin, item.count));
            missed |= uint(has_missed(bin)) << iteration;
        }
        // After the loop over 32 items: CPU drivers execute the body of a loop at least once, masked.
        for (; missed != 0; missed &= missed - 1) {
            Item item = item_number(first + findLSB(missed) * ITEM_STRIDE);
            Long sum = sum_of(item);
            write(item, sum, value_of(sum, item.count));
        }
    }
    report(next, mine.end);
}
