// The accumulator of exact sums: SUM, AVERAGE and L1 of floats, rounded once, to the nearest float, ties to even. With
// SQUARES (squares.glsl) SUM_SQUARE and L2: the sum of squares, and its root. Separate kernels (exact_axes.comp,
// exact_pool_direct.comp, exact_pool_small.comp), combine.comp and the scans, which have no bins, use it.
//
// `?:` has variables on both sides, as in selection.glsl: SwiftShader takes minutes to compile branches.
//
// All arithmetic is on integers, in units of the least denormal, or of its square. So neither the order of elements nor
// a device's rounding changes a bit, and nothing has to be `precise`.
//
// A Long is the sum of any floats: an integer of WORDS words in two's complement, and flags of infinities and NaN.
// (Kulisch's accumulator; Neal calls it a superaccumulator: Fast exact summation using small and large
// superaccumulators, 2015.) Adding to a Long takes a hundred instructions, so most elements are added to a bin: a sum
// of 62 bits, with SQUARES 122, of elements whose exponents are close to each other.
//
//   bits of a Long     319                                                                          0
//   a bin                                  [ 61 .................... 0 ]
//   an element                                  [ 23 ......... 0 ]         this one fits
//                           [ 23 ......... 0 ]                              it misses these two
//                                                             [ 23 ......... 0 ]
//
// Kernels add elements to bins. If a bin missed an element, they add all elements again, to a Long. Longs are stored
// for combine.comp, as its states. A bin of float16 holds every finite element, and misses none.

layout(constant_id = 8) const uint POWER = 0;  // of the elements' absolute values, 1 or 2; 0: the elements as they are
layout(constant_id = 9) const uint RESULT = 0;  // what is computed from the sum: a constant below

const uint SUM = 0, AVERAGE = 1, ROOT = 2, WORD = 4;  // WORD: a word of the stored Long

// The unit of floats is 2^-UNIT. A Long has the bits of the greatest element, or its square, 32 more for the number of
// elements, and the sign.
#if BITS == 16
const uint MANTISSA = 10, SPECIAL = 31, UNIT = 24;
#ifdef SQUARES
const uint WORDS = 4;
#else
const uint WORDS = 3;
#endif
#else
const uint MANTISSA = 23, SPECIAL = 255, UNIT = 149;
#ifdef SQUARES
const uint WORDS = 19;
#else
const uint WORDS = 10;
#endif
#endif
// Elements that are multiplied to a term, and digits of a bin.
#ifdef SQUARES
const uint FACTORS = 2, DIGITS = 4;
#elif defined(WIDE_BINS)
const uint FACTORS = 1, DIGITS = 3;
#else
const uint FACTORS = 1, DIGITS = 2;
#endif
const uint DIGIT_BITS = 30, DIGIT = (1u << DIGIT_BITS) - 1;
const uint HIDDEN = 1u << MANTISSA;
const uint INFINITY = SPECIAL << MANTISSA, NAN_BITS = INFINITY | HIDDEN >> 1;

const uint HAS_NAN = 1, HAS_INFINITY = 2, HAS_NEGATIVE_INFINITY = 4;

struct Long {
    uint words[WORDS];
    uint specials;
};

struct Bin {
    uint least;  // least exponent that fits; the greatest is RANGE more
    // The sum, in units of the last bit of an element with the exponent `least`, or of its square: digits of 30 bits,
    // except the last, of 32 bits with the sign. So up to four bins can be added before carries are propagated.
    uint digits[DIGITS];
    uint missed;  // not 0: some elements do not fit. For float16: flags of infinities and NaN
};

// 2^10 elements (kernels/exact.py) of 24 bits, shifted by up to 27: |sum| < 2^61. Squares have 48 bits, and are shifted
// by up to 54: |sum| < 2^112. Every float16 fits. With WIDE_BINS 2^17 elements, shifted by up to 50: |sum| < 2^91.
#ifdef WIDE_BINS
const uint RANGE = 50;
#else
const uint RANGE = 27;
#endif

uint exponent_of(Bits bits) { return bits >> MANTISSA & SPECIAL; }
// The flag of an infinity or NaN; 0 for a number.
uint special_of(Bits bits)
{
    uint infinity = POWER == 0 && bits >= TOP_BIT ? HAS_NEGATIVE_INFINITY : HAS_INFINITY, none = 0;
    uint special = (bits & (HIDDEN - 1)) == 0 ? infinity : HAS_NAN;
    return exponent_of(bits) == SPECIAL ? special : none;
}

