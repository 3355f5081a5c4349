#version 430
// Reductions where the elements of an output are contiguous in memory, and fill at least a vector of 16 bytes: they are
// loaded in vectors. An item is an output, or one split of its elements. THREADS invocations share it; neighbouring
// threads read neighbouring vectors.

#define THREAD_STRIDE 1
#include "core/axes.glsl"
#include "core/cooperating.glsl"

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
//                [vector 0][vector 1]                   else: the last vector ends with them, and has elements of the
//                             [vector 2]                vector before it, too: skipped, or accumulated again
//             [vector 0]                                if they are less than a vector
//
// Loops over vectors count from `begin`, because `end` and some vectors may exceed 2^32.
struct Row {
    uint address;  // of element 0 of the output
    uint begin, end;
    uint first;    // where the first vector begins
    uint last;     // where the last vector begins, counted from `first`
};

Row row_of(uint address, uint begin, uint end)
{
    uint first = min(begin, end - VECTOR_SIZE);
    return Row(address, begin, end, first, end - VECTOR_SIZE - first);
}

#ifdef COOPERATING

// Accumulates IN_FLIGHT vectors, every THREADS-th of a row. Vector 0 is for elements from begin + next on. A vector may
// begin before its elements, at element `at`. Past the end of the row, the last vector is loaded, and all its elements
// are skipped. If `whole`, a constant, is true, no vector lies past the last one.
void accumulate_vectors(inout State state, Row row, uint next, bool whole)
{
    uvec4 vectors[IN_FLIGHT];
    [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i) {
        uint offset = next + i * THREADS * VECTOR_SIZE;
        vectors[i] = load_vector(row.address + row.first + (whole ? offset : min(offset, row.last)));
    }
    // No [[unroll]] for loops over loaded vectors: GPUs' compilers unroll them without it; see columns.comp.
#ifdef HAS_SHIFT
    Operand greatest = greatest_of(vectors[0]);
    for (uint i = 1; i < IN_FLIGHT; ++i)
        greatest = greater(greatest, greatest_of(vectors[i]));
    prepare(state, greatest);
#endif
    for (uint i = 0; i < IN_FLIGHT; ++i) {
        uint offset = next + i * THREADS * VECTOR_SIZE, at = row.first + (whole ? offset : min(offset, row.last));
        accumulate_vector(state, vectors[i], whole ? 0 : row.begin + offset - at, at);
    }
}

// The state of this thread's elements of a row.
State state_of_elements(Row row)
{
    const uint turn = IN_FLIGHT * THREADS * VECTOR_SIZE;
    uint size = row.end - row.begin, next = thread() * VECTOR_SIZE;
    State state = empty_from(row.first + min(next, row.last));
#ifndef HAS_SHIFT
    // Whole vectors need no instructions that choose elements, a third of those of the second loop for a sum. For
    // LOG_SUM_EXP, which has many other instructions, the registers of this loop cost more than it saves.
    const uint others = turn - THREADS * VECTOR_SIZE;
    uint end = REPEATABLE || row.last < others ? 0 : row.last - others + 1;
    for (; next < end; next += turn)
        accumulate_vectors(state, row, next, true);
#endif
    for (; next < size; next += turn)
        accumulate_vectors(state, row, next, false);
    return state;
}

#else

// clang-format off: a table
layout(constant_id = 12) const bool SHORT = false;           // rows are so short that extremes.glsl is slower
layout(constant_id = 13) const bool ALIGNED_INSIDE = false;  // accumulate_aligned_vectors() is faster
// clang-format on

// Accumulates vectors that begin at multiples of 16 bytes, except at the ends, and some elements twice. Not for a sum
// of floats: its order must not depend on where a row begins.
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

// The last vector may have elements of the vector before. If these must be skipped, it is loaded after the loop.
// SwiftShader does not unroll a loop of one iteration, so the loop of COOPERATING would take a quarter more time.
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

#endif

// A GPU accumulates every element, because those that extremes.glsl loads again may not be in a cache any more.
#if defined(HAS_INDEX) && !defined(COOPERATING)
#include "accumulators/extremes.glsl"
State state_of_row(Row row)
{
    return SHORT ? state_of_elements(row) : state_of_extremes(row.address, row.first, row.end);
}
#else
#define state_of_row state_of_elements
#endif

// Split `number` of output `i` of the dispatch: elements begin to end - 1. Element 0 of the output is at `address`.
struct Split {
    uint number, i, address, begin, end;
};

// Items are numbered split by split: item = number * output_count + i.
Split split_of(uint item)
{
    Split split;
    split.number = TO_PARTIALS ? item / output_count : 0;
    split.i = item - split.number * output_count;
    split_range(split.number, split.begin, split.end);
    split.address = address_of_kept(first_output + split.i, kept_rank) + source_base;
    return split;
}

// Writes item `next`.
void reduce(uint next, uint count)
{
    Split split = split_of(min(next, count - 1));
    State state = state_of_row(row_of(split.address, split.begin, split.end));
    RELOAD_BITS(state, Bits(0))  // threads need no bits: they are loaded at the end
    state = of_all_threads(state);
    if (thread() == 0 && next < count) {
        RELOAD_BITS(state, RELOADED ? LOAD(source, split.address + index_of(state)) : Bits(0))
        write(split.i, split.number, state);
    }
}

void main()
{
    uint count = output_count * split_count;
    Items mine = shared_items_of(count);
    uint next = mine.next;
    for (; next < mine.end; next += shared_item_stride())
        reduce(next, count);
    report(next, mine.end);
}
