#version 430
// TOP_K, the first step: sorted lists of elements. An item sorts the first elements of groups, eight at a time, and
// keeps the first LIST of them all. Each of eight neighbouring groups has every eighth element, so that rows of eight
// elements are loaded:
//
//   line    [ row ][ row ][ row ][ row ] ... [ row ] ...     with 2 rows a group
//           |- 8 groups -||- 8 groups -| ...
//           |--------- item 0 ---------||--- item 1 --- ...
//
// With groups of one element, an item sorts all elements. If groups are chosen, an item sorts the elements of the
// groups that the entries of lists belong to; with groups of one element it merges these lists.
//
// All steps are comparisons and selects of registers, so that invocations execute the same for any elements. How many
// elements they sort varies: those that come after the last one of a full list are dropped.

layout(push_constant) uniform Push {
    uint first_item;     // of this dispatch
    uint item_count;
    uint item_size;      // groups, or elements of chosen groups; a multiple of 8
    uint line_count;
    uint first_line;
    uint list_count;     // of a line
    uint list_size;      // entries of a list that are kept
    uint group_shift;    // groups have 1 << group_shift elements
    uint first_element;  // of each line, in this dispatch
    uint element_count;
    uint chosen_count;   // entries of the lists of a line that choose groups; 0: items have all groups
    uint chosen_size;    // entries of one of these lists, if groups have one element, or else 8
    uint chosen_base;    // of these lists, in words
    uint outer_stride;   // lines are numbered outer * inner_size + inner
    uint inner_stride;
    uint inner_size;
    uint element_stride;
    uint source_base;    // address + source_base is the offset in the buffer, in elements
    uint target_base;    // of the lists that are written, in words
} push;

#define REGISTERS 17
#include "core/entries.glsl"

layout(constant_id = 11) const bool CONTIGUOUS = false;  // elements of a line follow each other

layout(set = 0, binding = 2) buffer Target { uint target[]; };
layout(set = 0, binding = 3) readonly buffer Chosen { uint chosen[]; };

// Batcher's odd-even merge sort of the 8 entries from `i` on.
void sort_entries(uint i)
{
    order(i, i + 1), order(i + 2, i + 3), order(i + 4, i + 5), order(i + 6, i + 7);
    order(i, i + 2), order(i + 1, i + 3), order(i + 4, i + 6), order(i + 5, i + 7);
    order(i + 1, i + 2), order(i + 5, i + 6);
    order(i, i + 4), order(i + 1, i + 5), order(i + 2, i + 6), order(i + 3, i + 7);
    order(i + 2, i + 4), order(i + 3, i + 5);
    order(i + 1, i + 2), order(i + 3, i + 4), order(i + 5, i + 6);
}

// The last entry of the list, if it is full; else one that comes after every element.
Bits last_key;
uint last_index;

// Moves entry b to a; b becomes absent.
void move_entry(uint a, uint b)
{
    keys[a] = keys[b];
    indices[a] = indices[b];
    keys[b] = LOWEST;
    indices[b] = NONE;
}

#ifdef LONG

// The list, and as many entries for a stage of merging it.
const uint LIST = 64;
Bits list_keys[2 * LIST];
uint list_indices[2 * LIST];

void clear_list()
{
    [[unroll]] for (uint i = 0; i < LIST; ++i) {
        list_keys[i] = LOWEST;
        list_indices[i] = NONE;
    }
}

// A stage of a bitonic merge: orders entries of `from` that are half a list apart, and shuffles them to `to`, where
// those for the next stage are half a list apart (Stone: Parallel processing with the perfect shuffle, 1971).
void merge_stage(uint from, uint to)
{
    [[unroll]] for (uint i = 0; i < LIST / 2; ++i) {
        uint a = from + i, b = a + LIST / 2;
        Bits key_a = list_keys[a], key_b = list_keys[b];
        uint index_a = list_indices[a], index_b = list_indices[b];
        bool swaps = is_before(key_b, index_b, key_a, index_a);
        list_keys[to + 2 * i] = swaps ? key_b : key_a;
        list_keys[to + 2 * i + 1] = swaps ? key_a : key_b;
        list_indices[to + 2 * i] = swaps ? index_b : index_a;
        list_indices[to + 2 * i + 1] = swaps ? index_a : index_b;
    }
}

// Merges 16 sorted entries with the list, which drops its last ones.
void merge_list()
{
    [[unroll]] for (uint i = 0; i < 16; ++i) {
        uint last = LIST - 1 - i, index = list_indices[last];
        Bits key = list_keys[last];
        bool wins = is_before(keys[i], indices[i], key, index);
        list_keys[last] = wins ? keys[i] : key;
        list_indices[last] = wins ? indices[i] : index;
    }
    for (uint stage = 0; stage < 6; stage += 2) {
        merge_stage(0, LIST);
        merge_stage(LIST, 0);
    }
    last_key = list_keys[LIST - 1];
    last_index = list_indices[LIST - 1];
}

#else

// The list is entries 0 to 7.
const uint LIST = 8;
#define list_indices indices
void clear_list() {}
void merge_list() {}

#endif

// No dynamic index of an array: Mesa 22.3 takes 14 s to compile one.
uint list_index(uint i)
{
    uint index = list_indices[0];
    [[unroll]] for (uint k = 1; k < LIST; ++k)
        index = i == k ? list_indices[k] : index;
    return index;
}

