// The accumulator of exact sums of squares: SUM_SQUARE and L2 of floats. See exact.glsl.
#define SQUARES
#include "accumulators/exact.glsl"
