// The accumulator of ARGMAX, ARGMIN, MAX_POOLING, and MAX and MIN of REDUCE: the element with the highest radix key
// wins; if keys are equal, the first element, or with LAST the last.

#ifdef FIRST_MAXIMUM
const bool MINIMUM = false, LAST = false;
#else
layout(constant_id = 8) const bool MINIMUM = false;  // choose the minimum, not the maximum
layout(constant_id = 9) const bool LAST = false;  // choose the last of equal elements, not the first
#endif

// Radix keys are unsigned numbers in the order of their elements: drivers may flush denormals, and guarantee nothing
// about NaN, so shaders do not compare floats. -0 and +0 have equal keys, every NaN has the highest. With MINIMUM the
// keys of all other elements are in reverse order.
//
// `?:` chooses between variables, so that glslang emits a select and no branch: SwiftShader keeps every branch, even on
// a constant, and takes minutes to compile hundreds.
//
// integer_key() maps an integer to its key, and the key back to the integer; radix_key() maps any element to its key.
Bits integer_key(Bits number)
{
    Bits changed = number ^ TOP_BIT, key = NUMBER_KIND == INT ? changed : number, reversed = key ^ EVERY_BIT;
    return MINIMUM ? reversed : key;
}
#if BITS == 64
#include "accumulators/keys_64.glsl"
#else
const Bits INFINITY = BITS == 16 ? 0x7C00u : 0x7F800000u, NAN_KEY = 2 * INFINITY + 1;

// The key of a float is INFINITY plus or minus its magnitude. A NaN would have more than 2 * INFINITY, or less than 0,
// which wraps around to more: min() changes it to NAN_KEY.
Bits radix_key(Bits bits)
{
    bool negative = bits >= TOP_BIT, positive = !negative;
    bool falls = MINIMUM ? positive : negative;
    uint rising = INFINITY - (MINIMUM ? TOP_BIT : 0) + bits, falling = INFINITY + (MINIMUM ? 0 : TOP_BIT) - bits;
    uint number = min(falls ? falling : rising, NAN_KEY);
    Bits integer = integer_key(bits);
    return NUMBER_KIND == FLOAT ? number : integer;
}

bool is_above(Bits a, Bits b) { return a > b; }
#endif

struct Operand {
    Bits key;
    Bits bits;
};

Operand operand_of(Bits bits) { return Operand(radix_key(bits), bits); }

// The neutral operand has the lowest key. Without LAST, it never wins over a state that began with empty_from().
Operand or_neutral(Operand operand, bool is_element)
{
    Bits lowest = Bits(0);
    return Operand(is_element ? operand.key : lowest, operand.bits);
}

struct State {
    Bits key;
    Bits bits;
    uint index;
};

// The state of no elements (accumulator.glsl explains `index`): the lowest key, and the bits of the element that has
// this key, because LOAD_STATE recomputes keys from bits.
State empty_from(uint index)
{
    Bits least = NUMBER_KIND == INT ? TOP_BIT : Bits(0), greatest = least ^ EVERY_BIT;
    Bits infinity = INFINITY, minus_infinity = INFINITY | TOP_BIT;
    least = NUMBER_KIND == FLOAT ? minus_infinity : least;
    greatest = NUMBER_KIND == FLOAT ? infinity : greatest;
    return State(Bits(0), MINIMUM ? greatest : least, index);
}

// Its index wins no tie: with LAST it is 0, the first index, otherwise it comes after every index.
State identity() { return empty_from(LAST ? 0 : NONE); }

State state_of(Operand operand, uint index) { return State(operand.key, operand.bits, index); }

void accumulate(inout State state, Operand operand, uint index)
{
    bool above = is_above(operand.key, state.key), later = index >= state.index;
    bool not_below = operand.key == state.key ? later : above;
    bool wins = LAST ? not_below : above;
    state.key = wins ? operand.key : state.key;
    state.bits = wins ? operand.bits : state.bits;
    state.index = wins ? index : state.index;
}

State combine(State a, State b)
{
    bool above = is_above(b.key, a.key), earlier = b.index<a.index, later = b.index> a.index;
    bool better_place = LAST ? later : earlier;
    bool wins = b.key == a.key ? better_place : above;
    return State(wins ? b.key : a.key, wins ? b.bits : a.bits, wins ? b.index : a.index);
}

// accumulator.glsl explains these.
#define HAS_INDEX
const bool REPEATABLE = true;
State appended(State a, State b)
{
    accumulate(a, Operand(b.key, b.bits), b.index);
    return a;
}

// Integers are recomputed from keys, so that State.bits needs no registers.
Bits value_of(State state, uint count)
{
    Bits bits = state.bits, integer = integer_key(state.key);
    return NUMBER_KIND == FLOAT ? bits : integer;
}
uint index_of(State state) { return state.index; }

// A stored state: the index, then the bits of the element, low word first.
const uint STATE_WORDS = 1 + WORDS_PER_ELEMENT;
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = (state).index; \
        STORE_BITS(words, (at) + 1, (state).bits) \
    }
#define LOAD_STATE(state, words, at) state = state_of(operand_of(LOAD_BITS(words, (at) + 1)), (words)[at]);
