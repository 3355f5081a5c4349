#version 430
// rows.comp for GPUs: THREADS invocations share an item, that is, an output or one split of its elements. Neighbouring
// threads read neighbouring vectors. This kernel does not use extremes.glsl, which loads some elements again: they may
// have left the cache.

#define COOPERATING
#define THREAD_STRIDE 1
#include "core/rows.glsl"
#include "core/cooperating.glsl"

// Accumulates IN_FLIGHT vectors, every THREADS-th of a row, the first with the elements from row.begin + next on. A
// vector that would pass the end of the row is replaced by the row's last vector, of which the elements that belong to
// other vectors are skipped. If `whole`, a constant, is true, all vectors lie in the row, and no element is skipped.
void accumulate_vectors(inout State state, Row row, uint next, bool whole)
{
    uvec4 vectors[IN_FLIGHT];
    [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i) {
        uint offset = next + i * THREADS * VECTOR_SIZE;
        vectors[i] = load_vector(row.address + row.first + (whole ? offset : min(offset, row.last)));
    }
    // No [[unroll]] for loops over loaded vectors: GPUs' compilers unroll them without it; see
    // columns_cooperating.comp.
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
    // No element of whole vectors is skipped, which saves a third of the second loop's instructions for a sum. For
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

void main()
{
    uint count = output_count * split_count;
    Items mine = shared_items_of(count);
    uint next = mine.next;
    for (; next < mine.end; next += shared_item_stride()) {
        Split split = split_of(min(next, count - 1));
        State state = state_of_elements(row_of(split));
#ifdef HAS_INDEX
        state.bits = Bits(0);  // threads combine states without bits, which thread 0 loads at the end
#endif
        state = of_all_threads(state);
        if (thread() == 0 && next < count) {
            reload_bits(state, split.address + index_of(state));
            write(split.i, split.number, state);
        }
    }
    report(next, mine.end);
}
