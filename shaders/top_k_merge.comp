#version 430
// TOP_K, the second step: merges the lists of a line, four by four, and keeps the first entries. An item is item_size
// neighbouring entries of a merged list. A search counts the entries of each list that come before them:
//
//   lists    [ 9 5 2 ][ 7 6 1 ][ 8 8 3 ][ 5 4 0 ]     merged   [ 9 8 8 7 | 6 5 5 4 | ... ]
//                                                     item 1: 1, 1, 2 and 0 entries come before it
//
// In each iteration the next BLOCK entries of a list are merged with those that wait; the first BLOCK of the result are
// written. That list is the one whose last loaded entry comes first: all entries that are not loaded yet come after
// that entry. At most BLOCK loaded ones of each other list do, and no more than these wait (as in Inoue et al.:
// AA-sort, 2007, with two lists).

layout(push_constant) uniform Push {
    uint first_item;    // of this dispatch
    uint item_count;
    uint item_size;     // a multiple of BLOCK
    uint list_count;    // of a line, to be merged
    uint list_size;     // entries of the first list of a line
    uint second_size;   // entries of its other lists
    uint merged_count;  // of a line
    uint merged_size;   // entries of a merged list that are kept
    uint source_base;   // of the first list, in words
    uint target_base;   // of the first merged list, in words
} push;

#define REGISTERS 16
#include "core/entries.glsl"

layout(set = 0, binding = 2) buffer Target { uint target[]; };

// The push constants that every item needs, each read once (kernel.glsl).
uint list_count = push.list_count, list_size = push.list_size, second_size = push.second_size;
uint merged_count = push.merged_count, merged_size = push.merged_size;

const uint WAYS = 4, BLOCK = 4, WAITING = (WAYS - 1) * BLOCK;

// Copies entry `from` to entry `to`.
void copy_entry(uint to, uint from)
{
    keys[to] = keys[from];
    elements[to] = elements[from];
    indices[to] = indices[from];
}

// The lists of an item: the next entry of each, and its end. Arrays are global, because GLSL copies array arguments.
uint at[WAYS], ends[WAYS];

// Loads entry `number` of all lists as entry i; an absent entry unless `is_entry`.
void load_entry(uint i, uint number, bool is_entry)
{
    uint entry = push.source_base + (is_entry ? number : 0) * ENTRY_WORDS, index = source[entry], none = NONE;
    set_entry(i, ELEMENT_OF_ENTRY(source, entry), is_entry ? index : none);
}

// Sets the lists of merged list number `merged`.
void begin_lists(uint merged)
{
    uint line = merged / merged_count, first_list = (merged - line * merged_count) * WAYS;
    uint place = line * (list_size + (list_count - 1) * second_size) + first_list * list_size;
    [[unroll]] for (uint i = 0; i < WAYS; ++i) {
        uint size = i == 0 ? list_size : second_size;
        size = first_list + i < list_count ? size : 0;
        at[i] = place;
        place += size;
        ends[i] = place;
    }
}

// Skips the first `before` entries of the merged list. In each step one list moves on by `ahead` + 1 entries: the one
// whose entry in that place comes first. These entries are among the first `before` of all.
void skip(uint before)
{
    while (before > 0) {
        uint ahead = (before - 1) / WAYS, best = 0;
        if (IN_TURNS) {
            // All lists move on by one: after WAYS turns they are in place again.
            [[dont_unroll]] for (uint turn = 0; turn < WAYS; ++turn) {
                uint first = at[0], end = ends[0];
                [[unroll]] for (uint i = 1; i < WAYS; ++i) {
                    copy_entry(i - 1, i);
                    at[i - 1] = at[i];
                    ends[i - 1] = ends[i];
                }
                at[WAYS - 1] = first;
                ends[WAYS - 1] = end;
                load_entry(WAYS - 1, first + ahead, first + ahead < end);
            }
        } else {
            [[unroll]] for (uint i = 0; i < WAYS; ++i)
                load_entry(i, at[i] + ahead, at[i] + ahead < ends[i]);
        }
        [[unroll]] for (uint i = 1; i < WAYS; ++i) {
            bool wins = is_before(keys[i], indices[i], keys[0], indices[0]);
            keys[0] = wins ? keys[i] : keys[0];
            indices[0] = wins ? indices[i] : indices[0];
            best = wins ? i : best;
        }
        [[unroll]] for (uint i = 0; i < WAYS; ++i)
            at[i] += i == best ? ahead + 1 : 0;
        before -= ahead + 1;
    }
}

