// The accumulator of ARGMAX, ARGMIN and MAX_POOLING: one of the elements wins, the one with the highest radix key; of
// elements with equal keys the first, or the last.
//
// What every accumulator has, and all that kernels use of one:
//
//   State                      what is known of a set of elements
//   identity()                 of no elements: combining with it changes nothing
//   empty_from(index)          of no elements, where those to be accumulated begin with this index or one above it
//   Operand, operand_of(bits)  an element as it is accumulated, prepared once for all outputs that it belongs to
//   or_neutral(operand, is_element)   the operand, or one that changes no state (padding)
//   accumulate(state, operand, index)   adds an element to a state that began with empty_from(); indices ascend, ...
//   REPEATABLE                 ... or else an element is added again, where that changes nothing
//   state_of(operand, index)   of one element
//   combine(a, b)              of the elements of both, whichever these are
//   appended(a, b)             as combine, where the elements of b are behind those of a; for pool_separable.comp
//   shifted(state, by)         of the same elements, where all have indices larger by so much
//   value_of(state, count), index_of(state)   results; `count` is how many elements of an output count. Where records of
//                              windows are combined, accumulators that do not ask for it are told 0
//   RELOAD_BITS(state, bits)   the bits of element index_of(state): kernels that can read it again carry none along
//   STATE_WORDS, STORE_STATE, LOAD_STATE   a state as words: the records between two passes
//
// What some have:
//
//   HAS_EXTREMES, HAS_PACKED_STATES        the selection: extremes.glsl and packed.glsl go with it
//   HAS_PAIRWISE_ADD, joined(a, b)         sums, for pool_small.comp: an operand that adds what both add
//   divided(operand, by)                   sums, for pool_backward.comp: a share of an operand
//   HAS_SHIFT, greater(a, b), greatest_of(block), prepare(state, greatest)   LOG_SUM_EXP: before elements of several
//                              loads are accumulated

// clang-format off: a table
#ifdef POOLING  // has neither
const bool MINIMUM = false, LAST = false;
#else
layout(constant_id = 8) const bool MINIMUM = false;  // look for the minimum, not the maximum
layout(constant_id = 9) const bool LAST = false;     // of equal elements take the last, not the first
#endif
// clang-format on

const uint SIGN = 1u << (min(BITS, 32) - 1);  // of 64 bits in the high word

// A radix key is an unsigned number whose order is the order of the elements: floats are not compared, because
// drivers may flush denormals and promise nothing about NaN. Equal elements (-0 and +0) have equal keys, every NaN has
// the highest one, and for a minimum the keys run the other way. Radix sorts of floats have such keys, but tell zeros and
// NaN apart.

#if BITS == 64
const uint INFINITY = 0x7FF00000u;  // the high word

// As the one for fewer bits, below.
Bits radix_key(Bits bits)
{
    uint low = bits.x, high = bits.y & ~SIGN, positive = bits.y >> 31, negative = 0 - positive;
    positive -= 1;
    negative = MINIMUM ? positive : negative;
    uint has_low = min(low, 1), carry = negative & (1 - has_low);
    uvec2 number = uvec2((low ^ negative) - negative, (high ^ negative) + carry + SIGN), highest = uvec2(0xFFFFFFFFu);
    number = (high | has_low) > INFINITY ? highest : number;
    uvec2 key = uvec2(bits.x, bits.y ^ SIGN);
    key = NUMBER_KIND == INT ? key : bits;
    uvec2 reversed = ~key;
    key = MINIMUM ? reversed : key;
    return NUMBER_KIND == FLOAT ? number : key;
}

// Without the branches of || and &&: SwiftShader compiles a nest of those for a minute.
bool is_above(Bits a, Bits b) { return (a.y == b.y ? a.x : a.y) > (a.y == b.y ? b.x : b.y); }

#else

#if BITS == 16
const uint INFINITY = 0x7C00u;
#else
const uint INFINITY = 0x7F800000u;
#endif
const uint NAN_KEY = 2 * INFINITY + 1;

