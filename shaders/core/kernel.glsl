// Shared by all kernels: constants, the input, elements and indices in memory, items, and the status.

// clang-format off: a table
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 64;
layout(constant_id = 1) const uint NUMBER_KIND = 0;      // of the elements: UINT, INT or FLOAT
layout(constant_id = 2) const uint ITEM_STRIDE = 1;      // invocations that work on neighbouring items
#ifdef OUTPUTS_ONLY
const bool SEGMENTED = false, TO_PARTIALS = false;
#else
layout(constant_id = 3) const bool SEGMENTED = false;    // skip elements outside the bound segment
layout(constant_id = 4) const bool TO_PARTIALS = false;  // write partials for combine.comp, not the outputs
#endif
layout(constant_id = 5) const uint INDEX_WORDS = 1;      // words of an index; 0: write none (gradients.glsl reads some)
layout(constant_id = 6) const bool VALUES = false;       // write values, that is, elements
layout(constant_id = 7) const bool ALIGNED = false;      // load_vector() loads vectors at multiples of 16 bytes
// 8 and 9 are the accumulator's; those from 10 on the kernel's.
// clang-format on

const uint UINT = 0, INT = 1, FLOAT = 2;

// The input, of which a dispatch binds one segment. The bound segment begins with element source_first; a full segment
// has source_count. The tensor's last one may be shorter, but no address is past its end. Address + source_base is the
// offset in the buffer. Kernels copy these and other push constants: llvmpipe loads one at every read, for one
// invocation after the other.
#ifndef SOURCE
#define SOURCE 1  // its binding
#endif
layout(set = 0, binding = SOURCE) readonly buffer Source { uint source[]; };
layout(set = 0, binding = SOURCE) readonly buffer SourceVectors { uvec4 source_vectors[]; };

// Elements of BITS bits. build.py includes the file for their width, with
//
//   Bits, TOP_BIT, EVERY_BIT  the bits of an element; the highest of them; all of them
//   LOAD, STORE_ELEMENT       element `at` of an array of words; other invocations may write its neighbours in a word
//   LOAD_BITS, STORE_BITS     an element that has words of its own, from word `at` on
//   PUT                       sets element `i` of a local array of words; the first of a word clears the others
//   STORE_WORD                writes a word (two for 64 bits) of `count` elements that PUT set, the first as element
//                             `at` of the buffer; later ones of the word keep their bits
//   VECTOR_SIZE, element_of   a vector: 16 bytes of elements, the widest load; element i of one
//   unaligned_vector(at)      the vector that begins with element `at` of the input; reads only words of its elements
#include "core/elements_WIDTH.glsl"

uvec4 aligned_vector(uint at) { return source_vectors[at / VECTOR_SIZE]; }  // `at` is a multiple of VECTOR_SIZE
uvec4 load_vector(uint at) { return ALIGNED ? aligned_vector(at) : unaligned_vector(at); }

const uint NONE = 0xFFFFFFFFu;  // no element has this index: a tensor has at most 2^32 - 1 elements

// An index of the input, of one word or two; NONE if it is 2^32 or more.
uint index_of_words(uint low, uint high) { return INDEX_WORDS != 2 || high == 0 ? low : NONE; }

// Writes number `at` of an array of indices.
#define STORE_INDEX(words, at, index) \
    if (INDEX_WORDS == 2) { \
        (words)[2 * (at)] = index; \
        (words)[2 * (at) + 1] = 0; \
    } else \
        (words)[at] = index;

// The items of an invocation are next, next + ITEM_STRIDE, next + 2 * ITEM_STRIDE, ... below `end`. In each iteration
// ITEM_STRIDE neighbouring invocations work on as many neighbouring items, from a range of their own. Some ranges are
// longer by one iteration: these are spread evenly, because one core works on neighbouring ranges. There are at most
// 2^16 ranges (limits.py), so that no product exceeds 2^32:
//
//   10 items, ITEM_STRIDE 1, 4 ranges     [ 0 1 2 ][ 3 4 ][ 5 6 7 ][ 8 9 ]     least = 2, more = 2
struct Items {
    uint next, end;
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

// Whether a driver ended a loop of this invocation early. The outermost loop stopped at item `next`. llvmpipe counts
// the iterations of all loops together (limits.py): if it ended an inner loop, it ends this one after an iteration.
// `none` is 0, because dispatches have one workgroup along y; a compiler that knew it would drop the conditions.
bool ended_early(uint next, uint end)
{
    uint none = gl_NumWorkGroups.y - 1, iterations = 0;
    while (iterations < none + 2)
        ++iterations;
    return next + none < end || iterations < 2 * none + 2;
}
const uint ENDED_EARLY = 2;  // the bit of the status

// kompute.py reads the status after each submission. scatter.comp has none, because it binds four other buffers, and
// Vulkan guarantees no more.
layout(set = 0, binding = 0) buffer Status { uint status[]; };

// Tells the host if a driver ended a loop early. Each invocation ends with this.
void report(uint next, uint end)
{
    if (ended_early(next, end))
        atomicOr(status[0], ENDED_EARLY);
}
