#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_ARB_enhanced_layouts : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
// Writes each element of the source to the output that its index numbers; of elements with equal indices the last one
// stays. Invocations run in any order, so this takes four steps. `last` has a word `again`, and behind it, of each output,
// 1 + an element's number:
//
//   CLEAR           output[...] = 0
//   MARK            last[index[i]] = i + 1         where indices repeat any of the elements may stay
//   WRITES          output[index[i]] = source[i]   if last[index[i]] == i + 1; if it is less, this element is later:
//                   last[index[i]] = max(last[index[i]], i + 1 + LATE), again = 1
//   WRITES, AGAIN   output[index[i]] = source[i]   if again != 0 and last[index[i]] == i + 1 + LATE
//
// WRITES binds four buffers. So it has no status (kernel.glsl), and sets a bit of `again` where a driver ended a loop
// early. MARK with REPORTS, the fifth step, hands the bit on.
//
// Nothing is read of `last` but what MARK wrote. WRITES needs atomicMax() only where indices repeat: without MARK it took
// half of all the time on llvmpipe, and nearly all on SwiftShader.
//
// An item is four elements of the source; with CLEAR 16 bytes of outputs. Without PACKED, elements, or outputs, outside the
// bound segments are left out.

#ifdef WRITES
#define NO_STATUS
#define FIRST 0  // binding of the first buffer
#else
#define FIRST 1
#endif
#include "core/kernel.glsl"
#include "core/words.glsl"

layout(constant_id = 10) const bool PACKED = false;  // all tensors are: the address of an element is its number
#ifdef WRITES
layout(constant_id = 11) const bool AGAIN = false;
layout(constant_id = 12) const uint LATE = 0;  // the highest bit; 0 where numbers need it: all are written again then
#endif
#ifdef MARK
layout(constant_id = 11) const bool REPORTS = false;
#endif

#ifdef CLEAR
layout(set = 0, binding = FIRST) buffer Values { uint values[]; };
layout(set = 0, binding = FIRST) buffer ValueBlocks { uvec4 value_blocks[]; };
#else
layout(set = 0, binding = FIRST) readonly buffer Indices { uint indices[]; };
layout(set = 0, binding = FIRST) readonly buffer IndexBlocks { uvec4 index_blocks[]; };
layout(set = 0, binding = FIRST + 1) buffer LastElements { uint last[]; };
#ifdef WRITES
layout(set = 0, binding = FIRST + 2) readonly buffer Source { uint source[]; };
layout(set = 0, binding = FIRST + 2) readonly buffer SourceBlocks { uvec4 source_blocks[]; };
layout(set = 0, binding = FIRST + 3) buffer Values { uint values[]; };
#endif
#endif

// Address + base is the place in the buffer, in elements.
layout(push_constant) uniform Push {
    uint first_output;   // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint size[4];  // of source and indices; outputs have the first two sizes, and those of a plane of their own
#ifndef MARK
    uint plane[2];
    uint values_stride[4];
    uint values_first;  // the bound segment of the outputs: its first element, and the size of a full segment
    uint values_count;
    uint values_base;
#endif
#ifndef CLEAR
    uint first_element;  // the elements of this dispatch: the first, a multiple of 4, and how many
    uint element_count;
    uint last_base;
    uint indices_stride[4];
    uint indices_first;  // the bound segment of the indices, likewise
    uint indices_count;
    uint indices_base;
#endif
#ifdef WRITES
    uint source_stride[4];
    uint source_first;  // the bound segment of the source, likewise
    uint source_count;
    uint source_base;
#endif
} push;

uvec4 all_of(uint dimensions[4]) { return uvec4(dimensions[0], dimensions[1], dimensions[2], dimensions[3]); }

// The address of element `number`, in row-major order.
uint address_of(uint number, uvec4 size, uvec4 stride)
{
    if (PACKED)
        return number;
    uint address = 0;
    [[unroll]] for (int d = 3; d >= 0; --d) {
        uint next = number / size[d];
        address += (number - next * size[d]) * stride[d];
        number = next;
    }
    return address;
}

bool is_bound(uint address, uint first, uint count) { return PACKED || address - first < count; }

#ifdef CLEAR

void main()
{
    uint first_output = push.first_output, output_count = push.output_count, values_base = push.values_base;
    uint values_first = push.values_first, values_count = push.values_count;
    uvec4 size = uvec4(push.size[0], push.size[1], push.plane[0], push.plane[1]), stride = all_of(push.values_stride);
    Items mine = items_of((output_count - 1) / BLOCK + 1);
    uint item = mine.next;
    for (; item < mine.end; item += BUNDLE) {
        uint begin = item * BLOCK, count = min(output_count - begin, BLOCK);
        if (PACKED && count == BLOCK)
            value_blocks[(first_output + begin + values_base) / BLOCK] = uvec4(0);
        else
            for (uint i = 0; i < count; ++i) {
                uint address = address_of(first_output + begin + i, size, stride);
                if (is_bound(address, values_first, values_count))
                    STORE_ELEMENT(values, address + values_base, Bits(0))
            }
    }
    report(item, mine.end);
}

