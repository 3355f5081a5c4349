#version 430
#extension GL_ARB_enhanced_layouts : require
#extension GL_KHR_memory_scope_semantics : require
// The third step of core/scattered.glsl: writes each element to its output, if the output's mark is the element's
// number. WRITE selects one of the other steps that write. An item is four elements of the source.

// An address in a tensor plus the tensor's base is the offset in its buffer, in elements.
layout(push_constant) uniform Push {
    uint first_output;   // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint size[4];        // of source and indices
    uint first_element;  // the elements of this dispatch: the first, a multiple of 4, and how many
    uint element_count;
    uint marks_base;     // output number + marks_base is the offset of its mark
    uint indices_stride[4];
    uint indices_first;  // the bound segment of the indices: its first element, and the size of a full segment
    uint indices_count;
    uint indices_base;
    uint source_stride[4];
    uint source_first;   // the bound segment of the source, likewise
    uint source_count;
    uint source_base;
    uint plane[2];       // sizes of the outputs' planes
    uint values_stride[4];
    uint values_first;   // the bound segment of the outputs, likewise
    uint values_count;
    uint values_base;
} push;

#define INDICES 0
#define SOURCE 2
#include "core/scattered.glsl"

layout(constant_id = 11) const uint WRITE = 0;  // which elements are written: Write of kernels/scatter.py
// The bit that is set in a mark if a later element replaced the marked one: the highest bit, or 0 if element numbers
// need all bits. If it is 0, AGAIN writes every marked element once more.
layout(constant_id = 12) const uint LATE = 0;
layout(constant_id = 13) const bool CHECKED = false;  // do nothing unless the word `again` (scattered.glsl) is set

// The other steps that scattered.glsl lists.
const bool AGAIN = WRITE == 1, ALL = WRITE == 2, COMPARES = WRITE == 3;

layout(set = 0, binding = 3) buffer Values { uint values[]; };

// The push constants that every element needs, each read once (kernel.glsl).
uint source_first = push.source_first, source_count = push.source_count, source_base = push.source_base;
uint values_first = push.values_first, values_count = push.values_count, values_base = push.values_base;
uint marks_base = push.marks_base;
uvec4 source_stride = all_of(push.source_stride), values_stride = all_of(push.values_stride);
uvec4 output_size = uvec4(size.xy, push.plane[0], push.plane[1]);

// Writes an output. Other invocations may write its neighbours in the word at the same time. Only with ALL may two
// write the same output; the stores are atomic because llvmpipe is faster at these (pooling windows of 2 x 2 on Mesa
// 22.3: 14.5 ms, not 18.4).
void write(uint at, Bits bits)
{
#if BITS == 64
    atomicStore(values[2 * at], bits.x, RELAXED);
    atomicStore(values[2 * at + 1], bits.y, RELAXED);
#elif BITS == 32
    atomicStore(values[at], bits, RELAXED);
#else
    if (AGAIN || CHECKED)
        STORE_ELEMENT(values, at, bits)
    else  // scatter_clear.comp has set all bits of the output to 0
        atomicOr(values[at / ELEMENTS_PER_WORD], bits << at % ELEMENTS_PER_WORD * BITS);
#endif
}

// Writes element `number` to output `index`, if the mark there is the element's. Returns whether the element is later
// than the marked one; with COMPARES, whether the output differs. `packed` is the element, if PACKED and of 32 bits.
bool write_marked(uint number, uint index, uint packed)
{
    uint mark = number + 1, marked = mark;
    if (!ALL && !COMPARES)
        marked = atomicLoad(marks[index + marks_base], RELAXED);
    bool again = !AGAIN && (marked & ~LATE) < mark;
    if (again)
        atomicMax(marks[index + marks_base], mark | LATE);
    if (marked == (AGAIN ? mark | LATE : mark)) {
        uint from = address_of(number, size, source_stride), to = address_of(index, output_size, values_stride);
        if (is_bound(from, source_first, source_count) && is_bound(to, values_first, values_count)) {
#if BITS == 32
            Bits element = PACKED ? packed : source[from + source_base];
#else
            Bits element = LOAD(source, from + source_base);
#endif
            if (COMPARES)
                again = LOAD(values, to + values_base) != element;
            else
                write(to + values_base, element);
        }
    }
    return again;
}

void main()
{
    uint first_output = push.first_output, output_count = push.output_count, again_at = first_output + marks_base - 1;
    uint first_element = push.first_element, end = first_element + push.element_count;
    if ((AGAIN || CHECKED) && marks[again_at] == 0)
        return;
    Items mine = items_of((push.element_count - 1) / 4 + 1);
    uint item = mine.next;
    bool any_again = false;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint number = first_element + item * 4;
        uvec4 index = indices_of(number), elements;
        if (PACKED && BITS == 32)
            elements = source_vectors[(number + source_base) / 4];
        // No `continue`, because spirv-opt unrolls no loop that has one, and SwiftShader unrolls none.
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (number + k < end && index[k] - first_output < output_count)
                any_again = write_marked(number + k, index[k], elements[k]) || any_again;
        }
    }
    uint flags = (any_again ? 1 : 0) | (ended_early(item, mine.end) ? ENDED_EARLY : 0);
    if (flags != 0)
        atomicOr(marks[again_at], flags);
}
