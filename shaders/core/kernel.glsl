// Shared by all kernels: constants, elements and the words that hold them, the input, the items of an invocation, and
// the status.

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

// Elements

// Bits holds the BITS bits of an element; for 64 bits, a low and a high word. LOAD_BITS and STORE_BITS move an element
// that has words of its own, from word `at` on.
#if BITS == 64
#define Bits uvec2
const uint WORDS_PER_ELEMENT = 2, ELEMENTS_PER_WORD = 1;
#define LOAD_BITS(words, at) uvec2((words)[at], (words)[(at) + 1])
#define STORE_BITS(words, at, bits) (words)[at] = (bits).x, (words)[(at) + 1] = (bits).y;
#else
#define Bits uint
const uint WORDS_PER_ELEMENT = 1, ELEMENTS_PER_WORD = 32 / BITS, MASK = 0xFFFFFFFFu >> (32 - BITS);
#define LOAD_BITS(words, at) (words)[at]
#define STORE_BITS(words, at, bits) (words)[at] = bits;
#endif

// LOAD is element `at` of an array of words. STORE_ELEMENT writes it, while other invocations may write its neighbours
// in the word.
#if BITS >= 32
#define LOAD(words, at) LOAD_BITS(words, (WORDS_PER_ELEMENT) * (at))
#define STORE_ELEMENT(words, at, bits) STORE_BITS(words, (WORDS_PER_ELEMENT) * (at), bits)
#else
#define LOAD(words, at) (((words)[(at) / ELEMENTS_PER_WORD] >> ((at) % ELEMENTS_PER_WORD * BITS)) & MASK)
#define STORE_ELEMENT(words, at, bits) \
    { \
        uint shift = (at) % ELEMENTS_PER_WORD * BITS; \
        atomicAnd((words)[(at) / ELEMENTS_PER_WORD], ~(MASK << shift)); \
        atomicOr((words)[(at) / ELEMENTS_PER_WORD], (bits) << shift); \
    }
#endif

// Element i of a vector: 16 bytes of elements, the widest load.
const uint VECTOR_SIZE = 128 / BITS;
#if BITS == 64
Bits element_of(uvec4 vector, uint i) { return i == 0 ? vector.xy : vector.zw; }
#else
Bits element_of(uvec4 vector, uint i) { return LOAD(vector, i); }
#endif

// Indices

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

// The input

#ifndef SOURCE
#define SOURCE 1  // its binding
#endif
layout(set = 0, binding = SOURCE) readonly buffer Source { uint source[]; };
layout(set = 0, binding = SOURCE) readonly buffer SourceVectors { uvec4 source_vectors[]; };

// Kernels copy push constants to variables, because llvmpipe loads a push constant at every read, for one invocation
// after the other. source_first is the bound segment's first element, source_count the size of a full segment: the
// tensor's last segment may be shorter, but no address is past the tensor's end. Address + source_base is the offset in
// the buffer.

// The vector that begins with element `at` of the buffer, a multiple of VECTOR_SIZE.
uvec4 aligned_vector(uint at) { return source_vectors[at / VECTOR_SIZE]; }

// The vector that begins with element `at` of the buffer. Reads only words that hold its elements.
uvec4 load_vector(uint at)
{
    if (ALIGNED)
        return aligned_vector(at);
#if BITS >= 32
    at *= WORDS_PER_ELEMENT;
    return uvec4(source[at], source[at + 1], source[at + 2], source[at + 3]);
#else
    uint word = at / ELEMENTS_PER_WORD, shift = at % ELEMENTS_PER_WORD * BITS;
    uvec4 low = uvec4(source[word], source[word + 1], source[word + 2], source[word + 3]);
    uint last = source[(at + VECTOR_SIZE - 1) / ELEMENTS_PER_WORD];
    return shift == 0 ? low : (low >> shift) | (uvec4(low.yzw, last) << (32 - shift));
#endif
}

// Items

// The items of an invocation are next, next + ITEM_STRIDE, next + 2 * ITEM_STRIDE, ... below `end`. In each iteration
// ITEM_STRIDE neighbouring invocations work on as many neighbouring items, from a separate range. The lengths of these
// ranges, in iterations, differ by 1 at most, and the longer ones are spread evenly, because one core works on
// neighbouring ranges. There are at most 2^16 ranges (limits.py), so that no product exceeds 2^32:
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

// Status

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
const uint ENDED_EARLY = 2;  // the bit of the status

// kompute.py reads the status after each submission. A kernel that binds four other buffers has NO_STATUS: Vulkan
// guarantees four.
#ifndef NO_STATUS
layout(set = 0, binding = 0) buffer Status { uint status[]; };

// Tells the host if a driver ended a loop early. Each invocation ends with this.
void report(uint next, uint end)
{
    if (ended_early(next, end))
        atomicOr(status[0], ENDED_EARLY);
}
#endif
