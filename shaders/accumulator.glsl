// The accumulator that a module is compiled for: build.py inserts its name below. Kernels use these parts of it:
//
//   State, identity()          the partial result of a set of elements; that of no elements, neutral in combine()
//   Operand, operand_of(bits)  an element, prepared once for all outputs that it belongs to
//   or_neutral(operand, is_element)        the operand; for padding one that changes no state
//   accumulate(state, operand, index)      adds an element to a state that began with empty_from(); indices ascend
//   state_of(operand, index)   the state of one element
//   combine(a, b)              the state of the elements of both, in any order
//   value_of(state, count)     the value of the result; only an average uses `count`, as its divisor
//   index_of(state)            its index; or a sum of integers of 8 or 16 bits, which has 32 bits
//   STATE_WORDS, STORE_STATE, LOAD_STATE   a state as words, which one dispatch writes and a later one reads
//
// The selection defines HAS_INDEX: its state has the `bits` and the `index` of an element. It is also REPEATABLE:
// accumulating an element again changes nothing. It has two functions more:
//
//   empty_from(index)          the empty state for accumulate(), whose later elements have at least this index
//   appended(a, b)             combine(a, b), if the elements of b come after those of a
//
// An element may have the lowest key, as identity() has. In this tie combine() compares indices, and that of identity()
// never wins. accumulate() without LAST keeps the state, so its index must be an element's, as in empty_from(). If
// accumulate() compared indices, Mesa 22.3 would take 5 to 16 % more time, and 25.0 half as much again for windows of
// 3 x 3.
//
// Sums and LOG_SUM_EXP have more functions for some kernels: HAS_PAIRWISE_ADD (sum.glsl explains it), HAS_SHIFT
// (logsumexp.glsl), HAS_VECTORS (rows.glsl).

#include "accumulators/ACCUMULATOR.glsl"

#ifndef HAS_INDEX
const bool REPEATABLE = false;
#define empty_from(index) identity()
#endif
#ifndef NEEDS_COUNT
#define NEEDS_COUNT false
#endif

// A partial result, which a first pass writes for combine.comp: a state and, if value_of() needs it (NEEDS_COUNT), the
// number of elements of the whole output.
const uint PARTIAL_WORDS = STATE_WORDS + uint(NEEDS_COUNT);
#ifndef STORE_PARTIAL
#define STORE_PARTIAL(words, at, state, count) \
    { \
        STORE_STATE(words, at, state) \
        if (NEEDS_COUNT) \
            (words)[(at) + STATE_WORDS] = count; \
    }
#endif
