// The selection along a row of elements of up to 32 bits, in two steps:
//
//   row      [ group 0 ][ group 1 ] ... [ group n ]     of GROUP vectors each
//   first    computes the highest key of each group, and remembers the best group and its key
//   second   finds the element of the best group that has this key
//
// This is fast because a group's highest key is computed without the keys of all its elements: it belongs to the
// greatest or least of them as signed numbers (`most` and `least`), or as unsigned ones (`top` and `bottom`).
//
// An element of 8 or 16 bits is shifted to the high bits of a word. Its neighbours below cannot change which element is
// the greatest; highest_key() shifts them out.

const uint GROUP = 4;  // with 8, rows of 100 elements take 1.2 to 1.4 times as long on lavapipe

struct Extremes {
    int most;
    int least;
    uint top;
    uint bottom;
};
Extremes no_extremes() { return Extremes(int(0x80000000u), 0x7FFFFFFF, 0u, 0xFFFFFFFFu); }
void include(inout Extremes extremes, uvec4 vector)
{
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        [[unroll]] for (uint k = 0; k < 32; k += BITS) {
            uint element = vector[i] << k;
            extremes.most = max(extremes.most, int(element));
            extremes.least = min(extremes.least, int(element));
            extremes.top = max(extremes.top, element);
            extremes.bottom = min(extremes.bottom, element);
        }
    }
}
Bits highest_key(Extremes extremes)
{
    const uint low = 32 - BITS;
    uint most = uint(extremes.most) >> low, least = uint(extremes.least) >> low;
    uint top = extremes.top >> low, bottom = extremes.bottom >> low;
    if (NUMBER_KIND == UINT)
        return radix_key(MINIMUM ? bottom : top);
    if (NUMBER_KIND == INT)
        return radix_key(MINIMUM ? least : most);
    // Floats in the order of their bits as unsigned numbers. As signed numbers, the right half comes before the left:
    //
    //   bottom                  most   |                        top
    //   +0 .. greater .. +inf .. +NaN  |  -0 .. less .. -inf .. -NaN
    //
    // The greatest float is the last one of the left half or, if that is empty, the first one of the right half. The
    // least float is the last one of the right half or, if that is empty, the first one of the left half.
    bool nan = (extremes.most >= 0 && most > INFINITY) || top > (TOP_BIT | INFINITY);
    uint winner = MINIMUM ? (top >= TOP_BIT ? top : bottom) : (extremes.most >= 0 ? most : bottom);
    return nan ? NAN_KEY : radix_key(winner);
}

// The state of elements begin to end - 1, at least a vector, without the bits, which reload_bits() sets.
State state_of_extremes(uint address, uint begin, uint end)
{
    uint last = end - VECTOR_SIZE - begin;
    Bits best_key = Bits(0);
    uint best_group = 0;
    for (uint group = 0; group < end - begin; group += GROUP * VECTOR_SIZE) {
        Extremes extremes = no_extremes();
        [[unroll]] for (uint i = 0; i < GROUP; ++i)
            // A vector that would pass the end is replaced by the vector that ends there.
            include(extremes, load_vector(address + begin + min(group + i * VECTOR_SIZE, last)));
        Bits key = highest_key(extremes);
        if (LAST ? !is_above(best_key, key) : is_above(key, best_key)) {
            best_key = key;
            best_group = group;
        }
    }
    uint index = LAST ? begin : end - 1;
    // A loop, because llvmpipe (Mesa 25) compiles 112 basic blocks for each load of a vector.
    [[dont_unroll]] for (uint i = 0; i < GROUP; ++i) {
        uint at = begin + min(best_group + i * VECTOR_SIZE, last);
        uvec4 vector = load_vector(address + at);
        [[unroll]] for (uint k = 0; k < VECTOR_SIZE; ++k)
            if (radix_key(element_of(vector, k)) == best_key)
                index = LAST ? max(index, at + k) : min(index, at + k);
    }
    return State(best_key, Bits(0), index);
}
