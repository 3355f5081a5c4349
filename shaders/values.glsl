// Elements of BITS bits: how they lie in 32-bit words, and their order keys.
//
// An order key is an unsigned number whose order is the order of the elements: no shader compares floats, because
// drivers may flush denormals and promise nothing about NaN. Equal elements (-0 and +0) have equal keys, every NaN has
// the highest one, and for a minimum the keys run the other way. 64-bit elements are (low, high) pairs of words.

#if BITS == 64

#define Bits uvec2
const uint WORDS_PER_ELEMENT = 2;
const uint ELEMENTS_PER_WORD = 1;

Bits order_key(Bits bits)
{
    Bits key = NUMBER_KIND == INT ? uvec2(bits.x, bits.y ^ 0x80000000u) : bits;
    return MINIMUM ? ~key : key;
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

Bits order_key(Bits bits)
{
    uint key = bits;
    if (NUMBER_KIND == INT)
        key ^= SIGN;
    if (NUMBER_KIND == FLOAT) {
        uint magnitude = bits & (MASK ^ SIGN);
        if (magnitude > INFINITY)
            return MASK;
        if (magnitude == 0)
            key = 0;
        key = (key & SIGN) != 0 ? key ^ MASK : key | SIGN;
    }
    return MINIMUM ? key ^ MASK : key;
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