// The digits of this mantissa, shifted to the left by `steps` places; with SQUARES of its square, by twice as many.
// `steps` is at most RANGE, for float16 at most 30.
uint[DIGITS] shifted_left(int number, uint steps)
{
#ifdef SQUARES
    uint high, low, zero = 0;
    umulExtended(uint(number), uint(number), high, low);
    high = high << (32 - DIGIT_BITS) | low >> DIGIT_BITS;
    low &= DIGIT;
    bool whole_digit = 2 * steps >= DIGIT_BITS;
    uint less = whole_digit ? DIGIT_BITS : zero, shift = 2 * steps - less;
    uint a = low << shift & DIGIT, b = (low >> (DIGIT_BITS - shift) | high << shift) & DIGIT;
    uint c = high >> (DIGIT_BITS - shift);
    return uint[](whole_digit ? zero : a, whole_digit ? a : b, whole_digit ? b : c, whole_digit ? c : zero);
#elif defined(WIDE_BINS)
    bool whole_digit = steps >= DIGIT_BITS;
    uint zero = 0, less = whole_digit ? DIGIT_BITS : zero, shift = steps - less, sign = uint(number >> 31);
    uint a = uint(number) << shift & DIGIT, b = uint(number >> (DIGIT_BITS - shift)), low = b & DIGIT;
    return uint[](whole_digit ? zero : a, whole_digit ? a : low, whole_digit ? b : sign);
#else
    return uint[](uint(number) << steps & DIGIT, uint(number >> (DIGIT_BITS - steps)));
#endif
}

// Propagates carries, so that every digit but the last has 30 bits.
void propagate_carries(inout uint digits[DIGITS])
{
    [[unroll]] for (uint i = 0; i < DIGITS - 1; ++i) {
        digits[i + 1] += digits[i] >> DIGIT_BITS;
        digits[i] &= DIGIT;
    }
}

// Bins

// An empty bin for elements, of which some have this exponent as the greatest.
Bin empty_bin(uint greatest)
{
#if BITS == 16
    uint least = 1;
#else
    // Others may be 2^5 times as large. If `greatest` is 0, nothing is known: it counts as the exponent of 128 to 255.
    uint usual = 134, exponent = greatest == 0 ? usual : greatest;
    uint least = uint(clamp(int(exponent) + 5 - int(RANGE), 1, int(SPECIAL - 1 - RANGE)));
#endif
    uint digits[DIGITS];
    [[unroll]] for (uint i = 0; i < DIGITS; ++i)
        digits[i] = 0;
    return Bin(least, digits, 0);
}
// The exponent of an element, for empty_bin(); 0 for infinities and NaN.
uint finite_exponent(Bits bits)
{
    uint exponent = exponent_of(bits), none = 0;
    return exponent == SPECIAL ? none : exponent;
}

// A bin of one element, with this `least`.
Bin bin_of(uint least, Bits bits)
{
    uint none = 0;
#if BITS == 16
    // Denormals have the exponent 0, no hidden bit, and the unit of the exponent 1.
    uint exponent = exponent_of(bits), hidden = min(exponent, 1), shift = exponent - hidden;
    uint sign = POWER == 0 ? 0 - (bits >> 15) : 0, missed = special_of(bits);
    bool fits = exponent != SPECIAL;
#else
    // Elements without a hidden bit, or with another exponent, are missed.
    const uint hidden = 1;
    uint magnitude = bits << 1, steps = (magnitude >> 24) - least, sign = POWER == 0 ? uint(int(bits) >> 31) : 0;
    uint shift = min(steps, RANGE);
    bool fits = shift == steps;
    uint missed = fits ? none : magnitude;  // a 0 is not missed
#endif
    uint number = ((bits & (HIDDEN - 1) | hidden << MANTISSA) ^ sign) - sign;
    return Bin(least, shifted_left(int(fits ? number : none), shift), missed);
}

// Adds a bin with the same `least`; carries stay in their digits.
void add(inout Bin sum, Bin bin)
{
    [[unroll]] for (uint i = 0; i < DIGITS; ++i)
        sum.digits[i] += bin.digits[i];
    sum.missed |= bin.missed;
}
// Combines bins with the same `least`.
Bin combine(Bin a, Bin b)
{
    add(a, b);
    propagate_carries(a.digits);
    return a;
}

// Adds bin `number` of a sequence of `count`. Carries are propagated after every second bin, and at the end.
void add(inout Bin sum, Bin bin, uint number, uint count)
{
    add(sum, bin);
    if (number % 2 == 1 || number + 1 == count)
        propagate_carries(sum.digits);
}

bool has_missed(Bin bin) { return BITS == 32 && bin.missed != 0; }

// The digits as a number of 32-bit words in two's complement. Word i has bits 2 i and up of digit i, then bits of the
// next digit.
uint[DIGITS] words_of(uint digits[DIGITS])
{
    uint words[DIGITS];
    [[unroll]] for (uint i = 0; i < DIGITS - 1; ++i)
        words[i] = digits[i] >> 2 * i | digits[i + 1] << (DIGIT_BITS - 2 * i);
    words[DIGITS - 1] = uint(int(digits[DIGITS - 1]) >> 2 * (DIGITS - 1));
    return words;
}

