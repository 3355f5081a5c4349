#version 430
// Combines the partials of every output, and writes an output tensor of any layout, or packed values and indices. If an
// output has too many partials for one invocation, dispatches with TO_PARTIALS come first: they combine each split of
// an output's partials to one partial result. THREADS invocations share an output, or one split of its partials. The
// partials of an output are `output_count` partials apart.

#define THREAD_STRIDE AT_ONCE
#include "core/kernel.glsl"
#include "accumulator.glsl"
#define COOPERATING
#include "core/cooperating.glsl"

// Load IN_FLIGHT partials at a time. Only on GPUs, because llvmpipe (Mesa 25) compiles 40 basic blocks for each word
// that is loaded.
layout(constant_id = 12) const bool LOADS_TOGETHER = false;

// As in axes.glsl.
layout(set = 0, binding = 2) buffer Target { uint target[]; };
#ifdef HAS_INDEX
layout(set = 0, binding = 3) buffer Values { uint values[]; };
#else
#define values target
#define values_base target_base
#endif

layout(push_constant) uniform Push {
    uint partial_count;
    uint first_output;      // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint partials_base;     // in words
    uint target_first;      // the bound segment of the output: its first element, and the size of a full segment
    uint target_count;
    uint target_base;       // address + target_base is the offset in the buffer, in elements
#ifdef HAS_INDEX
    uint values_base;       // the same for values
#endif
    uint size[8];           // of the output tensor
    uint stride[8];         // in elements
    uint rank;
    uint index_step;        // the indices of output i begin with i * index_step
    uint split_size;        // TO_PARTIALS: partials of a split
    uint word;              // value_of() of exact.glsl computes this word of a state, with RESULT == WORD
} push;

// Offset of state `number` of output `i`, in words.
uint partial_at(uint i, uint number) { return (number * push.output_count + i) * PARTIAL_WORDS + push.partials_base; }

// Combines this thread's share of partials begin to end - 1 of output i.
State combined(uint i, uint begin, uint end)
{
    State state = identity(), next[IN_FLIGHT];
    uint number = begin + thread();
    for (; LOADS_TOGETHER && number + (IN_FLIGHT - 1) * THREADS < end; number += IN_FLIGHT * THREADS) {
        [[unroll]] for (uint k = 0; k < IN_FLIGHT; ++k) {
            uint at = partial_at(i, number + k * THREADS);
            LOAD_STATE(next[k], source, at)
        }
        [[unroll]] for (uint k = 0; k < IN_FLIGHT; ++k)
            state = combine(state, next[k]);
    }
    for (; number < end; number += THREADS) {
        uint at = partial_at(i, number);
        LOAD_STATE(next[0], source, at)
        state = combine(state, next[0]);
    }
    return state;
}

void main()
{
    uint output_count = push.output_count, partial_count = push.partial_count;
    uint split_size = TO_PARTIALS ? push.split_size : partial_count;
    uint item_count = output_count * (TO_PARTIALS ? (partial_count - 1) / split_size + 1 : 1);
    Items mine = shared_items_of(item_count);
    uint next = mine.next;
    for (; next < mine.end; next += shared_item_stride()) {
        uint item = min(next, item_count - 1);
        uint split = TO_PARTIALS ? item / output_count : 0, i = item - split * output_count;
        uint number = push.first_output + i, address = 0;
        uint first_index = number * push.index_step;
        for (uint d = push.rank; d-- > 0;) {
            address += number % push.size[d] * push.stride[d];
            number /= push.size[d];
        }
        bool is_written = next < item_count && (TO_PARTIALS || address - push.target_first < push.target_count);
        uint begin = split * split_size;
        uint end = is_written ? begin + min(partial_count - begin, split_size) : begin;
        State state = of_all_threads(combined(i, begin, end));
        uint count_or_word = NEEDS_COUNT ? source[partial_at(i, begin) + STATE_WORDS] : push.word;
        if (is_written && thread() == 0) {
            if (TO_PARTIALS)
                STORE_PARTIAL(target, item * PARTIAL_WORDS + push.target_base, state, count_or_word)
            else {
                if (INDEX_WORDS != 0)
                    STORE_INDEX(target, address + push.target_base, first_index + index_of(state))
                if (VALUES)
                    STORE_ELEMENT(values, address + push.values_base, value_of(state, count_or_word))
            }
        }
    }
    report(next, mine.end);
}
