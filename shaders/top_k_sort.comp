#version 430
// TOP_K, the first step: sorted lists of elements. An item sorts the first elements of groups, eight at a time, and
// keeps the first LIST of them all. Each of eight neighbouring groups has every eighth element, so that rows of eight
// elements are loaded:
//
//   line    [ row ][ row ][ row ][ row ] ... [ row ] ...     with 2 rows a group
//           |- 8 groups -||- 8 groups -| ...
//           |--------- item 0 ---------||--- item 1 --- ...
//
// With groups of one element, an item sorts all elements. If the entries of lists choose groups, an item sorts the
// elements of the groups that these entries belong to; with groups of one element it merges these lists. The list that
// results may choose groups in a second step.
//
// All steps are comparisons and selects of registers, so that invocations execute the same for any elements. How many
// elements they sort varies: those that come after the last one of a full list, or of the list that chooses groups, are
// dropped, and a row of these is not sorted.

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
    uint chosen_base;    // of these lists, in words from target_base on
    uint step_count;     // 2: then the list chooses groups of 1 << next_shift elements
    uint next_shift;
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
// Whether groups have several elements, or are chosen. Otherwise the kernel compiles in half the time (Mesa 25).
layout(constant_id = 13) const bool GROUPED = false;

layout(set = 0, binding = 2) buffer Lists { uint lists[]; };

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

// Moves the indices of the first 8 entries of the list to entries 0 to 7, and those of all others forward.
void move_row(uint first)
{
    [[unroll]] for (uint i = 0; i < 8; ++i)
        indices[i] = list_indices[i];
    [[unroll]] for (uint i = 8; i < LIST; ++i)
        list_indices[i - 8] = list_indices[i];
}

#else

// The list is entries 0 to LIST - 1. With 16, an item has no more elements than that.
layout(constant_id = 14) const bool SIXTEEN = false;
const uint LIST = SIXTEEN ? 16 : 8;
void clear_list() {}
void merge_list() {}

// Moves the index of each entry of row `first` of the list to entries 0 to 7.
void move_row(uint first)
{
    if (SIXTEEN && first != 0) {
        [[unroll]] for (uint i = 0; i < 8; ++i)
            indices[i] = indices[8 + i];
    }
}

#endif

// The line: elements 0 to element_count - 1 are those of this dispatch.
uint address, stride, first_element, element_count;

// What an item sorts in a step.
struct Step {
    uint group_shift;   // groups have 1 << group_shift elements
    uint chosen_count;  // entries that choose groups; 0: the first elements of all groups
    uint chosen_place;  // of these entries, in words
    uint chosen_mask;   // entries of one of their lists, minus 1
};
bool chooses(Step step) { return GROUPED && step.chosen_count != 0; }
uint shift_of(Step step) { return GROUPED ? step.group_shift : 0; }

const uint LOADED = min(VECTOR_SIZE, 8);  // elements that are loaded of a vector

// The elements of a row, or the first ones of groups.
uint at[8];

// Finds the row that begins with element `place`, or with an element of chosen groups, or with group `place`.
void find_row(Step step, uint place)
{
    [[unroll]] for (uint i = 0; i < 8; ++i)
        at[i] = (place << shift_of(step)) + i;
    if (chooses(step)) {
        uint group_size = 1 << step.group_shift;
        uint entry = step.chosen_place + (place >> step.group_shift) * ENTRY_WORDS;
        // A loop, because SPIR-V that loads 8 of them takes long to compile.
        [[dont_unroll]] for (uint i = 0; i < (group_size == 1 ? 8 : 1); ++i) {
            [[unroll]] for (uint k = 0; k < 7; ++k)
                at[k] = at[k + 1];
            at[7] = lists[entry + i * ENTRY_WORDS] - first_element;
        }
        if (group_size > 1) {
            uint begin = (at[7] / 8 & ~(group_size - 1) | place & (group_size - 1)) * 8 + at[7] % 8;
            [[unroll]] for (uint i = 0; i < 8; ++i)
                at[i] = begin + i * 8;
        }
    }
}

