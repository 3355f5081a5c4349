#version 430
// TOP_K, the last step: writes the entries of one list per line to packed outputs. An item is an output.

layout(push_constant) uniform Push {
    uint first_item;     // of this dispatch
    uint item_count;
    uint first_line;     // of the lists
    uint list_size;
    uint k;
    uint inner;          // lines that are neighbours in each row of the outputs
    uint source_base;    // of the first list, in words
    uint values_first;   // the bound segments of the outputs: the first element, and the size of a full segment
    uint values_count;
    uint values_base;
    uint indices_first;
    uint indices_count;
    uint indices_base;
} push;

#define REGISTERS 1
#include "core/entries.glsl"

layout(set = 0, binding = 2) buffer Values { uint values[]; };
layout(set = 0, binding = 3) buffer Indices { uint output_indices[]; };

void main()
{
    uint k = push.k, inner = push.inner, list_size = push.list_size, source_base = push.source_base;
    uint first_line = push.first_line;
    Items mine = items_of(push.item_count);
    uint next = mine.next;
    for (; next < mine.end; next += ITEM_STRIDE) {
        uint item = push.first_item + next, list = item / k, rank = item - list * k;
        uint line = first_line + list, outer = line / inner, at = (outer * k + rank) * inner + line - outer * inner;
        uint entry = source_base + (list * list_size + rank) * ENTRY_WORDS;
        if (at - push.values_first < push.values_count)
            STORE_ELEMENT(values, at + push.values_base, ELEMENT_OF_ENTRY(source, entry))
        if (at - push.indices_first < push.indices_count)
            STORE_INDEX(output_indices, at + push.indices_base, source[entry])
    }
    report(next, mine.end);
}
