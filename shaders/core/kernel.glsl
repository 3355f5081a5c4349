// Shared by all kernels: specialization constants, the status, and the items of an invocation.
//
// The accumulator has constants 8 and 9, the kernel constants from 10 on.
//
// Kernels first copy most push constants to variables: at every read of a push constant, llvmpipe loads it for one
// invocation after the other.
//
// Push constants have a bound segment's first element, and the size of a full segment: the tensor's last segment may be
// shorter, but no address is past the tensor's end.

// All kernels that bind fewer than four other buffers bind the status buffer; Vulkan guarantees four.

#ifndef NO_STATUS
layout(set = 0, binding = 0) buffer Status { uint status[]; };  // kompute.py reads it after each submission
#endif
const uint ENDED_EARLY = 2;  // the bit that is set if a driver ended a loop early

// clang-format off: a table
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 64;
layout(constant_id = 1) const uint NUMBER_KIND = 0;  // of the elements: UINT, INT or FLOAT
layout(constant_id = 2) const uint ITEM_STRIDE = 1;       // invocations that work on neighbouring items
#ifdef OUTPUTS_ONLY
const bool SEGMENTED = false, TO_PARTIALS = false;
#else
layout(constant_id = 3) const bool SEGMENTED = false;  // skip elements outside the bound segment
layout(constant_id = 4) const bool TO_PARTIALS = false;  // write partials for combine.comp, not the outputs
#endif
layout(constant_id = 5) const uint INDEX_WORDS = 1;  // words of an index; 0: write none (gradients.glsl reads some)
layout(constant_id = 6) const bool VALUES = false;   // write values, that is, elements
layout(constant_id = 7) const bool ALIGNED = false;  // vectors that load_vector() loads begin at multiples of 16 bytes
// clang-format on

const uint UINT = 0, INT = 1, FLOAT = 2;

// The items of an invocation are next, next + ITEM_STRIDE, next + 2 * ITEM_STRIDE, ... below `end`. In each iteration
// ITEM_STRIDE neighbouring invocations work on as many neighbouring items, from a separate range. The lengths of these
// ranges, in iterations, differ by 1 at most, and the longer ones are spread evenly, because one core works on
// neighbouring ranges. There are at most 2^16 ranges (limits.py), so that no product exceeds 2^32.

struct Items {
    uint next;
    uint end;
};

Items items_of(uint count)
{
    uint ranges = gl_NumWorkGroups.x * GROUP_SIZE / ITEM_STRIDE, range = gl_GlobalInvocationID.x / ITEM_STRIDE;
    uint iterations = (count + ITEM_STRIDE - 1) / ITEM_STRIDE, least = iterations / ranges;
    uint more = iterations - least * ranges;  // ranges of `least` + 1 iterations
    uint first = range * least + (range * more + ranges - 1) / ranges;
    uint end = (range + 1) * least + ((range + 1) * more + ranges - 1) / ranges;
    return Items(first * ITEM_STRIDE + gl_GlobalInvocationID.x % ITEM_STRIDE, min(count, end * ITEM_STRIDE));
}

// Whether a driver ended a loop of this invocation early. The outermost loop stopped at item `next`. A probe, a loop of
// two iterations, tests inner loops: llvmpipe counts the iterations of all loops together (limits.py), so if it ended a
// loop, it ends the probe after one iteration. `none` is 0, because dispatches have one workgroup along y; a compiler
// that knew it would replace the conditions after the loops with false.
bool ended_early(uint next, uint end)
{
    uint none = gl_NumWorkGroups.y - 1, iterations = 0;
    while (iterations < none + 2)
        ++iterations;
    return next + none < end || iterations < 2 * none + 2;
}

#ifndef NO_STATUS
// Tells the host if a driver ended a loop early. Each invocation ends with this.
void report(uint next, uint end)
{
    if (ended_early(next, end))
        atomicOr(status[0], ENDED_EARLY);
}
#endif