// Loads the row as entries 8 to 15, or the highest key of each group, whose elements are 8 apart. Indices are relative
// to `at`, and entries of absent elements have any key.
void load_row(Step step)
{
    uint row_end = chooses(step) ? 8 : 8 << shift_of(step);
    [[unroll]] for (uint i = 8; i < 16; ++i) {
        keys[i] = LOWEST;
        indices[i] = 0;
    }
    for (uint row = 0; row < row_end; row += 8) {
        // After the last element a group's first one is loaded again, which never wins.
        Bits loaded[8];
        uint element[8];
        [[unroll]] for (uint i = 0; i < 8; ++i) {
            uint first = at[i] < element_count ? at[i] : 0;
            element[i] = at[i] + row < element_count ? at[i] + row : first;
        }
        if (ALIGNED && !chooses(step)) {
            [[unroll]] for (uint i = 0; i < 8; i += VECTOR_SIZE) {
                uvec4 vector = aligned_vector(address + element[i]);
                [[unroll]] for (uint k = 0; k < LOADED; ++k)
                    loaded[i + k] = element_of(vector, k);
            }
        } else if (IN_TURNS) {
            [[dont_unroll]] for (uint turn = 0; turn < 4; ++turn) {
                [[unroll]] for (uint i = 0; i < 6; ++i)
                    loaded[i] = loaded[2 + i];
                loaded[6] = LOAD(source, address + element[0] * stride);
                loaded[7] = LOAD(source, address + element[1] * stride);
                [[unroll]] for (uint i = 0; i < 6; ++i)
                    element[i] = element[2 + i];
            }
        } else {
            [[unroll]] for (uint i = 0; i < 8; ++i)
                loaded[i] = LOAD(source, address + element[i] * stride);
        }
        [[unroll]] for (uint i = 0; i < 8; ++i) {
            Bits key = key_of(loaded[i]);
            bool wins = is_higher(key, keys[8 + i]);
            keys[8 + i] = wins ? key : keys[8 + i];
            indices[8 + i] = wins ? row : indices[8 + i];
        }
    }
}

// Loads rows until one has an entry that is not dropped; `place` is then after that row.
void load_entries(Step step, inout uint place, uint end)
{
    uint lowest_index = NONE;
    do {
        find_row(step, place);
        load_row(step);
        [[unroll]] for (uint i = 0; i < 8; ++i) {
            uint index = first_element + at[i] + indices[8 + i], none = NONE;
            bool is_dropped = is_before(last_key, last_index, keys[8 + i], index);
            bool is_absent = any(bvec2(at[i] >= element_count, is_dropped));
            Bits lowest = LOWEST;
            keys[8 + i] = is_absent ? lowest : keys[8 + i];
            indices[8 + i] = is_absent ? none : index;
            lowest_index = min(lowest_index, indices[8 + i]);
        }
        // After a dropped entry, all entries of its list are dropped.
        place = (place | (indices[15] == NONE ? step.chosen_mask : 7)) + 1;
    } while (all(bvec2(place < end, lowest_index == NONE)));
}

// Sorts places begin to end - 1: sets the list to their first entries.
void sort_places(Step step, uint begin, uint end)
{
    last_key = LOWEST;
    last_index = NONE - 1;
    if (chooses(step) && step.group_shift != 0) {
        uint last = step.chosen_place + (step.chosen_count - 1) * ENTRY_WORDS;
        set_entry(16, ELEMENT_OF_ENTRY(lists, last), lists[last]);
        last_key = keys[16];
        last_index = indices[16];
    }
    clear_list();
    uint place = begin;
    while (place < end) {
        bool is_empty = true, is_full = false;
        while (all(bvec2(place < end, !is_full))) {
            load_entries(step, place, end);
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
}

// Writes the first `size` entries of the list to words `place` and later.
void write_list(uint place, uint size)
{
    for (uint first = 0; first < size; first += 8) {
        // No dynamic index of an array: Mesa 22.3 takes 14 s to compile one.
        move_row(first);
        for (uint rank = first; rank < min(first + 8, size); ++rank) {
            uint index = indices[0], element = index == NONE ? 0 : index - first_element;
            [[unroll]] for (uint i = 0; i < 7; ++i)
                indices[i] = indices[i + 1];
            elements[16] = LOAD(source, address + element * stride);
            indices[16] = index;
            STORE_ENTRY(lists, place + rank * ENTRY_WORDS, 16)
        }
    }
}

void main()
{
    uint line_count = push.line_count, list_count = push.list_count, list_size = push.list_size;
    uint target_base = push.target_base, chosen_base = push.chosen_base, step_count = GROUPED ? push.step_count : 1;
    first_element = push.first_element;
    element_count = push.element_count;
    stride = CONTIGUOUS ? 1 : push.element_stride;
    bool by_line = CONTIGUOUS || push.chosen_count != 0;
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
        address = push.source_base + first_element * stride + outer * push.outer_stride + inner * push.inner_stride;
        uint target_place = target_base + (line * list_count + list) * list_size * ENTRY_WORDS;
        uint chosen_place = target_base + chosen_base + line * push.chosen_count * ENTRY_WORDS;
        Step step = Step(push.group_shift, push.chosen_count, chosen_place, push.chosen_size - 1);
        uint begin = list * push.item_size, end = begin + push.item_size;
        for (uint n = 0; n < step_count; ++n) {
            uint groups = ((element_count - 1) >> shift_of(step)) + 1;
            end = min(end, chooses(step) ? step.chosen_count << step.group_shift : groups);
            sort_places(step, begin, end);
            write_list(target_place, list_size);
            // The list chooses groups for the second step.
            step = Step(push.next_shift, list_size, target_place, 7);
            begin = 0;
            end = NONE;
        }
    }
    report(next, mine.end);
}