// The last loaded entry of each list, and the list whose last one comes first.
Bits last_keys[WAYS];
uint last_indices[WAYS], list;

// At first entries wait that come before all others, and seem to be the last loaded ones: the first iterations load
// from each list, and write none.
void begin_merge()
{
    list = 0;
    [[unroll]] for (uint i = 0; i < WAYS; ++i) {
        last_keys[i] = HIGHEST;
        last_indices[i] = 0;
    }
    [[unroll]] for (uint i = 0; i < WAITING; ++i) {
        keys[i] = HIGHEST;
        indices[i] = 0;
    }
}

// Loads the next block of `list`, in reverse, as merge_entries() has it, and chooses the list for the next one.
void load_entries()
{
    uint from = at[0], list_end = ends[0];
    [[unroll]] for (uint i = 1; i < WAYS; ++i) {
        from = i == list ? at[i] : from;
        list_end = i == list ? ends[i] : list_end;
    }
    if (IN_TURNS) {
        [[dont_unroll]] for (uint turn = 0; turn < 2; ++turn) {
            copy_entry(WAITING + 3, WAITING + 1);
            copy_entry(WAITING + 2, WAITING);
            load_entry(WAITING + 1, from, from < list_end);
            load_entry(WAITING, from + 1, from + 1 < list_end);
            from += 2;
        }
    } else {
        [[unroll]] for (uint i = 0; i < BLOCK; ++i)
            load_entry(WAITING + BLOCK - 1 - i, from + i, from + i < list_end);
    }
    [[unroll]] for (uint i = 0; i < WAYS; ++i) {
        at[i] += i == list ? BLOCK : 0;
        last_keys[i] = i == list ? keys[WAITING] : last_keys[i];
        last_indices[i] = i == list ? indices[WAITING] : last_indices[i];
    }
    Bits key = last_keys[0];
    uint index = last_indices[0];
    list = 0;
    [[unroll]] for (uint i = 1; i < WAYS; ++i) {
        bool wins = is_before(last_keys[i], last_indices[i], key, index);
        key = wins ? last_keys[i] : key;
        index = wins ? last_indices[i] : index;
        list = wins ? i : list;
    }
}

void main()
{
    uint item_size = push.item_size, items_of_list = (merged_size - 1) / item_size + 1;
    Items mine = items_of(push.item_count);
    uint next = mine.next;
    if (next >= mine.end)
        return;  // as in top_k_sort.comp
    for (; next < mine.end; next += ITEM_STRIDE) {
        uint item = push.first_item + next, merged = item / items_of_list;
        uint begin = (item - merged * items_of_list) * item_size, end = min(begin + item_size, merged_size);
        begin_lists(merged);
        skip(min(begin, ends[WAYS - 1] - at[0]));
        begin_merge();
        uint target_place = push.target_base + merged * merged_size * ENTRY_WORDS;
        for (uint rank = begin - WAITING; rank + WAITING < end + WAITING; rank += BLOCK) {
            load_entries();
            // The first 4 and the last 4 of those that wait are in order.
            order(4, 12), order(5, 13), order(6, 14), order(7, 15);
            merge_entries(0);
            merge_entries(8);
            if (IN_TURNS) {
                [[dont_unroll]] for (uint i = 0; i < BLOCK; ++i) {
                    if (rank + i - begin < end - begin)
                        STORE_ENTRY(target, target_place + (rank + i) * ENTRY_WORDS, 0)
                    copy_entry(0, 1), copy_entry(1, 2), copy_entry(2, 3);
                }
            } else {
                [[unroll]] for (uint i = 0; i < BLOCK; ++i)
                    if (rank + i - begin < end - begin)
                        STORE_ENTRY(target, target_place + (rank + i) * ENTRY_WORDS, i)
            }
            [[unroll]] for (uint i = 0; i < WAITING; ++i)
                copy_entry(i, BLOCK + i);
        }
    }
    report(next, mine.end);
}
