// The accumulator of LOG_SUM_EXP: log(sum(e^x)), as shift + log(sum(e^(x - shift))).
//
// The shift is one of the elements. A later element replaces the shift only if it is larger by more than STEP: so the
// sum stays in range, and is scaled so rarely that scaling adds a negligible error.

#include "core/floats.glsl"
#include "core/functions.glsl"

const float STEP = 4.0;

struct Operand {
    float exponent;
    uint pattern;
};

// Infinities and NaN have the exponent -LARGEST, which adds nothing to a sum; their patterns are kept. Skipped elements
// become -infinity.
Operand finite_or_least(float number, uint pattern)
{
    bool finite = (pattern & ~SIGN_BIT) < INFINITE;
    return Operand(finite ? number : -LARGEST, pattern);
}
Operand operand_of(Bits bits) { return finite_or_least(number_of(bits), pattern_of(bits)); }
Operand or_neutral(Operand operand, bool is_element)
{
    return Operand(is_element ? operand.exponent : -LARGEST, is_element ? operand.pattern : SIGN_BIT | INFINITE);
}

struct State {
    float shift;
    Pair sum;
    Specials specials;
    uint least;  // pattern: tells whether all elements are -infinity
};

State identity() { return State(-LARGEST, Pair(0.0, 0.0), no_specials(), SIGN_BIT | INFINITE); }

// Changes the shift of a state, and scales its sum to it.
void move(inout State state, float shift)
{
    float factor = exponential(state.shift - shift);
    precise float high = state.sum.high * factor, low = state.sum.low * factor;
    state.sum = Pair(high, low);
    state.shift = shift;
}

State combine(State a, State b)
{
    precise bool rises = b.shift - a.shift > STEP;
    float shift = rises ? b.shift : a.shift;
    move(a, shift);
    move(b, shift);
    return State(shift, added(a.sum, b.sum), joined(a.specials, b.specials), min(a.least, b.least));
}

State state_of(Operand operand, uint index)
{
    return State(operand.exponent, Pair(1.0, 0.0), specials_of(operand.pattern), operand.pattern);
}

void include(inout State state, uint pattern)
{
    state.specials = joined(state.specials, specials_of(pattern));
    state.least = min(state.least, pattern);
}

// Raises the shift of a state if the next elements need it; `greatest` is the greatest of these.
void prepare(inout State state, Operand greatest)
{
    precise bool rises = greatest.exponent - state.shift > STEP;
    if (rises)
        move(state, greatest.exponent);
}
Operand greater(Operand a, Operand b)
{
    a.exponent = max(a.exponent, b.exponent);
    return a;
}

// With HAS_SHIFT kernels call prepare() before they accumulate the elements of several loads, and accumulate() does not
// call it: the compiler for AMD's GPUs would move loads past the branch in prepare(). Not with 16 bits: registers would
// spill.
#if defined(COOPERATING) && BITS == 32
#define HAS_SHIFT
// The greatest element of a vector, perhaps one that is skipped in this vector: another vector of the row has it, so
// the shift is valid.
Operand greatest_of(uvec4 vector)
{
    Operand greatest = operand_of(element_of(vector, 0));
    [[unroll]] for (uint k = 1; k < VECTOR_SIZE; ++k)
        greatest = greater(greatest, operand_of(element_of(vector, k)));
    return greatest;
}
#endif

void accumulate(inout State state, Operand operand, uint index)
{
    include(state, operand.pattern);
#ifndef HAS_SHIFT
    prepare(state, operand);
#endif
    precise float term = exponential(operand.exponent - state.shift);
    state.sum = added(state.sum, term);
}

// All elements of a vector have one shift; their sum is added to the state once.
#define HAS_VECTORS
void accumulate_vector(inout State state, uvec4 vector, uint skipped, uint index)
{
    Operand operands[VECTOR_SIZE];
    [[unroll]] for (uint k = 0; k < VECTOR_SIZE; ++k) {
        operands[k] = or_neutral(operand_of(element_of(vector, k)), k >= skipped);
        include(state, operands[k].pattern);
    }
#ifndef HAS_SHIFT
    Operand greatest = operands[0];
    [[unroll]] for (uint k = 1; k < VECTOR_SIZE; ++k)
        greatest = greater(greatest, operands[k]);
    prepare(state, greatest);
#endif
    precise float sum = 0.0;
    [[unroll]] for (uint k = 0; k < VECTOR_SIZE; ++k)
        sum += exponential(operands[k].exponent - state.shift);
    state.sum = added(state.sum, sum);
}

Bits value_of(State state, uint count)
{
    precise float value = state.shift + logarithm(state.sum);
    bool infinite = has_infinity(state.specials), empty = state.least >= (SIGN_BIT | INFINITE);
    Bits bits = infinite || empty ? infinity(!infinite) : rounded(value);
    return has_nan(state.specials) ? NAN_BITS : bits;
}
uint index_of(State state) { return 0; }

const uint STATE_WORDS = 6;
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = floatBitsToUint((state).shift); \
        (words)[(at) + 1] = floatBitsToUint((state).sum.high); \
        (words)[(at) + 2] = floatBitsToUint((state).sum.low); \
        (words)[(at) + 3] = uint((state).specials.max_signed); \
        (words)[(at) + 4] = (state).specials.max_unsigned; \
        (words)[(at) + 5] = (state).least; \
    }
#define LOAD_STATE(state, words, at) \
    state = State(uintBitsToFloat((words)[at]), \
                  Pair(uintBitsToFloat((words)[(at) + 1]), uintBitsToFloat((words)[(at) + 2])), \
                  Specials(int((words)[(at) + 3]), (words)[(at) + 4]), (words)[(at) + 5]);
