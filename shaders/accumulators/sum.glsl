// The accumulator of sums of floats: SUM, AVERAGE, L1, L2, LOG_SUM, SUM_SQUARE, average and Lp pooling.
//
// The state keeps the rounding errors of its additions, so that the error does not grow with the number of elements.

#include "core/floats.glsl"
#include "core/functions.glsl"

layout(constant_id = 8) const uint POWER = 0;  // add this power of absolute values; 0: elements as they are
layout(constant_id = 9) const uint RESULT = 0;  // what is computed from the sum: a constant below

const uint SUM = 0, AVERAGE = 1, ROOT = 2, LOGARITHM = 3;

// A term of the sum: one element, or several that joined() added.
struct Operand {
    float term;
    Specials specials;
};

Operand operand_of(Bits bits)
{
    precise float number = number_of(bits), term = POWER == 0 ? number : abs(number);
    term = POWER == 2 ? number * number : term;
    if (POWER > 2) {
        float factor = term;
        term = 1.0;
        for (uint power = POWER; power > 0; power >>= 1) {
            term = (power & 1u) == 1u ? term * factor : term;
            factor *= factor;
        }
    }
    uint pattern = pattern_of(bits);
    return Operand(term, specials_of(POWER == 0 ? pattern : pattern & ~SIGN_BIT));
}
Operand or_neutral(Operand operand, bool is_element)
{
    return Operand(is_element ? operand.term : 0.0, specials_of(is_element ? operand.specials.max_unsigned : 0u));
}
// The sum of two operands. Its rounding error is lost, so only a few such additions may follow each other.
#define HAS_PAIRWISE_ADD
Operand joined(Operand a, Operand b)
{
    precise float sum = a.term + b.term;
    return Operand(sum, joined(a.specials, b.specials));
}

struct State {
    Pair sum;
    Specials specials;
};

State identity() { return State(Pair(0.0, 0.0), no_specials()); }

void accumulate(inout State state, Operand operand, uint index)
{
    state.sum = added(state.sum, operand.term);
    state.specials = joined(state.specials, operand.specials);
}
State state_of(Operand operand, uint index)
{
    // -0 becomes +0, as in accumulate(). Adding 0 would do this, too, but drivers remove such an addition.
    uint bits = floatBitsToUint(operand.term), zero = 0;
    return State(Pair(uintBitsToFloat(bits == SIGN_BIT ? zero : bits), 0.0), operand.specials);
}
State combine(State a, State b) { return State(added(a.sum, b.sum), joined(a.specials, b.specials)); }
// combine(a, b) for a `b` that state_of() returned: its low part is 0.
State combine_one(State a, State b) { return State(added(a.sum, b.sum.high), joined(a.specials, b.specials)); }

Bits value_of(State state, uint count)
{
    float total = state.sum.high, value = total;
    if (RESULT == AVERAGE)
        value = quotient(state.sum, pair_of(count));
    if (RESULT == ROOT && POWER != 1)
        value = POWER == 2 ? square_root(state.sum) : root(state.sum, POWER);
    if (RESULT == LOGARITHM)
        value = logarithm(state.sum);
    bool negative = has_negative_infinity(state.specials), infinite = has_infinity(state.specials) || negative;
    bool nan = has_nan(state.specials) || has_infinity(state.specials) && negative;
    if (RESULT == LOGARITHM) {
        nan = nan || negative || !infinite && total < 0.0;
        infinite = infinite || total == 0.0;
        negative = total == 0.0;
    }
    // A sum that overflowed is an infinity.
    Bits bits = rounded(abs(total) <= LARGEST ? value : total);
    bits = infinite ? infinity(negative) : bits;
    return nan ? NAN_BITS : bits;
}
uint index_of(State state) { return 0; }

const uint STATE_WORDS = 4;
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = floatBitsToUint((state).sum.high); \
        (words)[(at) + 1] = floatBitsToUint((state).sum.low); \
        (words)[(at) + 2] = uint((state).specials.max_signed); \
        (words)[(at) + 3] = (state).specials.max_unsigned; \
    }
#define LOAD_STATE(state, words, at) \
    state = State(Pair(uintBitsToFloat((words)[at]), uintBitsToFloat((words)[(at) + 1])), \
                  Specials(int((words)[(at) + 2]), (words)[(at) + 3]));
#define NEEDS_COUNT (RESULT == AVERAGE)

// Accumulates elements `skipped` and later of a vector: adds them two by two, then their sum to the state.
#define HAS_VECTORS
void accumulate_vector(inout State state, uvec4 vector, uint skipped, uint index)
{
    precise vec4 sums = vec4(0.0);
    [[unroll]] for (uint k = 0; k < VECTOR_SIZE; ++k) {
        Operand operand = or_neutral(operand_of(element_of(vector, k)), k >= skipped);
        sums[k * 4 / VECTOR_SIZE] += operand.term;
        state.specials = joined(state.specials, operand.specials);
    }
    precise float sum = (sums.x + sums.y) + (sums.z + sums.w);
    state.sum = added(state.sum, sum);
}
