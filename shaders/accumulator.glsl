// The accumulator that a module is compiled for: build.py puts its name in. Kernels use nothing else of it:
//
//   State                      the partial result of a set of elements
//   Operand, operand_of(bits)  an element, prepared once for all outputs that it belongs to
//   or_neutral(operand, is_element)        the operand; for padding one that changes no state
//   empty_from(index)          the empty state for accumulate(), whose later elements have at least this index
//   accumulate(state, operand, index)      adds an element to a state that began with empty_from(); indices ascend
//   REPEATABLE                 whether accumulating an element again changes nothing
//   identity()                 the neutral state of combine()
//   state_of(operand, index)   the state of one element
//   combine(a, b)              the state of the elements of both, in any order
//   value_of(state, count), index_of(state)    the results; only an average uses `count`, as its divisor
//   RELOAD_BITS(state, bits)   sets the bits of element index_of(state), for kernels that load them at the end
//   STATE_WORDS, STORE_STATE, LOAD_STATE   a state as words, which one dispatch writes and a later one reads
//
// Only the selection has two empty states. In a tie at the lowest key combine() compares indices, and that of identity()
// never wins; accumulate() without LAST keeps the state, whose index must be an element's. If accumulate() compared
// indices, Mesa 22.3 would take 5 to 16 % more time, and 25.0 half as much again for windows of 3 x 3.
//
// Some accumulators have, for some kernels,
//
//   HAS_COUNT                  whether a result needs the number of elements
//   HAS_INDEX, appended(a, b)  the selection: it has indices; combine(a, b), if the elements of b come after those of a
//   HAS_PAIRWISE_ADD, joined(a, b), combine_one(a, b)      sums: one operand for two; combine(a, b) of a state_of() b
//   divided(operand, by)       sums: the operand divided by a count, for gradients
//   HAS_VECTORS, accumulate_vector(state, vector, skipped, index)   sums and LOG_SUM_EXP: replaces that of rows.glsl
//   HAS_SHIFT, greater(a, b), greatest_of(vector), prepare(state, greatest)     LOG_SUM_EXP: prepare() is called before
//                              the elements of several loads are accumulated

#include "accumulators/ACCUMULATOR.glsl"

// A partial result, which a first pass writes for combine.comp: a state and, for an average, the number of elements of
// the whole output.
#ifndef HAS_COUNT
#define HAS_COUNT false
#endif
const uint PARTIAL_WORDS = STATE_WORDS + uint(HAS_COUNT);

#ifndef STORE_PARTIAL
#define STORE_PARTIAL(words, at, state, count) \
    { \
        STORE_STATE(words, at, state) \
        if (HAS_COUNT) \
            (words)[(at) + STATE_WORDS] = count; \
    }
#endif
