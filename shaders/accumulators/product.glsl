// The accumulator of products of floats: MULTIPLY.
//
// A product is a mantissa times a power of two, so that it stays in range in any order of its factors.

#include "core/floats.glsl"

// An element as the bits of a 32-bit float. A 16-bit infinity becomes 2^16, and a 16-bit NaN a greater number.
#define Operand uint
#if BITS == 16
Operand operand_of(Bits bits) { return floatBitsToUint(number_of(bits & 0x7FFFu)) | pattern_of(bits) & SIGN_BIT; }
#else
Operand operand_of(Bits bits) { return bits; }
#endif
const uint INFINITE_FACTOR = BITS == 16 ? 0x47800000u : 0x7F800000u;
Operand or_neutral(Operand operand, bool is_element) { return is_element ? operand : 0x3F800000u; }

struct State {
    float mantissa;   // from 1 to 2
    int exponent;
    uint negative;    // the sign of the product, in the highest bit
    uint greatest;    // greatest magnitude of an element: tells infinities and NaN
    uint least;       // least magnitude of an element: tells 0
};

// After 14 million of the least or greatest elements an exponent would wrap around. An invocation alone has fewer.
int saturated(int exponent) { return clamp(exponent, -(1 << 29), 1 << 29); }

State identity() { return State(1.0, 0, 0u, 0u, ~SIGN_BIT); }

void normalize(inout State state)
{
    bool doubles = state.mantissa >= 2.0;
    precise float halved = 0.5 * state.mantissa;
    state.mantissa = doubles ? halved : state.mantissa;
    state.exponent += doubles ? 1 : 0;
}

void accumulate(inout State state, Operand operand, uint index)
{
    uint magnitude = operand & ~SIGN_BIT, mantissa = magnitude & 0x7FFFFFu;
    int power = int(magnitude >> 23) - 127;
    if (BITS == 32) {
        // A denormal is shifted until its highest bit is the implicit one of a mantissa. 16-bit denormals are normal.
        uint shift = 23u - uint(max(findMSB(mantissa), 0)), shifted = mantissa << shift & 0x7FFFFFu;
        bool is_denormal = power == -127;
        int least = -126 - int(shift);
        mantissa = is_denormal ? shifted : mantissa;
        power = is_denormal ? least : power;
    }
    precise float product = state.mantissa * uintBitsToFloat(0x3F800000u | mantissa);
    state.mantissa = product;
    state.exponent += power;
    state.negative ^= operand & SIGN_BIT;
    state.greatest = max(state.greatest, magnitude);
    state.least = min(state.least, magnitude);
    normalize(state);
}
State state_of(Operand operand, uint index)
{
    State state = identity();
    accumulate(state, operand, index);
    return state;
}
State combine(State a, State b)
{
    precise float product = a.mantissa * b.mantissa;
    State state = State(product, saturated(a.exponent + b.exponent), a.negative ^ b.negative,
                        max(a.greatest, b.greatest), min(a.least, b.least));
    normalize(state);
    return state;
}

Bits value_of(State state, uint count)
{
    // Mantissa and exponent as the bits of a float. A denormal is shifted right, and rounded by adding half a last bit.
    uint mantissa = floatBitsToUint(state.mantissa) & 0x7FFFFFu;
    uint shift = uint(clamp(-125 - state.exponent, 1, 31) - 1);
    uint normal = uint(clamp(state.exponent, -126, 127) + 127) << 23 | mantissa;
    uint denormal = ((mantissa | 0x800000u) + (1u << max(shift, 1u) - 1u)) >> shift;
    bool overflows = state.exponent > 127, is_normal = state.exponent >= -126;
    uint pattern = is_normal ? normal : denormal;
    bool infinite = state.greatest >= INFINITE_FACTOR, zero = state.least == 0;
    bool nan = any(bvec2(state.greatest > INFINITE_FACTOR, all(bvec2(infinite, zero))));
    pattern = overflows ? 0x7F800000u : pattern;
    pattern = zero ? 0u : pattern;
    pattern = infinite ? 0x7F800000u : pattern;
    Bits bits = rounded(uintBitsToFloat(pattern | state.negative));
    return nan ? NAN_BITS : bits;
}
uint index_of(State state) { return 0; }

const uint STATE_WORDS = 5;
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = floatBitsToUint((state).mantissa); \
        (words)[(at) + 1] = uint(saturated((state).exponent)); \
        (words)[(at) + 2] = (state).negative; \
        (words)[(at) + 3] = (state).greatest; \
        (words)[(at) + 4] = (state).least; \
    }
#define LOAD_STATE(state, words, at) \
    state = State(uintBitsToFloat((words)[at]), int((words)[(at) + 1]), (words)[(at) + 2], (words)[(at) + 3], \
                  (words)[(at) + 4]);
