// Shared by the kernels of TOP_K: entries of sorted lists, in registers and in memory.
//
// An entry is an element: its bits, and its index along the axis. The entry with the higher key comes first; if keys
// are equal, the one with the lower index. No two elements of a line are equal in this order, so every method of
// sorting and merging has the same result. Absent entries pad lists; they come last.

#define FIRST_MAXIMUM  // also if INCREASING: it reverses keys, those of NaN too
#include "core/kernel.glsl"
#include "accumulator.glsl"

layout(constant_id = 10) const bool INCREASING = false;  // the least elements first, not the greatest
// Load few words at a time, in a loop that stays a loop: Mesa 25 compiles 24 basic blocks for each word that is loaded.
layout(constant_id = 12) const bool IN_TURNS = false;

// Entries in registers. Globals, because GLSL copies array arguments.
Bits keys[REGISTERS];
Bits elements[REGISTERS];
uint indices[REGISTERS];

// Keys of up to 32 bits are compared as signed numbers: llvmpipe needs fewer instructions for these.
#if BITS == 64
const Bits LOWEST = Bits(0), HIGHEST = Bits(0xFFFFFFFFu);
bool is_higher(Bits a, Bits b) { return is_above(a, b); }
#else
const Bits LOWEST = 0x80000000u, HIGHEST = ~LOWEST;
bool is_higher(Bits a, Bits b) { return int(a) > int(b); }
#endif

// The key of an element. No float has the lowest key.
Bits key_of(Bits element)
{
    Bits key = radix_key(element);
    if (BITS == 32)
        key ^= LOWEST;
    Bits reversed = key ^ Bits(0xFFFFFFFFu);
    return INCREASING ? reversed : key;
}

// With index NONE entry i is absent: it has the lowest key.
void set_entry(uint i, Bits element, uint index)
{
    Bits key = key_of(element), lowest = LOWEST;
    keys[i] = index == NONE ? lowest : key;
    elements[i] = element;
    indices[i] = index;
}

// No select of booleans: LLVM has no good instructions for it.
bool is_before(Bits key_a, uint index_a, Bits key_b, uint index_b)
{
    return any(bvec2(is_higher(key_a, key_b), all(bvec2(key_a == key_b, index_a < index_b))));
}

// Swaps entries a and b if b comes before a.
void order(uint a, uint b)
{
    bool swaps = is_before(keys[b], indices[b], keys[a], indices[a]);
    Bits key = keys[a], element = elements[a];
    uint index = indices[a];
    keys[a] = swaps ? keys[b] : key;
    keys[b] = swaps ? key : keys[b];
    elements[a] = swaps ? elements[b] : element;
    elements[b] = swaps ? element : elements[b];
    indices[a] = swaps ? indices[b] : index;
    indices[b] = swaps ? index : indices[b];
}

// Batcher's bitonic merge: sorts 8 entries, where some are in order and those after them in reverse.
void merge_entries(uint i)
{
    order(i, i + 4), order(i + 1, i + 5), order(i + 2, i + 6), order(i + 3, i + 7);
    order(i, i + 2), order(i + 1, i + 3), order(i + 4, i + 6), order(i + 5, i + 7);
    order(i, i + 1), order(i + 2, i + 3), order(i + 4, i + 5), order(i + 6, i + 7);
}

// An entry in memory is a state of the selection: its index, then its bits.
const uint ENTRY_WORDS = STATE_WORDS;
#define ELEMENT_OF_ENTRY(words, at) LOAD_BITS(words, (at) + 1)
#define STORE_ENTRY(words, at, i) STORE_STATE(words, at, State(Bits(0), elements[i], indices[i]))
