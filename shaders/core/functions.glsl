// Quotients, roots, exponentials and logarithms. Vulkan allows those of drivers errors of several units in the last place,
// which differ from one to the next. Exponentials are the same on every driver that rounds to nearest: they are additions
// and multiplications. The others divide or take a root by the driver, and correct that or need little of it: there the
// last bits may differ. The bounds hold on all drivers (reference/bounds.py).

// a / b, b not 0. The driver's quotient is corrected by what is left of a: a step of Newton's method.
float quotient(Pair a, Pair b)
{
    precise float first = a.high / b.high;
    Pair product = exact_product(first, b.high);
    precise float left = ((a.high - product.high) - product.low) + (a.low - first * b.low), second = left / b.high;
    precise float both = first + second;
    return abs(first) > 1e-30 && abs(a.high) < 1e34 ? both : first;  // else the product is not exact
}

// A count as a pair: it may have more bits than a float.
Pair pair_of(uint count) { return exact_sum(float(count & ~0xFFu), float(count & 0xFFu)); }

// The square root of a number that is not negative: a step of Newton's method, too.
float square_root(Pair a)
{
    precise float first = sqrt(a.high);
    Pair product = exact_product(first, first);
    precise float left = ((a.high - product.high) - product.low) + a.low, both = first + 0.5 * left / first;
    return a.high > 1e-30 && a.high < 1e34 ? both : first;
}

const float LN2_HIGH = 0.693359375,
            LN2_LOW = -2.12194440e-4;  // the first has so few bits that small multiples are exact; Cephes' split

// e^a for a up to 88; for less than -87 as for -87, which is next to nothing. Relative error: 2^-23.
float exponential(float a)
{
    float limited = max(a, -87.0);
    precise float steps = floor(limited * 1.44269504088896341 + 0.5);
    precise float rest = (limited - steps * LN2_HIGH) - steps * LN2_LOW;
    // (e^rest - 1 - rest) / rest^2 for |rest| <= log(2) / 2, with the least relative error of e^rest.
    precise float tail = (((1.3814567e-3 * rest + 8.3687231e-3) * rest + 4.1668389e-2) * rest + 1.6666521e-1) * rest
        + 0.49999994;
    precise float result = ((tail * (rest * rest) + rest) + 1.0) * uintBitsToFloat(uint(int(steps) + 127) << 23);
    return result;
}

// A positive number as m * 2^exponent, m from sqrt(1/2) to sqrt(2).
float mantissa_of(float a, out int exponent)
{
    bool tiny = a < 1.17549435e-38;  // a driver may take it for 0
    uint bits = floatBitsToUint(a), shifted = bits - 0x3F3504F3u;
    exponent = tiny ? -126 : int(shifted) >> 23;
    return tiny ? 1.0 : uintBitsToFloat(bits - (uint(exponent) << 23));
}

// The natural logarithm of a positive number. Relative error: 2^-22. The coefficients and the order of additions are those
// of logf in Cephes, by Stephen L. Moshier (see NOTICE).
float logarithm(Pair a)
{
    int exponent;
    precise float part = mantissa_of(a.high, exponent) - 1.0, square = part * part, steps = float(exponent);
    precise float tail
        = (((((((7.0376836292e-2 * part - 1.1514610310e-1) * part + 1.1676998740e-1) * part - 1.2420140846e-1) * part
              + 1.4249322787e-1)
                 * part
             - 1.6668057665e-1)
                * part
            + 2.0000714765e-1)
               * part
           - 2.4999993993e-1)
            * part
        + 3.3333331174e-1;
    precise float rest = ((tail * part * square + steps * LN2_LOW) - 0.5 * square) + a.low / a.high;
    precise float result = (rest + part) + steps * LN2_HIGH;
    return result;
}

// The root of this degree of a number that is not negative: a = m * 2^(degree * steps + left).
float root(Pair a, uint degree)
{
    int exponent;
    float part = mantissa_of(a.high, exponent);
    uint magnitude = uint(abs(exponent)), whole = magnitude / degree, rest = magnitude - whole * degree;
    bool borrows = exponent < 0 && rest > 0;
    int steps = exponent < 0 ? -int(whole) - (borrows ? 1 : 0) : int(whole);
    float left = float(borrows ? degree - rest : rest);
    precise float power = (left * LN2_HIGH + (left * LN2_LOW + logarithm(Pair(part, 0.0)))) / float(degree);
    precise float result = exponential(power) * uintBitsToFloat(uint(steps + 127) << 23);
    return a.high > 0.0 ? result : 0.0;
}
