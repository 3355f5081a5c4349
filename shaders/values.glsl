// Elements of BITS bits: how they lie in 32-bit words, and their order keys.
//
// An order key is an unsigned number whose order is the order of the elements: no shader compares floats, because
// drivers may flush denormals and promise nothing about NaN. Equal elements (-0 and +0) have equal keys, every NaN has
// the highest one, and for a minimum the keys run the other way. 64-bit elements are (low, high) pairs of words.

#if BITS == 64

#define Bits uvec2
const uint WORDS_PER_ELEMENT = 2;
const uint ELEMENTS_PER_WORD = 1;
const uint SIGN = 0x80000000u;  // of the high word

Bits order_key(Bits bits)
{
    uvec2 key = uvec2(bits.x, bits.y ^ SIGN);
    key = NUMBER_KIND == INT ? key : bits;
    uvec2 reversed = ~key;
    return MINIMUM ? reversed : key;
}

// Without the branches of || and &&: SwiftShader compiles a nest of those for a minute.
bool is_above(Bits a, Bits b) { return (a.y == b.y ? a.x : a.y) > (a.y == b.y ? b.x : b.y); }

#else

#define Bits uint
const uint WORDS_PER_ELEMENT = 1;
const uint ELEMENTS_PER_WORD = 32 / BITS;
const uint MASK = 0xFFFFFFFFu >> (32 - BITS);
const uint SIGN = 1u << (BITS - 1);
#if BITS == 16
const uint INFINITY = 0x7C00u;
#else
const uint INFINITY = 0x7F800000u;
#endif

// Choices are between variables, so that glslang makes selects of them: SwiftShader keeps every branch, even one on a
// constant, and compiles a shader with hundreds of them for minutes.
Bits order_key(Bits bits)
{
    // Sign and magnitude of a float, as a signed number around SIGN: -0 and +0 meet there.
    uint magnitude = bits & (MASK ^ SIGN), positive = bits >> (BITS - 1), negative = 0 - positive;
    positive -= 1;
    negative = MINIMUM ? positive : negative;
    uint number = (magnitude ^ negative) - negative + SIGN, highest = MASK;
    number = magnitude > INFINITY ? highest : number;
    uint key = bits ^ SIGN;
    key = NUMBER_KIND == INT ? key : bits;
    uint reversed = key ^ MASK;
    key = MINIMUM ? reversed : key;
    return NUMBER_KIND == FLOAT ? number : key;
}

bool is_above(Bits a, Bits b) { return a > b; }

#endif

// Element `at` of an array of words.
#if BITS == 64
#define LOAD(words, at) uvec2((words)[2 * (at)], (words)[2 * (at) + 1])
#elif BITS == 32
#define LOAD(words, at) (words)[at]
#else
#define LOAD(words, at) (((words)[(at) / ELEMENTS_PER_WORD] >> ((at) % ELEMENTS_PER_WORD * BITS)) & MASK)
#endif