const uint LOADED = min(VECTOR_SIZE, 8);  // elements that are loaded of a vector

void main()
{
    uint line_count = push.line_count, list_count = push.list_count, list_size = push.list_size;
    uint first_element = push.first_element, element_count = push.element_count, stride = push.element_stride;
    uint group_shift = push.group_shift, group_size = 1 << group_shift, rows = group_size;
    uint chosen_count = push.chosen_count, chosen_mask = push.chosen_size - 1;
    uint place_count = ((element_count - 1) >> group_shift) + 1;
    bool chooses = chosen_count != 0;
    if (chooses) {
        place_count = chosen_count << group_shift;
        rows = 1;
    }
    bool by_line = CONTIGUOUS || chooses;
    Items mine = items_of(push.item_count);
    uint next = mine.next;
    // llvmpipe executes the body of a loop at least once, but skips what follows a return of all invocations.
    if (next >= mine.end)
        return;
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
        uint first_choice = line * chosen_count;
        last_key = LOWEST;
        last_index = NONE - 1;
        if (chooses && group_size != 1) {
            uint last = push.chosen_base + (first_choice + chosen_count - 1) * ENTRY_WORDS;
            set_entry(16, ELEMENT_OF_ENTRY(chosen, last), chosen[last]);
            last_key = keys[16];
            last_index = indices[16];
        }
        clear_list();
        uint place = list * push.item_size, end = min(place + push.item_size, place_count);
        while (place < end) {
            bool is_empty = true, is_full = false;
            for (; all(bvec2(place < end, !is_full)); ++place) {
                for (uint row = 0; row < rows; ++row) {
                    uint begin = (place << group_shift) + row * 8, at[8];
                    [[unroll]] for (uint i = 0; i < 8; ++i)
                        at[i] = begin + i;
                    if (chooses) {
                        uint entry = first_choice + (place >> group_shift);
                        uint element = chosen[push.chosen_base + entry * ENTRY_WORDS] - first_element;
                        begin = (element / 8 & ~(group_size - 1) | place & (group_size - 1)) * 8 + element % 8;
                        [[unroll]] for (uint i = 0; i < 8; ++i)
                            at[i] = begin + i * 8;
                        if (group_size == 1) {
                            // A loop, because SPIR-V that loads 8 of them takes long to compile.
                            [[dont_unroll]] for (uint i = 0; i < 8; ++i) {
                                [[unroll]] for (uint k = 0; k < 7; ++k)
                                    at[k] = at[k + 1];
                                at[7] = chosen[push.chosen_base + (entry + i) * ENTRY_WORDS] - first_element;
                            }
                        }
                    }
                    Bits loaded[8];
                    if (ALIGNED && !chooses) {
                        [[unroll]] for (uint i = 0; i < 8; i += VECTOR_SIZE) {
                            uvec4 vector = aligned_vector(address + (at[i] < element_count ? at[i] : 0));
                            [[unroll]] for (uint k = 0; k < LOADED; ++k)
                                loaded[i + k] = element_of(vector, k);
                        }
                    } else {
                        [[unroll]] for (uint i = 0; i < 8; ++i)
                            loaded[i] = LOAD(source, address + (at[i] < element_count ? at[i] : 0) * stride);
                    }
                    [[unroll]] for (uint i = 0; i < 8; ++i) {
                        uint index = first_element + at[i], none = NONE;
                        set_entry(16, loaded[i], at[i] < element_count ? index : none);
                        // Indices ascend, so the first of equal elements stays.
                        bool wins = any(bvec2(is_higher(keys[16], keys[8 + i]), row == 0));
                        keys[8 + i] = wins ? keys[16] : keys[8 + i];
                        indices[8 + i] = wins ? indices[16] : indices[8 + i];
                    }
                }
                [[unroll]] for (uint i = 8; i < 16; ++i) {
                    bool drops = is_before(last_key, last_index, keys[i], indices[i]);
                    Bits lowest = LOWEST;
                    uint none = NONE;
                    keys[i] = drops ? lowest : keys[i];
                    indices[i] = drops ? none : indices[i];
                }
                // After a dropped entry, all entries of its list are dropped.
                place |= indices[15] == NONE ? chosen_mask : 7;
                sort_entries(8);
                // Without other entries, GPUs and SwiftShader merge nothing.
                if (is_empty) {
                    [[unroll]] for (uint i = 0; i < 8; ++i)
                        move_entry(i, 8 + i);
                } else {
                    [[unroll]] for (uint i = 0; i < 8; ++i)
                        order(i, 15 - i);
                    merge_entries(0);
                    if (LIST > 8) {
                        merge_entries(8);
                        is_full = indices[8] != NONE;
                    }
                }
                is_empty = false;
            }
            merge_list();
        }
        uint target_place = push.target_base + (line * list_count + list) * list_size * ENTRY_WORDS;
        for (uint i = 0; i < list_size; ++i) {
            uint index = list_index(i), at = index == NONE ? 0 : index - first_element;
            elements[16] = LOAD(source, address + at * stride);
            indices[16] = index;
            STORE_ENTRY(target, target_place + i * ENTRY_WORDS, 16)
        }
    }
    report(next, mine.end);
}
