// Quotients, roots, exponentials and logarithms. Vulkan allows built-in functions errors of several units in the last
// place, and drivers differ. exponential() consists of additions and multiplications: it is the same on every driver
// that rounds to nearest. The other functions divide, or call sqrt(), and correct the result or depend on it little:
// their last bits may differ. The bounds (reference/bounds.py) hold on all drivers.

// a / b for b other than 0. One step of Newton's method corrects the driver's quotient.
float quotient(Pair a, Pair b)
{
    precise float first = a.high / b.high;
    Pair product = exact_product(first, b.high);
    precise float left = ((a.high - product.high) - product.low) + (a.low - first * b.low), second = left / b.high;
    precise float both = first + second;
    return abs(first) > 1e-30 && abs(a.high) < 1e34 ? both : first;  // else the product is not exact
}

// A count as a pair: it may have more bits than the mantissa of a float.
Pair pair_of(uint count) { return exact_sum(float(count & ~0xFFu), float(count & 0xFFu)); }

// The square root of a >= 0. One step of Newton's method corrects the driver's root.
float square_root(Pair a)
{
    precise float first = sqrt(a.high);
    Pair product = exact_product(first, first);
    precise float left = ((a.high - product.high) - product.low) + a.low, both = first + 0.5 * left / first;
    return a.high > 1e-30 && a.high < 1e34 ? both : first;
}

const float LN2_HIGH = 0.693359375,
            LN2_LOW = -2.12194440e-4;  // LN2_HIGH has few bits: its small multiples are exact; Cephes' split

// e^a for a <= 88, with a relative error of 2^-23; 0 for a < -87, where it would be below the least normal number.
float exponential(float a)
{
    float limited = max(a, -87.0);
    precise float steps = floor(limited * 1.44269504088896341 + 0.5);
    precise float rest = (limited - steps * LN2_HIGH) - steps * LN2_LOW;
    // A polynomial for (e^rest - 1 - rest) / rest^2, |rest| <= log(2) / 2, that minimizes the relative error of e^rest.
    precise float tail = (((1.3814567e-3 * rest + 8.3687231e-3) * rest + 4.1668389e-2) * rest + 1.6666521e-1) * rest
        + 0.49999994;
    precise float result = ((tail * (rest * rest) + rest) + 1.0) * uintBitsToFloat(uint(int(steps) + 127) << 23);
    return a < -87.0 ? 0.0 : result;
}

// Splits a > 0 into m * 2^exponent with m from sqrt(1/2) to sqrt(2), and returns m.
float mantissa_of(float a, out int exponent)
{
    bool tiny = a < 1.17549435e-38;  // denormal: a driver may flush it to 0
    uint bits = floatBitsToUint(a), shifted = bits - 0x3F3504F3u;  // sqrt(1/2)
    exponent = tiny ? -126 : int(shifted) >> 23;
    return tiny ? 1.0 : uintBitsToFloat(bits - (uint(exponent) << 23));
}

// The natural logarithm of a positive number. Relative error: 2^-22. The coefficients and the order of additions are
// those of logf in Cephes, by Stephen L. Moshier (see NOTICE).
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

// The root of degree `degree` of a >= 0: with a = m * 2^(degree * steps + left) it is root(m * 2^left) * 2^steps.
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