// Longs

// Adds number * 2^position; the number is in two's complement.
void add(inout Long sum, uint number[DIGITS], uint position)
{
    uint at = position >> 5, shift = position & 31u, sign = uint(int(number[DIGITS - 1]) >> 31), carry = 0;
    uint parts[DIGITS + 1];
    parts[0] = number[0] << shift;
    [[unroll]] for (uint k = 1; k < DIGITS; ++k)
        parts[k] = number[k] << shift | number[k - 1] >> 1 >> (31 - shift);
    parts[DIGITS] = sign << shift | number[DIGITS - 1] >> 1 >> (31 - shift);
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint part = i < at ? 0 : sign;
        [[unroll]] for (uint k = 0; k <= DIGITS; ++k)
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
    add(sum, words_of(bin.digits), FACTORS * (bin.least - 1));
    if (BITS == 16)
        sum.specials = bin.missed;
    return sum;
}

#define Operand Bits
Operand operand_of(Bits bits) { return bits; }

// Adds an element.
void add(inout Long sum, Bits bits)
{
    uint exponent = exponent_of(bits), hidden = min(exponent, 1);
    int number = int(bits & (HIDDEN - 1) | hidden << MANTISSA), opposite = -number;
    number = POWER == 0 && bits >= TOP_BIT ? opposite : number;
    number = exponent == SPECIAL ? 0 : number;
    add(sum, words_of(shifted_left(number, 0)), FACTORS * (exponent - hidden));
    sum.specials |= special_of(bits);
}
void accumulate(inout Long sum, Operand operand, uint index) { add(sum, operand); }

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

// The float nearest to leading * 2^(position - 31), ties to even. Bit 31 of `leading` is set, so that bit stands for
// 2^position. With `more` the number is slightly greater.
Bits nearest(uint leading, bool more, int position)
{
    const int PRECISION = int(MANTISSA) + 1;
    // Denormals have fewer bits; numbers below half of the least denormal have none.
    uint kept = uint(clamp(position + 1, 0, PRECISION));
    uint bits = leading >> 1 >> (31 - kept), rest = leading << kept;
    bool up = rest > 0x80000000u || rest == 0x80000000u && (more || (bits & 1u) != 0);
    bits += uint(up) + (uint(max(position - PRECISION + 1, 0)) << MANTISSA);
    return position < -1 ? 0 : min(bits, INFINITY);
}

// 2^63 / divisor, or at most 8 less. Bit 31 of the divisor is set.
uint reciprocal_of(uint divisor)
{
    // Newton's method. With d = divisor / 2^32, the line 2.928 - 2 d is 1/d within 7.2 percent, and a step squares the
    // error. Truncation makes the result too small, never too large.
    uint reciprocal = 0x76CF5D0Bu - divisor, high, unused;
    [[unroll]] for (uint step = 0; step < 3; ++step) {
        umulExtended(divisor, reciprocal, high, unused);
        umulExtended(reciprocal, ~high, high, unused);
        reciprocal = high << 1;
    }
    return reciprocal;
}

// The result for a sum, or a root, whose magnitude begins with these 64 bits; with `more` later bits are set, too. The
// first bit of `high` is set, and stands for 2^position, unless the sum is 0.
Bits value_of_parts(bool negative, uint high, uint middle, bool more, int position, uint specials, uint count)
{
    bool is_zero = high == 0;
    if (RESULT == AVERAGE) {
        // The quotient has 26 or 27 bits. Its first estimate is exact, or 1 too small; the remainder decides.
        uint divisor_shift = 31u - uint(findMSB(count)), divisor = count << divisor_shift;
        uint quotient, product, product_high, unused, rest_high = high >> 6, rest = high << 26 | middle >> 6;
        umulExtended(high, reciprocal_of(divisor), quotient, unused);
        quotient >>= 5;
        umulExtended(quotient, divisor, product_high, product);
        rest_high -= product_high + uint(rest < product);
        rest -= product;
        bool one = rest_high != 0 || rest >= divisor;
        uint less = rest - divisor;
        rest = one ? less : rest;
        quotient += uint(one);
        more = more || rest != 0 || (middle & 63u) != 0;
        uint shift = 6u - (quotient >> 26);
        high = quotient << shift;
        position += int(divisor_shift - shift) - 26;
        middle = 0;
    }
    more = more || middle != 0;
    uint zero = 0, bits = nearest(high, more, position);
    bits = is_zero ? zero : bits;
    bits |= negative ? TOP_BIT : zero;
    uint infinite = specials & (HAS_INFINITY | HAS_NEGATIVE_INFINITY);
    uint infinity = INFINITY | (infinite == HAS_INFINITY ? zero : TOP_BIT);
    bits = infinite != 0 ? infinity : bits;
    bool nan = (specials & HAS_NAN) != 0 || infinite == (HAS_INFINITY | HAS_NEGATIVE_INFINITY);
    return nan ? NAN_BITS : bits;
}

