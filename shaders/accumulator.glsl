// The accumulator that a module is compiled for: build.py defines its name. The contract is at the top of
// selection.glsl.

#if defined(ACCUMULATOR_SELECTION)
#include "accumulators/selection.glsl"
#elif defined(ACCUMULATOR_SUM)
#include "accumulators/sum.glsl"
#elif defined(ACCUMULATOR_EXACT)
#include "accumulators/exact.glsl"
#elif defined(ACCUMULATOR_SQUARES)
#include "accumulators/squares.glsl"
#elif defined(ACCUMULATOR_CUMULATIVE)
#include "accumulators/cumulative.glsl"
#elif defined(ACCUMULATOR_PRODUCT)
#include "accumulators/product.glsl"
#elif defined(ACCUMULATOR_LOGSUMEXP)
#include "accumulators/logsumexp.glsl"
#elif defined(ACCUMULATOR_INTEGER)
#include "accumulators/integer.glsl"
#else
#error "build.py defines no accumulator"
#endif

// A partial result, which a first pass writes for combine.comp: the words of a state and, for an average, a count: the
// number of elements of the whole output.

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
