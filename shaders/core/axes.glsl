// Shared by the kernels over axes: bindings, push constants, addresses, and writing an output.

#include "core/kernel.glsl"
#include "accumulator.glsl"

// Whether one stride leads from each output to the next; in kernels of columns, from each row of outputs to the next.
layout(constant_id = 10) const bool FLAT = false;

// `target` receives partials, or indices, or the values of accumulators without indices. With HAS_INDEX, `values`
// receives values. If only one tensor is written, it has both bindings.
layout(set = 0, binding = 2) buffer Target { uint target[]; };
#ifdef HAS_INDEX
layout(set = 0, binding = 3) buffer Values { uint values[]; };
#else
#define values target
#define values_base target_base
#endif

layout(push_constant) uniform Push {
    uint size[8];           // the kept dimensions, outermost first, then the reduced ones
    uint stride[8];         // in elements
    uint kept_rank;
    uint reduced_rank;
    uint reduced_begin;     // this dispatch reduces elements reduced_begin to reduced_end - 1 of each output
    uint reduced_end;
    uint split_size;        // number of elements of a split; one invocation reduces them, or several that cooperate
    uint first_output;      // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint element_count;     // elements of an output, in all dispatches together
    uint source_first;      // the bound segment of the input: its first element, and the size of a full segment
    uint source_count;
    uint source_base;       // address + source_base is the offset in the buffer, in elements
    uint target_base;       // an output's number + target_base is its offset; with TO_PARTIALS: in words
#ifdef HAS_INDEX
    uint values_base;       // the same for values
#endif
} push;

// The push constants that every output needs, each read once (kernel.glsl).
uint kept_rank = push.kept_rank, outer_stride = kept_rank == 0 ? 0 : push.stride[0];
uint reduced_begin = push.reduced_begin, reduced_end = push.reduced_end, split_size = push.split_size;
uint split_count = TO_PARTIALS ? (reduced_end - reduced_begin - 1) / split_size + 1 : 1;
uint first_output = push.first_output, output_count = push.output_count;
uint source_first = push.source_first, source_count = push.source_count, source_base = push.source_base;
uint target_base = push.target_base;
#ifdef HAS_INDEX
uint values_base = push.values_base;
#endif

// The address of element `number`, in row-major order, of dimensions begin to end - 1. Dimension `begin` has the stride
// `outermost_stride`.
uint address_of(uint number, uint begin, uint end, uint outermost_stride)
{
    uint address = 0;
    for (uint i = end - 1; int(i) > int(begin); --i) {  // signed, because `end` may be 0
        uint size = push.size[i], next = number / size;
        address += (number - next * size) * push.stride[i];
        number = next;
    }
    return address + number * outermost_stride;
}

// The address of the first element of output `number`; in columns.comp `number` is that of a row of outputs.
uint address_of_kept(uint number, uint rank)
{
    // FLAT avoids divisions: llvmpipe divides for one invocation after the other, even if the loop has no iterations.
    return FLAT ? number * outer_stride : address_of(number, 0, rank, outer_stride);
}

// Split number `split` has the reduced elements begin to end - 1.
void split_range(uint split, out uint begin, out uint end)
{
    begin = reduced_begin + split * split_size;
    end = begin + min(reduced_end - begin, split_size);
}

// Split `number` of output `i` of the dispatch: elements begin to end - 1. Element 0 of the output is at `address`, in
// the buffer.
struct Split {
    uint number, i, address, begin, end;
};

// Items are numbered split by split: item = number * output_count + i.
Split split_of(uint item)
{
    Split split;
    split.number = TO_PARTIALS ? item / output_count : 0;
    split.i = item - split.number * output_count;
    split_range(split.number, split.begin, split.end);
    split.address = address_of_kept(first_output + split.i, kept_rank) + source_base;
    return split;
}

#ifndef State  // exact_axes.comp defines it, and has functions of its own for these

// If bits are written, loads those of the element that a selection's state has chosen, which is at `address`.
void reload_bits(inout State state, uint address)
{
#ifdef HAS_INDEX
    state.bits = TO_PARTIALS || VALUES ? LOAD(source, address) : Bits(0);
#endif
}

// Accumulates an element. If `is_element` is false, it was accumulated before, and is skipped unless REPEATABLE.
void accumulate_element(inout State state, Bits bits, uint index, bool is_element)
{
    Operand operand = operand_of(bits);
    if (!REPEATABLE)
        operand = or_neutral(operand, is_element);
    accumulate(state, operand, index);
}

// Writes output number `i` of the dispatch, or the state of one split of its elements.
void write(uint i, uint split, State state)
{
    uint number = first_output + i;
    if (TO_PARTIALS)
        STORE_PARTIAL(target, (split * output_count + i) * PARTIAL_WORDS + target_base, state, push.element_count)
    else {
        if (INDEX_WORDS != 0)
            STORE_INDEX(target, number + target_base, index_of(state))
        if (VALUES)
            STORE_ELEMENT(values, number + values_base, value_of(state, push.element_count))
    }
}

#endif
