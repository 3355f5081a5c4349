#version 430
// TOP_K, the second step: merges the lists of a line, two by two, and keeps the first entries. An item is item_size
// neighbouring entries of a merged list. A binary search counts the entries of either list that come before them:
//
//   list a   [ 9 8 5 5 2 ]           merged   [ 9 8 7 6 | 5 5 5 3 | ... ]
//   list b   [ 7 6 5 3 1 ]                    item 1: 2 entries of a, and 2 of b, come before it
//
// (Green, Odeh, Birk: Merge path, 2014.) In each iteration HALF entries are merged with HALF others; the first half of
// the result is written. The next HALF entries are loaded from the list whose last loaded entry comes first: all
// entries that are not loaded yet come after that entry, and so after those written (Inoue et al.: AA-sort, 2007).

layout(push_constant) uniform Push {
    uint first_item;    // of this dispatch
    uint item_count;
    uint item_size;     // a multiple of HALF
    uint list_count;    // of a line, to be merged
    uint list_size;     // entries of the first of two lists
    uint second_size;   // entries of the second one
    uint merged_count;  // of a line
    uint merged_size;   // entries of a merged list that are kept
    uint source_base;   // of the first list, in words
    uint target_base;   // of the first merged list, in words
} push;

#define REGISTERS 8
#include "core/entries.glsl"

layout(set = 0, binding = 2) buffer Target { uint target[]; };

const uint HALF = 4;

// Loads entry `number` of all lists as entry i; an absent entry unless `is_entry`.
void load_entry(uint i, uint number, bool is_entry)
{
    uint at = push.source_base + (is_entry ? number : 0) * ENTRY_WORDS, index = source[at], none = NONE;
    set_entry(i, ELEMENT_OF_ENTRY(source, at), is_entry ? index : none);
}

// Merges both halves, which are sorted.
void merge_halves()
{
    order(0, 7), order(1, 6), order(2, 5), order(3, 4);
    order(0, 2), order(1, 3), order(4, 6), order(5, 7);
    order(0, 1), order(2, 3), order(4, 5), order(6, 7);
}

void main()
{
    uint list_count = push.list_count, list_size = push.list_size, second_size = push.second_size;
    uint merged_count = push.merged_count, merged_size = push.merged_size;
    uint item_size = push.item_size, items_of_list = (merged_size - 1) / item_size + 1;
    Items mine = items_of(push.item_count);
    uint next = mine.next;
    if (next >= mine.end)
        return;  // as in top_k_sort.comp
    for (; next < mine.end; next += ITEM_STRIDE) {
        // Divisions are slow, and mostly not needed.
        uint list = push.first_item + next, begin = 0;
        if (items_of_list != 1) {
            begin = list % items_of_list * item_size;
            list /= items_of_list;
        }
        uint count_a = list_size, count_b = second_size, a = list * (list_size + second_size);
        if (list_count % 2 == 1) {
            // The last list of a line has no partner.
            uint line = list / merged_count, pair = list - line * merged_count;
            a -= line * second_size;
            count_b = pair == merged_count - 1 ? 0 : second_size;
        }
        uint b = a + list_size, end = min(begin + item_size, merged_size);
        // The number of these in list a: between low and high.
        uint before = min(begin, count_a + count_b), low = before - min(before, count_b), high = min(before, count_a);
        while (low < high) {
            uint middle = (low + high) / 2, above = middle + 1;
            load_entry(0, a + middle, true);
            load_entry(1, b + before - above, true);
            bool b_first = is_before(keys[1], indices[1], keys[0], indices[0]);
            low = b_first ? low : above;
            high = b_first ? middle : high;
        }
        uint next_a = low, next_b = before - low, target_place = push.target_base + list * merged_size * ENTRY_WORDS;
        // The first iteration loads from list a, and writes nothing: the first half comes before all loaded entries.
        [[unroll]] for (uint i = 0; i < HALF; ++i) {
            keys[i] = HIGHEST;
            indices[i] = 0;
        }
        bool from_b = false;
        // The last entry loaded from the other list. At first that is list b, with an entry before all others.
        Bits last_key = HIGHEST;
        uint last_index = 0;
        for (uint rank = begin - HALF; rank + HALF < end + HALF; rank += HALF) {
            uint first = from_b ? b : a, at = from_b ? next_b : next_a, count = from_b ? count_b : count_a;
            [[unroll]] for (uint i = 0; i < HALF; ++i)
                load_entry(HALF + i, first + at + i, at + i < count);
            next_a += from_b ? 0 : HALF;
            next_b += from_b ? HALF : 0;
            Bits key = keys[2 * HALF - 1];
            uint index = indices[2 * HALF - 1];
            bool changes = is_before(last_key, last_index, key, index), from_a = !from_b;
            last_key = changes ? key : last_key;
            last_index = changes ? index : last_index;
            from_b = changes ? from_a : from_b;
            merge_halves();
            [[unroll]] for (uint i = 0; i < HALF; ++i) {
                if (rank + i - begin < end - begin)
                    STORE_ENTRY(target, target_place + (rank + i) * ENTRY_WORDS, i)
                keys[i] = keys[HALF + i];
                elements[i] = elements[HALF + i];
                indices[i] = indices[HALF + i];
            }
        }
    }
    report(next, mine.end);
}
