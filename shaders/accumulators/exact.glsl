// The accumulator of exact sums: SUM, AVERAGE and L1 of floats, rounded once, to the nearest float, ties to even.
// The contract is at the top of selection.glsl; what HAS_BIN adds to it is below.
//
// All arithmetic is of integers, in units of the least denormal. So neither the order of the elements nor how a device
// rounds changes a bit, and nothing has to be `precise`.
//
// The sum of any floats is a Long: an integer of WORDS words in two's complement, and which infinities and NaN there
// were. (Kulisch's accumulator; Neal calls it a superaccumulator: Fast exact summation using small and large
// superaccumulators, 2015.) To add to one takes a hundred instructions, so most elements go to a bin: a sum of 64 bits,
// of elements whose exponents are close to each other.
//
//   bits of a Long     319                                                                          0
//   a bin                                  [ 63 .................... 0 ]
//   an element                                  [ 23 ......... 0 ]         this one fits
//                           [ 23 ......... 0 ]                              these two it misses
//                                                             [ 23 ......... 0 ]
//
// Kernels over axes accumulate in bins (State). If a bin missed an element, whole() looks at all elements again, and
// adds those to the Long. combine.comp has no bins: it adds Longs, which are what is stored.

layout(constant_id = 8) const uint POWER = 0;   // of the elements' absolute values, 1; 0: the elements as they are
layout(constant_id = 9) const uint RESULT = 0;  // what is computed from the sum: a constant below

const uint SUM = 0, AVERAGE = 1, WORD = 4;

// A Long has the bits of the greatest element, 32 more for the number of elements, and the sign.
#if BITS == 16
const uint MANTISSA = 10, SPECIAL = 31, WORDS = 3;
#else
const uint MANTISSA = 23, SPECIAL = 255, WORDS = 10;
#endif
const uint HIDDEN = 1u << MANTISSA, SIGN = 1u << (BITS - 1);
const uint INFINITY = SPECIAL << MANTISSA, NAN_BITS = INFINITY | HIDDEN >> 1;

const uint HAS_NAN = 1, HAS_INFINITY = 2, HAS_NEGATIVE_INFINITY = 4;

struct Long {
    uint words[WORDS];
    uint specials;
};

struct Bin {
    uint least;   // an element with this exponent, or up to SPAN more, fits
    uvec2 sum;    // in units of the last bit of an element with the exponent `least`
    uint missed;  // not 0: some elements do not fit
};

// |sum| < 2^63: 2^10 elements (accumulators.py) of 24 bits, shifted by up to 29. Every float16 fits: 2^22 of 11 bits.
const uint SPAN = 29;

#ifdef COMBINES
#define State Long
#else
#define HAS_BIN
#define State Bin
#endif

#define Operand Bits
Bits operand_of(Bits bits) { return bits; }
Bits or_neutral(Bits bits, bool is_element)
{
    Bits zero = 0;
    return is_element ? bits : zero;
}

uint exponent_of(Bits bits) { return bits >> MANTISSA & SPECIAL; }

// number * 2^shift, for shifts below 32.
uvec2 shifted_left(int number, uint shift) { return uvec2(uint(number) << shift, uint(number >> 1 >> (31 - shift))); }
uvec2 sum_of(uvec2 a, uvec2 b)
{
    uint low = a.x + b.x;
    return uvec2(low, a.y + b.y + uint(low < b.x));
}

// Bins

Bin empty_from(uint index) { return Bin(0, uvec2(0), 0); }

// Before the first element is accumulated, kernels show the bin some of them with show(); place() then chooses
// `least`. Lanes show the same ones, so that their bins can be combined.
void show(inout Bin bin, Bits bits)
{
    uint exponent = exponent_of(bits), none = 0;
    bin.least = max(bin.least, exponent == SPECIAL ? none : exponent);
}
void place(inout Bin bin)
{
#if BITS == 16
    bin.least = 1;
#else
    // Others may be 2^5 times as large as the greatest sample. If all are 0: as if that were between 128 and 255.
    uint usual = 134, least = bin.least == 0 ? usual : bin.least;
    bin.least = uint(clamp(int(least) + 5 - int(SPAN), 1, int(SPECIAL - 1 - SPAN)));
#endif
}

