// Floats of 16 or 32 bits, and arithmetic with them. Vulkan leaves open how arithmetic rounds, and whether it preserves
// denormals, infinities and NaN, so shaders test bits for these. `precise` forbids drivers to replace an expression
// with another that is equal only for real numbers.

#if BITS == 16

// The value of a finite 16-bit float. As a 32-bit float it is exact, and never denormal.
float number_of(Bits bits)
{
    uint magnitude = bits & 0x7FFFu;
    float normal = uintBitsToFloat((magnitude << 13) + 0x38000000u);  // exponents differ by 112
    precise float denormal = float(magnitude) * (1.0 / 16777216.0);
    float number = magnitude < 0x400u ? denormal : normal;
    return bits >= 0x8000u ? -number : number;
}

// Sign and magnitude in the high half of a word: the sign is in bit 31, as in a 32-bit float.
uint pattern_of(Bits bits) { return bits << 16; }
const uint INFINITE = 0x7C000000u;

// The nearest 16-bit float, ties to even. Not packHalf2x16, which drivers may round as they like.
Bits rounded(float number)
{
    uint pattern = floatBitsToUint(number), sign = pattern >> 16 & 0x8000u, magnitude = pattern & 0x7FFFFFFFu;
    // 13 bits of the mantissa are rounded off, and the exponent is 112 less.
    uint normal = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
    // A denormal is a multiple of 2^-24: the mantissa, shifted right until its last bit stands for 2^-24.
    uint shift = min(126u - (magnitude >> 23), 31u), mantissa = magnitude & 0x7FFFFFu | 0x800000u;
    uint denormal = (mantissa + (1u << shift - 1u) - 1u + (mantissa >> shift & 1u)) >> shift;
    uint bits = magnitude < 0x38800000u ? denormal : normal;  // 2^-14
    bits = magnitude < 0x33000000u ? 0u : bits;  // 2^-25, half of the least denormal
    bits = magnitude >= 0x47800000u ? 0x7C00u : bits;  // 2^16
    return sign | (magnitude > 0x7F800000u ? 0x7E00u : bits);
}
Bits infinity(bool negative) { return negative ? 0xFC00u : 0x7C00u; }
const uint NAN_BITS = 0x7E00u;

#else

float number_of(Bits bits) { return uintBitsToFloat(bits); }
uint pattern_of(Bits bits) { return bits; }
const uint INFINITE = 0x7F800000u;
Bits rounded(float number) { return floatBitsToUint(number); }
Bits infinity(bool negative) { return negative ? 0xFF800000u : 0x7F800000u; }
const uint NAN_BITS = 0x7FC00000u;

#endif

const uint SIGN_BIT = 0x80000000u;

// Tells whether a set of elements has infinities or NaN: by the greatest of their patterns as signed numbers, which is
// a positive float's if there is one, and by the greatest as unsigned numbers, a negative float's if there is one.
struct Specials {
    int max_signed;
    uint max_unsigned;
};
Specials no_specials() { return Specials(0, 0); }
Specials specials_of(uint pattern) { return Specials(int(pattern), pattern); }
Specials joined(Specials a, Specials b)
{
    return Specials(max(a.max_signed, b.max_signed), max(a.max_unsigned, b.max_unsigned));
}
bool has_nan(Specials specials)
{
    return specials.max_signed > int(INFINITE) || specials.max_unsigned > (SIGN_BIT | INFINITE);
}
bool has_infinity(Specials specials) { return specials.max_signed == int(INFINITE); }
bool has_negative_infinity(Specials specials) { return specials.max_unsigned == (SIGN_BIT | INFINITE); }

// A number as the sum of two floats: `high` is the float nearest to it, `low` is the rest.
struct Pair {
    float high;
    float low;
};

// a + b: Knuth's TwoSum (The Art of Computer Programming, volume 2, 4.2.2).
Pair exact_sum(float a, float b)
{
    precise float high = a + b, part = high - a, low = (a - (high - part)) + (b - part);
    return Pair(high, low);
}

const float LARGEST = 3.40282346638528859812e38;

// The sum of a pair and a float. If it overflows, it is an infinity, not NaN.
Pair added(Pair a, float b)
{
    Pair sum = exact_sum(a.high, b);
    precise float low = sum.low + a.low, high = sum.high + low, rest = low - (high - sum.high);
    return abs(sum.high) <= LARGEST ? Pair(high, rest) : Pair(sum.high, 0.0);
}
Pair added(Pair a, Pair b) { return added(added(a, b.low), b.high); }

// a * b, for magnitudes below 2^115. It splits the mantissas into halves of 12 bits, whose products are exact: Dekker's
// product, with Veltkamp's split (Dekker, A floating-point technique for extending the available precision, 1971).
Pair exact_product(float a, float b)
{
    precise float high = a * b;
    precise float a_shifted = a * 4097.0, a_high = a_shifted - (a_shifted - a), a_low = a - a_high;
    precise float b_shifted = b * 4097.0, b_high = b_shifted - (b_shifted - b), b_low = b - b_high;
    precise float low = ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low;
    return Pair(high, low);
}
