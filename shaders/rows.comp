#version 430
// Reductions where the elements of an output are contiguous in memory, and fill at least a vector of 16 bytes: they are
// loaded in vectors. An invocation reduces an output, or one split of its elements. This kernel is for CPU drivers;
// GPUs run rows_cooperating.comp.

#include "core/rows.glsl"

layout(constant_id = 12) const bool SHORT = false;  // rows are too short for state_of_extremes() to be faster
// Whether accumulate_aligned_vectors() is faster than accumulate_vectors().
layout(constant_id = 13) const bool ALIGNED_INSIDE = false;

// Accumulates a row in vectors. All but the first and the last begin at multiples of 16 bytes. Vectors may overlap, and
// their common elements are accumulated twice. A sum of floats cannot use this, because its order of additions must not
// depend on where a row begins.
//
//   [ first ]                 [ last ]
//       [ vector ] ... [ vector ]
void accumulate_aligned_vectors(inout State state, Row row)
{
    uint begin = row.address + row.first;
    accumulate_vector(state, load_vector(begin), 0, row.first);
    for (uint next = VECTOR_SIZE - begin % VECTOR_SIZE; next < row.last; next += VECTOR_SIZE)
        accumulate_vector(state, aligned_vector(begin + next), 0, row.first + next);
    accumulate_vector(state, load_vector(begin + row.last), 0, row.first + row.last);
}

// Accumulates a row in vectors. The last vector may overlap the vector before. With REPEATABLE (accumulator.glsl) their
// common elements are accumulated twice. Otherwise the last vector is loaded after the loop, without these elements.
// A loop over several loads, as in rows_cooperating.comp, would take a quarter more time on SwiftShader, which does not
// unroll it.
void accumulate_vectors(inout State state, Row row)
{
    uint size = row.end - row.begin, loop_end = REPEATABLE ? size : size / VECTOR_SIZE * VECTOR_SIZE, next = 0;
    for (; next < loop_end; next += VECTOR_SIZE) {
        uint at = row.first + (REPEATABLE ? min(next, row.last) : next);
        accumulate_vector(state, load_vector(row.address + at), 0, at);
    }
    uint last = row.first + row.last;
    if (!REPEATABLE && next < size)
        accumulate_vector(state, load_vector(row.address + last), row.begin + next - last, last);
}

State state_of_elements(Row row)
{
    State state = empty_from(row.first);
    if (REPEATABLE && ALIGNED_INSIDE)
        accumulate_aligned_vectors(state, row);
    else
        accumulate_vectors(state, row);
    return state;
}

#if defined(HAS_INDEX) && BITS <= 32  // at 64 bits comparing every element is as fast, and faster on SwiftShader
#include "accumulators/extremes.glsl"
State state_of_row(Row row)
{
    return SHORT ? state_of_elements(row) : state_of_extremes(row.address, row.first, row.end);
}
#else
#define state_of_row state_of_elements
#endif

void main()
{
    Items mine = items_of(output_count * split_count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        Split split = split_of(item);
        State state = state_of_row(row_of(split));
        reload_bits(state, split.address + index_of(state));
        write(split.i, split.number, state);
    }
    report(item, mine.end);
}