const bool REPEATABLE = false;
void accumulate(inout Bin bin, Bits bits, uint index)
{
    uint exponent = exponent_of(bits), none = 0;
#if BITS == 16
    // Denormals have the exponent 0, no hidden bit, and the unit of the exponent 1.
    uint hidden = min(exponent, 1), shift = exponent - hidden, mantissa = bits & (HIDDEN - 1) | hidden << MANTISSA;
    bool fits = exponent != SPECIAL;
    int number = int(mantissa), opposite = -number;
    number = POWER == 0 && bits >= SIGN ? opposite : number;
#else
    // 2^23 <= |number| < 2^24, with the mantissa of the element: the conversion is exact.
    uint shift = exponent - bin.least, mantissa = bits & (POWER == 0 ? 0x807FFFFFu : 0x7FFFFFu);
    bool fits = shift <= SPAN;
    int number = int(uintBitsToFloat(mantissa | 0x4B000000u));
#endif
    uint magnitude = bits << (33 - BITS);
    bin.missed |= fits ? none : magnitude;  // a 0 is not missed
    bin.sum = sum_of(bin.sum, shifted_left(fits ? number : 0, shift & 31u));
}
Bin shifted(Bin bin, uint by) { return bin; }

// Of bins with the same `least`.
Bin combine(Bin a, Bin b) { return Bin(a.least, sum_of(a.sum, b.sum), a.missed | b.missed); }

// Longs

// Adds number * 2^position; the number is in two's complement.
void add(inout Long sum, uvec2 number, uint position)
{
    uint at = position >> 5, shift = position & 31u, sign = uint(int(number.y) >> 31), carry = 0;
    uvec3 parts = uvec3(number.x << shift, number.y << shift | number.x >> 1 >> (31 - shift),
                        sign << shift | number.y >> 1 >> (31 - shift));
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint part = i < at ? 0 : sign;
        [[unroll]] for (uint k = 0; k < 3; ++k)
            part = i == at + k ? parts[k] : part;
        uint word = sum.words[i] + part, both = word + carry;
        carry = uint(word < part) | uint(both < carry);
        sum.words[i] = both;
    }
}

Long identity()
{
    Long sum;
    [[unroll]] for (uint i = 0; i < WORDS; ++i)
        sum.words[i] = 0;
    sum.specials = 0;
    return sum;
}

Long long_of(Bin bin)
{
    Long sum = identity();
    add(sum, bin.sum, bin.least - 1);
    return sum;
}

// Adds an element, if the bin missed it.
void add_missed(inout Long sum, Bin bin, Bits bits)
{
    uint exponent = exponent_of(bits), mantissa = bits & (HIDDEN - 1), none = 0;
    bool negative = POWER == 0 && bits >= SIGN;
    uint infinity = negative ? HAS_NEGATIVE_INFINITY : HAS_INFINITY, special = mantissa == 0 ? infinity : HAS_NAN;
    sum.specials |= exponent == SPECIAL ? special : none;
#if BITS == 32
    uint hidden = min(exponent, 1);
    int number = int(mantissa | hidden << MANTISSA), opposite = -number;
    number = negative ? opposite : number;
    bool missed = exponent - bin.least > SPAN && exponent != SPECIAL;
    number = missed ? number : 0;
    add(sum, shifted_left(number, 0), exponent - hidden);
#endif
}

Long combine(Long a, Long b)
{
    uint carry = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint word = a.words[i] + b.words[i], both = word + carry;
        carry = uint(word < b.words[i]) | uint(both < carry);
        a.words[i] = both;
    }
    a.specials |= b.specials;
    return a;
}

// The float nearest to leading * 2^(position - 31), of two equally near the even one. Bit 31 of `leading` is set, so that
// bit stands for 2^position. With `more` the number is a little above it.
Bits nearest(uint leading, bool more, int position)
{
    const int PRECISION = int(MANTISSA) + 1;
    // Denormals have fewer bits; what is below a half of the least of them has none.
    uint kept = uint(clamp(position + 1, 0, PRECISION));
    uint bits = leading >> 1 >> (31 - kept), rest = leading << kept;
    bool up = rest > 0x80000000u || rest == 0x80000000u && (more || (bits & 1u) != 0);
    bits += uint(up) + (uint(max(position - PRECISION + 1, 0)) << MANTISSA);
    return position < -1 ? 0 : min(bits, INFINITY);
}

