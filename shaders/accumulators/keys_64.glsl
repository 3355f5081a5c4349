// Radix keys of 64-bit elements, for selection.glsl.

Bits integer_key(Bits number)
{
    Bits changed = uvec2(number.x, number.y ^ SIGN), every = uvec2(0xFFFFFFFFu);
    Bits key = NUMBER_KIND == INT ? changed : number, reversed = key ^ every;
    return MINIMUM ? reversed : key;
}

const uint INFINITY = 0x7FF00000u;  // the high word

// The key of a float is SIGN << 32 plus or minus its magnitude, or the highest one for NaN. To subtract, as -x is
// (x ^ ~0) + 1, `negative` is all ones; the 1 carries to the high word if the low one is 0.
Bits radix_key(Bits bits)
{
    uint low = bits.x, high = bits.y & ~SIGN, sign = bits.y >> 31, negative = 0 - sign, positive = sign - 1;
    negative = MINIMUM ? positive : negative;
    uint has_low = min(low, 1), carry = negative & (1 - has_low);
    uvec2 number = uvec2((low ^ negative) - negative, (high ^ negative) + carry + SIGN), highest = uvec2(0xFFFFFFFFu);
    number = (high | has_low) > INFINITY ? highest : number;
    Bits integer = integer_key(bits);
    return NUMBER_KIND == FLOAT ? number : integer;
}

// No || and &&, which are branches, and no selects, which depend on each other from element to element: SwiftShader
// takes minutes to compile either.
bool is_above(Bits a, Bits b) { return any(bvec2(a.y > b.y, all(bvec2(a.y == b.y, a.x > b.x)))); }

Bits lowest_bits()
{
    uvec2 least = uvec2(0, NUMBER_KIND == INT ? SIGN : 0), greatest = ~least;
    uvec2 infinity = uvec2(0, INFINITY), minus_infinity = uvec2(0, SIGN | INFINITY);
    least = NUMBER_KIND == FLOAT ? minus_infinity : least;
    greatest = NUMBER_KIND == FLOAT ? infinity : greatest;
    return MINIMUM ? greatest : least;
}