#if !defined(SQUARES) && !defined(WIDE_BINS)
// For a bin that missed no element.
Bits value_of(Bin bin, uint count)
{
    // The magnitude: `high` and 30 bits of `low`.
    bool negative = int(bin.digits[1]) < 0;
    uint zero = 0, flip = negative ? 0xFFFFFFFFu : 0u;
    uint low = (bin.digits[0] ^ flip) - flip, high = (bin.digits[1] ^ flip) - flip + uint(int(low) >> DIGIT_BITS);
    low <<= 32 - DIGIT_BITS;
    bool is_short = high == 0;
    uint middle = is_short ? zero : low;
    high = is_short ? low : high;
    uint shift = 31u - uint(max(findMSB(high), 0));
    high = high << shift | middle >> 1 >> (31 - shift);
    int position = int((is_short ? DIGIT_BITS - 1 : DIGIT_BITS + 31) - shift + bin.least) - 1;
    uint specials = BITS == 16 ? bin.missed : 0;
    return value_of_parts(negative, high, middle << shift, false, position, specials, count);
}
#endif

// The result; with WORD, word `count` of the stored sum.
Bits value_of(Long sum, uint count)
{
    uint word_of_sum = sum.specials;
    [[unroll]] for (uint i = 0; i < WORDS; ++i)
        word_of_sum = i == count ? sum.words[i] : word_of_sum;
    // The magnitude, and its words from the first that is not 0 on.
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
    // Its first 64 bits, from the first set bit on, and whether later bits are set.
    uint shift = 31u - uint(max(findMSB(high), 0));
    high = high << shift | middle >> 1 >> (31 - shift);
    middle = middle << shift | low >> 1 >> (31 - shift);
    bool more = (low << shift | others) != 0;
    int position = int(32 * left - 1 - shift);
    if (RESULT == ROOT) {
        // The root, bit by bit, of a number whose last bit stands for a power of 4: 28 bits, of which the first is set.
        uint even = uint(~position & 1), root = 0, rest = 0;
        more = more || (middle & even) != 0;
        middle = middle >> even | (high & even) << 31;
        high >>= even;
        // Loops of few iterations, which llvmpipe counts, and of little code, which it compiles.
        [[dont_unroll]] for (uint i = 0; i < 4; ++i) {
            [[unroll]] for (uint k = 0; k < 7; ++k) {
                rest = rest << 2 | high >> 30;
                high = high << 2 | middle >> 30;
                middle <<= 2;
                uint subtrahend = 4 * root + 1, less = rest - subtrahend;
                bool one = rest >= subtrahend;
                rest = one ? less : rest;
                root = root << 1 | uint(one);
            }
        }
        middle |= rest | high;
        high = root << 4;
        position >>= 1;
    } else
        position -= int((FACTORS - 1) * UNIT);
    Bits value = value_of_parts(negative, high, middle, more, position, sum.specials, count);
    return RESULT == WORD ? word_of_sum : value;
}
#if defined(SQUARES) || defined(WIDE_BINS)
Bits value_of(Bin bin, uint count) { return value_of(long_of(bin), count); }
#endif
uint index_of(Long sum) { return 0; }

const uint STATE_WORDS = WORDS + 1;
#define STORE_STATE(stored, at, sum) \
    { \
        [[unroll]] for (uint w = 0; w < WORDS; ++w) \
            (stored)[(at) + w] = (sum).words[w]; \
        (stored)[(at) + WORDS] = (sum).specials; \
    }
// Stores the same, then the count, in a loop that shifts the words: llvmpipe (Mesa 25) compiles 32 basic blocks for
// each store.
#define STORE_PARTIAL(stored, at, sum, count) \
    { \
        Long left = sum; \
        [[dont_unroll]] for (uint w = 0; w < PARTIAL_WORDS; ++w) { \
            (stored)[(at) + w] = left.words[0]; \
            [[unroll]] for (uint i = 1; i < WORDS; ++i) \
                left.words[i - 1] = left.words[i]; \
            left.words[WORDS - 1] = left.specials; \
            left.specials = count; \
        } \
    }
#define LOAD_STATE(sum, stored, at) \
    { \
        [[unroll]] for (uint w = 0; w < WORDS; ++w) \
            (sum).words[w] = (stored)[(at) + w]; \
        (sum).specials = (stored)[(at) + WORDS]; \
    }
#define NEEDS_COUNT (RESULT == AVERAGE)
#ifndef State
#define State Long
#endif