// The word with number `number` of those that are stored.
uint word_of(Long sum, uint number)
{
    uint word = sum.specials;
    [[unroll]] for (uint i = 0; i < WORDS; ++i)
        word = i == number ? sum.words[i] : word;
    return word;
}

// With WORD `count` is the number of a word.
Bits value_of(Long sum, uint count)
{
    if (RESULT == WORD)
        return word_of(sum, count);
    // The magnitude, and of it the words from the first that is not 0 on.
    bool negative = int(sum.words[WORDS - 1]) < 0;
    uint flip = negative ? 0xFFFFFFFFu : 0u, carry = flip & 1u;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint word = sum.words[i] ^ flip;
        sum.words[i] = word + carry;
        carry &= uint(sum.words[i] == 0);
    }
    uint left = 0, high = 0, middle = 0, low = 0, others = 0;
    [[unroll]] for (uint i = WORDS; i-- > 0;) {
        uint word = sum.words[i], rest = others | word;
        left += uint(left != 0 || word != 0);
        high = left == 1 ? word : high;
        middle = left == 2 ? word : middle;
        low = left == 3 ? word : low;
        others = left > 3 ? rest : others;
    }
    // 64 bits of it, the first of which is set, and whether there are more.
    uint shift = 31u - uint(max(findMSB(high), 0));
    high = high << shift | middle >> 1 >> (31 - shift);
    middle = middle << shift | low >> 1 >> (31 - shift);
    bool more = (low << shift | others) != 0;
    int position = int(32 * left - 1 - shift);
    if (RESULT == AVERAGE) {
        // Long division, bit by bit, by a divisor whose first bit is set, too: 28 bits of a quotient between 1/2 and 2.
        uint divisor_shift = 31u - uint(findMSB(count)), divisor = count << divisor_shift, quotient = 0;
        bool above = false;  // the rest is 2^32 more
        [[unroll]] for (uint i = 0; i < 28; ++i) {
            bool one = above || high >= divisor;
            uint less = high - divisor;
            high = one ? less : high;
            quotient = quotient << 1 | uint(one);
            above = high >= 0x80000000u;
            high = high << 1 | middle >> 31;
            middle <<= 1;
        }
        more = more || above || (high | middle) != 0;
        uint unused = 31u - uint(max(findMSB(quotient), 0));
        high = quotient << unused;
        position += int(divisor_shift) - 27 - int(unused);
        middle = 0;
    }
    more = more || middle != 0;
    uint zero = 0, bits = nearest(high, more, position);
    bits = left == 0 ? zero : bits;
    bits |= negative ? SIGN : zero;
    uint infinite = sum.specials & (HAS_INFINITY | HAS_NEGATIVE_INFINITY);
    uint infinity = INFINITY | (infinite == HAS_INFINITY ? zero : SIGN);
    bits = infinite != 0 ? infinity : bits;
    bool nan = (sum.specials & HAS_NAN) != 0 || infinite == (HAS_INFINITY | HAS_NEGATIVE_INFINITY);
    return nan ? NAN_BITS : bits;
}
uint index_of(Long sum) { return 0; }
#define RELOAD_BITS(state, element)

const uint STATE_WORDS = WORDS + 1;
#define STORE_STATE(stored, at, sum) \
    { \
        [[unroll]] for (uint w = 0; w < WORDS; ++w) \
            (stored)[(at) + w] = (sum).words[w]; \
        (stored)[(at) + WORDS] = (sum).specials; \
    }
#if BITS == 16
#define LOAD_STATE(stored, at) Long(uint[](stored[at], stored[(at) + 1], stored[(at) + 2]), stored[(at) + 3])
#else
#define LOAD_STATE(stored, at) \
    Long(uint[](stored[at], stored[(at) + 1], stored[(at) + 2], stored[(at) + 3], stored[(at) + 4], stored[(at) + 5], \
                stored[(at) + 6], stored[(at) + 7], stored[(at) + 8], stored[(at) + 9]), stored[(at) + 10])
#endif