// Choices are between variables, so that glslang makes selects of them: SwiftShader keeps every branch, even one on a
// constant, and compiles a shader with hundreds of them for minutes.
Bits radix_key(Bits bits)
{
    // Sign and magnitude of a float, as a signed number around INFINITY: -0 and +0 meet there. That of an infinity is 0
    // or 2 * INFINITY, and that of NaN above it, or below 0 and so wrapped around to above it.
    bool negative = bits >= SIGN, positive = !negative;
    bool falls = MINIMUM ? positive : negative;
    uint rising = INFINITY - (MINIMUM ? SIGN : 0) + bits, falling = INFINITY + (MINIMUM ? 0 : SIGN) - bits;
    uint number = min(falls ? falling : rising, NAN_KEY);
    uint key = bits ^ SIGN;
    key = NUMBER_KIND == INT ? key : bits;
    uint reversed = key ^ MASK;
    key = MINIMUM ? reversed : key;
    return NUMBER_KIND == FLOAT ? number : key;
}

bool is_above(Bits a, Bits b) { return a > b; }

#endif

struct Operand {
    Bits key;
    Bits bits;
};

Operand operand_of(Bits bits) { return Operand(radix_key(bits), bits); }

// No operand with the lowest key wins over a state that began with empty_from(), as long as the first of equal ones
// does.
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

const uint NONE = 0xFFFFFFFFu;  // no element has this index: a tensor has at most 2^32 - 1 elements

// Its key is the lowest, and as bits it has those of a least element, so that a record of it changes nothing, too.
State empty_from(uint index)
{
#if BITS == 64
    uvec2 least = uvec2(0, NUMBER_KIND == INT ? SIGN : 0), greatest = ~least;
    uvec2 infinity = uvec2(0, INFINITY), minus_infinity = uvec2(0, SIGN | INFINITY);
    least = NUMBER_KIND == FLOAT ? minus_infinity : least;
    greatest = NUMBER_KIND == FLOAT ? infinity : greatest;
#else
    uint least = NUMBER_KIND == INT ? SIGN : 0, greatest = least ^ MASK;
    least = NUMBER_KIND == FLOAT ? SIGN | INFINITY : least;
    greatest = NUMBER_KIND == FLOAT ? INFINITY : greatest;
#endif
    return State(Bits(0), MINIMUM ? greatest : least, index);
}

// Every element has an index that wins over this one, or is the same.
State identity() { return empty_from(LAST ? 0 : NONE); }

State state_of(Operand operand, uint index) { return State(operand.key, operand.bits, index); }

const bool REPEATABLE = true;

// All by selects, as in radix_key.
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
    bool above = is_above(b.key, a.key);
    bool earlier = b.index < a.index;
    bool later = b.index > a.index;
    bool better_place = LAST ? later : earlier;
    bool wins = b.key == a.key ? better_place : above;
    return State(wins ? b.key : a.key, wins ? b.bits : a.bits, wins ? b.index : a.index);
}

State appended(State a, State b)
{
    accumulate(a, Operand(b.key, b.bits), b.index);
    return a;
}

State shifted(State state, uint by) { return State(state.key, state.bits, state.index + by); }

Bits value_of(State state, uint count) { return state.bits; }
uint index_of(State state) { return state.index; }
#define RELOAD_BITS(state, element) (state).bits = element;

// Index, then the bits of the element, low word first.
const uint STATE_WORDS = 1 + WORDS_PER_ELEMENT;
#if BITS == 64
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = (state).index; \
        (words)[(at) + 1] = (state).bits.x; \
        (words)[(at) + 2] = (state).bits.y; \
    }
#define LOAD_STATE(words, at) state_of(operand_of(uvec2((words)[(at) + 1], (words)[(at) + 2])), (words)[at])
#else
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = (state).index; \
        (words)[(at) + 1] = (state).bits; \
    }
#define LOAD_STATE(words, at) state_of(operand_of((words)[(at) + 1]), (words)[at])
#endif

#define HAS_EXTREMES  // extremes.glsl, for rows.comp
#define HAS_PACKED_STATES  // packed.glsl, for columns.comp
