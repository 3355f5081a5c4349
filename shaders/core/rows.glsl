// Shared by rows.comp and rows_cooperating.comp: the vectors of an output, or of one split of its elements.

#include "core/axes.glsl"

#ifndef HAS_VECTORS  // else the accumulator defines it
// Accumulates the elements of a vector from number `skipped` on; earlier ones are accumulated already. `index` is the
// index of element 0.
void accumulate_vector(inout State state, uvec4 vector, uint skipped, uint index)
{
    [[unroll]] for (uint k = 0; k < VECTOR_SIZE; ++k)
        accumulate_element(state, element_of(vector, k), index + k, k >= skipped);
}
#endif

// Elements begin to end - 1 of an output, and the vectors that have them:
//
//   elements     begin                        end
//   vectors      [vector 0][vector 1][vector 2]         if they fill vectors
//                [vector 0][vector 1]                   else: the last vector ends at `end`. It repeats elements of
//                             [vector 2]                the one before: skipped, or accumulated again
//             [vector 0]                                if they are less than a vector
//
// Loops over vectors count from `begin`, because `end` and some vectors may exceed 2^32.
struct Row {
    uint address;  // of element 0 of the output
    uint begin, end;
    uint first;    // where the first vector begins
    uint last;     // where the last vector begins, counted from `first`
};

Row row_of(Split split)
{
    uint first = min(split.begin, split.end - VECTOR_SIZE);
    return Row(split.address, split.begin, split.end, first, split.end - VECTOR_SIZE - first);
}