#else

// The indices of four elements from `number` on. Those behind the last element may have any value.
uvec4 indices_at(uint number, uint base)
{
    uint block = (number + base) * INDEX_WORDS / 4;
    if (INDEX_WORDS == 1)
        return index_blocks[block];
    uvec4 a = index_blocks[block], b = index_blocks[block + 1];
    return uvec4(given_index(a.x, a.y), given_index(a.z, a.w), given_index(b.x, b.y), given_index(b.z, b.w));
}

// The index that lies at an address.
uint index_at(uint address, uint base)
{
    uint word = (address + base) * INDEX_WORDS;
    return given_index(indices[word], indices[word + INDEX_WORDS - 1]);
}

#define RELAXED gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed

#ifdef WRITES
// Writes an output that was cleared. Other invocations may write its neighbours in the word at the same time. No two write
// the same output: the stores are atomic because llvmpipe is faster at these (2x2 on Mesa 22.3: 14.5 ms, not 18.4).
void write(uint at, Bits bits)
{
#if BITS == 64
    atomicStore(values[2 * at], bits.x, RELAXED);
    atomicStore(values[2 * at + 1], bits.y, RELAXED);
#elif BITS == 32
    atomicStore(values[at], bits, RELAXED);
#else
    if (AGAIN)
        STORE_ELEMENT(values, at, bits)
    else
        atomicOr(values[at / ELEMENTS_PER_WORD], bits << at % ELEMENTS_PER_WORD * BITS);
#endif
}
#endif

void main()
{
    uint first_output = push.first_output, output_count = push.output_count, last_base = push.last_base;
    uint first_element = push.first_element, end = first_element + push.element_count;
    uint indices_base = push.indices_base, again = first_output + last_base - 1;
    uvec4 size = all_of(push.size), indices_stride = all_of(push.indices_stride);
    uint indices_first = push.indices_first, indices_count = push.indices_count;
#ifdef WRITES
    bool missed = false;
    if (AGAIN && last[again] == 0)
        return;
    uint source_base = push.source_base, values_base = push.values_base;
    uvec4 source_stride = all_of(push.source_stride), values_stride = all_of(push.values_stride);
    uvec4 output_size = uvec4(size.xy, push.plane[0], push.plane[1]);
    uint source_first = push.source_first, source_count = push.source_count;
    uint values_first = push.values_first, values_count = push.values_count;
#else
    if (REPORTS) {
        if ((last[again] & ENDED_EARLY) != 0)
            atomicOr(status[0], ENDED_EARLY);
        return;
    }
    if (gl_GlobalInvocationID.x == 0)
        last[again] = 0;
#endif
    Items mine = items_of((push.element_count - 1) / 4 + 1);
    uint item = mine.next;
    for (; item < mine.end; item += BUNDLE) {
        uint number = first_element + item * 4;
        uvec4 index, elements;
        if (PACKED)
            index = indices_at(number, indices_base);
#ifdef WRITES
        if (PACKED && BITS == 32)
            elements = source_blocks[(number + source_base) / 4];
#endif
        // No `continue`: with one spirv-opt does not unroll, and SwiftShader never does.
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            uint at = index[k];
            if (!PACKED) {
                uint address = address_of(number + k, size, indices_stride);
                at = is_bound(address, indices_first, indices_count) ? index_at(address, indices_base) : NONE;
            }
            if (number + k < end && at - first_output < output_count) {
#ifdef MARK
                atomicStore(last[at + last_base], number + k + 1, RELAXED);
#else
                uint own = number + k + 1, found = atomicLoad(last[at + last_base], RELAXED);
                if (!AGAIN && (found & ~LATE) < own) {
                    atomicMax(last[at + last_base], own | LATE);
                    missed = true;
                }
                if (found == (AGAIN ? own | LATE : own)) {
                    uint from = address_of(number + k, size, source_stride);
                    uint to = address_of(at, output_size, values_stride);
                    if (is_bound(from, source_first, source_count) && is_bound(to, values_first, values_count)) {
#if BITS == 32
                        write(to + values_base, PACKED ? elements[k] : source[from + source_base]);
#else
                        write(to + values_base, LOAD(source, from + source_base));
#endif
                    }
                }
#endif
            }
        }
    }
#ifdef WRITES
    uint flags = (missed ? 1 : 0) | (ended_early(item, mine.end) ? ENDED_EARLY : 0);
    if (flags != 0)
        atomicOr(last[again], flags);
#else
    report(item, mine.end);
#endif
}

#endif
