// Shared by the kernels that scatter: output[index[i]] = source[i]; the last of elements with equal indices wins.
// Invocations run in any order, so this needs four steps. The buffer `marks` has a word `again`, then a mark for each
// output: 1 + an element's number.
//
//   scatter_clear    output[...] = 0
//   scatter_mark     marks[index[i]] = i + 1        if indices repeat, any of their elements may win
//   scatter          output[index[i]] = source[i]   if marks[index[i]] == i + 1; if it is less, this element is later:
//                    marks[index[i]] = max(marks[index[i]], i + 1 + LATE), again = 1
//   scatter, AGAIN   output[index[i]] = source[i]   if again != 0 and marks[index[i]] == i + 1 + LATE
//
// `scatter` binds four buffers, so it has no status (kernel.glsl), and sets a bit of `again` if a driver ended a loop
// early. scatter_mark with REPORTS, the fifth step, copies the bit to the status.
//
// For elements of 8 or 16 bits, marks need more memory than all tensors. If that is too much, only a part of the
// outputs has marks at a time, and the steps above run for one part after the other. The two steps below then come
// first. If they leave again == 0, no indices repeat, or their elements are equal: with CHECKED the steps above then do
// nothing.
//
//   scatter, ALL         output[index[i]] = source[i]   if indices repeat, any bits of their elements may win
//   scatter, COMPARES    again = 1                      if output[index[i]] != source[i]
//
// A mark is read only where scatter_mark wrote it. `scatter` needs atomicMax() only if indices repeat: without
// scatter_mark, atomicMax() takes half of all the time on llvmpipe, and nearly all on SwiftShader.
//
// Without PACKED, elements and outputs outside the bound segments are skipped.

#include "core/kernel.glsl"

layout(constant_id = 10) const bool PACKED = false;  // all tensors are packed: an element's address is its number

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

#ifdef INDICES  // their binding; scatter_clear has none

layout(set = 0, binding = INDICES) readonly buffer Indices { uint indices[]; };
layout(set = 0, binding = INDICES) readonly buffer IndexVectors { uvec4 index_vectors[]; };
layout(set = 0, binding = INDICES + 1) buffer Marks { uint marks[]; };
#define RELAXED gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed

// The push constants that every element needs, each read once (kernel.glsl).
uint indices_first = push.indices_first, indices_count = push.indices_count, indices_base = push.indices_base;
uvec4 size = all_of(push.size), indices_stride = all_of(push.indices_stride);

// The index at a word.
uint index_at(uint word) { return index_of_words(indices[word], indices[word + INDEX_WORDS - 1]); }

// The indices of elements `number` to `number` + 3. Those past the last element may have any value.
uvec4 indices_of(uint number)
{
    uvec4 index;
    uint vector = (number + indices_base) * INDEX_WORDS / 4;
    if (PACKED && INDEX_WORDS == 1)
        index = index_vectors[vector];
    else if (PACKED) {
        uvec4 a = index_vectors[vector], b = index_vectors[vector + 1];
        index = uvec4(index_of_words(a.x, a.y), index_of_words(a.z, a.w), index_of_words(b.x, b.y),
                      index_of_words(b.z, b.w));
    } else {
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            uint address = address_of(number + k, size, indices_stride);
            bool bound = is_bound(address, indices_first, indices_count);
            index[k] = bound ? index_at((address + indices_base) * INDEX_WORDS) : NONE;
        }
    }
    return index;
}

#endif
