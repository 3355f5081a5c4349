// For gradients of averages: a window's gradient is divided among its elements. The accumulator is sum.glsl.

// The share of one of `count` elements.
Operand share_of(Operand gradient, uint count)
{
    return Operand(quotient(Pair(gradient.term, 0.0), pair_of(count)), gradient.specials);
}
