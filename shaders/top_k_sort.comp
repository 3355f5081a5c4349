#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// TOP_K, the first step: sorted lists of elements. An item sorts the first elements of LIST neighbouring groups:
//
//   line    [ group ][ group ] ... [ group ][ group ] ... [ group ] ...
//           |------------ item 0 ----------||---------- item 1 ---- ...
//
// With groups of one element these are all elements. Where groups are chosen, an item sorts LIST neighbouring elements
// of a group, and the groups are those of the entries of a list:
//
//   list    [ entry ][ entry ] ...      chosen    [ its group ][ its group ] ...
//                                                 [ item ][ item ] ...
//
// All are comparisons and selects of registers, so that invocations do the same whatever the elements are.

layout(push_constant) uniform Push {
    uint first_item;     // of this dispatch
    uint item_count;
    uint line_count;
    uint first_line;
    uint list_count;     // of a line
    uint list_size;      // entries of a list that are kept
    uint group_shift;    // groups have 1 << group_shift elements
    uint first_element;  // of each line, in this dispatch
    uint element_count;
    uint chosen_count;   // entries of the list of a line that chooses groups; 0: items have all groups
    uint chosen_base;    // of these lists, in words
    uint outer_stride;   // lines are numbered outer * inner_size + inner
    uint inner_stride;
    uint inner_size;
    uint element_stride;
    uint source_base;    // address + source_base is the place in the buffer, in elements
    uint target_base;    // of the lists that are written, in words
} push;

#define REGISTERS 9
#include "core/entries.glsl"

layout(constant_id = 11) const bool CONTIGUOUS = false;  // elements of a line follow each other

layout(set = 0, binding = 2) buffer Target { uint target[]; };
layout(set = 0, binding = 3) readonly buffer Chosen { uint chosen[]; };

const uint LIST = 8;

// Batcher's odd-even merge sort of the first LIST entries.
void sort_entries()
{
    order(0, 1), order(2, 3), order(4, 5), order(6, 7);
    order(0, 2), order(1, 3), order(4, 6), order(5, 7);
    order(1, 2), order(5, 6);
    order(0, 4), order(1, 5), order(2, 6), order(3, 7);
    order(2, 4), order(3, 5);
    order(1, 2), order(3, 4), order(5, 6);
}

void main()
{
    uint line_count = push.line_count, list_count = push.list_count, list_size = push.list_size;
    uint first_element = push.first_element, element_count = push.element_count, stride = push.element_stride;
    uint group_shift = push.group_shift, group_size = 1 << group_shift, chosen_count = push.chosen_count;
    bool by_line = CONTIGUOUS || chosen_count != 0;
    Items mine = items_of(push.item_count);
    uint next = mine.next;
    for (; next < mine.end; next += ITEM_STRIDE) {
        // Neighbouring items load neighbouring memory.
        uint item = push.first_item + next;
        uint list = by_line ? item % list_count : item / line_count;
        uint line = by_line ? item / list_count : item - list * line_count;
        uint outer = push.first_line + line, inner = 0;
        if (push.inner_size != 1) {
            inner = outer % push.inner_size;
            outer /= push.inner_size;
        }
        uint address = push.source_base + first_element * stride;
        address += outer * push.outer_stride + inner * push.inner_stride;
        uint begin = list * LIST * group_size, step = group_size, iterations = group_size;
        if (chosen_count != 0) {
            uint place = list * LIST, entry = line * chosen_count + (place >> group_shift);
            uint element = chosen[push.chosen_base + entry * ENTRY_WORDS] - first_element;
            begin = (element & ~(group_size - 1)) + (place & (group_size - 1));
            step = 1;
            iterations = 1;
        }
        [[unroll]] for (uint i = 0; i < LIST; ++i)
            set_entry(i, Bits(0), NONE);
        for (uint iteration = 0; iteration < iterations; ++iteration) {
            [[unroll]] for (uint i = 0; i < LIST; ++i) {
                uint at = begin + i * step + iteration, index = first_element + at, none = NONE;
                bool is_element = at < element_count;
                set_entry(LIST, LOAD(source, address + (is_element ? at : 0) * stride), is_element ? index : none);
                // Indices ascend: of equal elements the first stays.
                bool wins = any(bvec2(is_higher(keys[LIST], keys[i]), iteration == 0));
                keys[i] = wins ? keys[LIST] : keys[i];
                elements[i] = wins ? elements[LIST] : elements[i];
                indices[i] = wins ? indices[LIST] : indices[i];
            }
        }
        sort_entries();
        uint target_place = push.target_base + (line * list_count + list) * list_size * ENTRY_WORDS;
        [[unroll]] for (uint i = 0; i < LIST; ++i)
            if (i < list_size)
                STORE_ENTRY(target, target_place + i * ENTRY_WORDS, i)
    }
    report(next, mine.end);
}
