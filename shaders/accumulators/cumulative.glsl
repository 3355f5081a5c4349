// The accumulator of cumulative sums of floats. The scans, its only kernels, need no or_neutral(), state_of() and
// index_of().
//
// As in sum.glsl the state keeps the rounding errors of its additions. The sum stays in range in any order: before it
// can overflow, both it and all later terms are scaled by SCALE. The bits that small terms lose are nothing next to the
// terms that made the sum so large.

#include "core/floats.glsl"

#define Operand Bits
Operand operand_of(Bits bits) { return bits; }

const float SCALE = 5.421010862427522e-20, REVERSED_SCALE = 18446744073709551616.0;  // 2^-64, 2^64
const float LARGE = 8.507059173023462e37;  // 2^126

struct State {
    Pair sum;
    float scale;  // of the sum: 1 or SCALE
    Specials specials;
};

// The least signed pattern is that of -0: `max_signed` stays at it if all elements are -0.
State identity() { return State(Pair(0.0, 0.0), 1.0, Specials(int(SIGN_BIT), 0u)); }

// Multiplies a sum by `factor`, unless it is scaled already.
void scale_sum(inout State state, float factor)
{
    precise float by = state.scale == 1.0 ? factor : 1.0, high = state.sum.high * by, low = state.sum.low * by;
    state.sum = Pair(high, low);
    state.scale *= by;
}

void accumulate(inout State state, Operand operand, uint index)
{
    float number = number_of(operand);
    if (BITS == 32)
        scale_sum(state, max(abs(state.sum.high), abs(number)) > LARGE ? SCALE : 1.0);
    precise float term = number * state.scale;
    state.sum = added(state.sum, term);
    state.specials = joined(state.specials, specials_of(pattern_of(operand)));
}
State combine(State a, State b)
{
    if (BITS == 32) {
        bool is_large = max(abs(a.sum.high), abs(b.sum.high)) > LARGE || a.scale != b.scale;
        float factor = is_large ? SCALE : 1.0;
        scale_sum(a, factor);
        scale_sum(b, factor);
    }
    return State(added(a.sum, b.sum), a.scale, joined(a.specials, b.specials));
}

Bits value_of(State state, uint count)
{
    precise float scaled = state.sum.high * REVERSED_SCALE;
    float total = state.scale == 1.0 ? state.sum.high : scaled, negative_zero = uintBitsToFloat(SIGN_BIT);
    int max_signed = state.specials.max_signed;
    uint max_unsigned = state.specials.max_unsigned;
    bool negative = max_unsigned == (SIGN_BIT | INFINITE), positive = max_signed == int(INFINITE);
    bool nan
        = any(bvec3(max_signed > int(INFINITE), max_unsigned > (SIGN_BIT | INFINITE), all(bvec2(negative, positive))));
    total = all(bvec2(max_signed == int(SIGN_BIT), max_unsigned == SIGN_BIT)) ? negative_zero : total;
    Bits bits = rounded(total), least = infinity(true), greatest = infinity(false), not_a_number = NAN_BITS;
    bits = negative ? least : bits;
    bits = positive ? greatest : bits;
    return nan ? not_a_number : bits;
}

const uint STATE_WORDS = 5;
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = floatBitsToUint((state).sum.high); \
        (words)[(at) + 1] = floatBitsToUint((state).sum.low); \
        (words)[(at) + 2] = floatBitsToUint((state).scale); \
        (words)[(at) + 3] = uint((state).specials.max_signed); \
        (words)[(at) + 4] = (state).specials.max_unsigned; \
    }
#define LOAD_STATE(state, words, at) \
    state = State(Pair(uintBitsToFloat((words)[at]), uintBitsToFloat((words)[(at) + 1])), \
                  uintBitsToFloat((words)[(at) + 2]), Specials(int((words)[(at) + 3]), (words)[(at) + 4]));
