// Radix keys of 64-bit elements, for selection.glsl.

const Bits INFINITY = uvec2(0, 0x7FF00000u);

// The key of a float is TOP_BIT plus or minus its magnitude, or the highest one for NaN. To subtract, as -x is
// (x ^ ~0) + 1, `negative` is all ones; the 1 carries to the high word if the low one is 0.
Bits radix_key(Bits bits)
{
    uint low = bits.x, high = bits.y & ~TOP_BIT.y, sign = bits.y >> 31, negative = 0 - sign, positive = sign - 1;
    negative = MINIMUM ? positive : negative;
    uint has_low = min(low, 1), carry = negative & (1 - has_low);
    Bits number = uvec2((low ^ negative) - negative, (high ^ negative) + carry + TOP_BIT.y), highest = EVERY_BIT;
    number = (high | has_low) > INFINITY.y ? highest : number;
    Bits integer = integer_key(bits);
    return NUMBER_KIND == FLOAT ? number : integer;
}

// No || and &&, which are branches, and no selects, which depend on each other from element to element: SwiftShader
// takes minutes to compile either.
bool is_above(Bits a, Bits b) { return any(bvec2(a.y > b.y, all(bvec2(a.y == b.y, a.x > b.x)))); }
