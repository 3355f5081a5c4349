// Shared by the kernels over axes: bindings, push constants, addresses of outputs, and how an output is written.

#include "core/source.glsl"
#include "accumulator.glsl"

layout(constant_id = 10) const bool FLAT = false;  // outputs (columns.comp: rows of outputs) are all one stride apart

// States, indices, or of accumulators without an index values. Where there is one output, both bindings have it.
layout(set = 0, binding = 2) buffer Target { uint target[]; };
#ifdef HAS_INDEX
layout(set = 0, binding = 3) buffer Values { uint values[]; };
#else
#define values target
#endif

layout(push_constant) uniform Push {
    uint size[8];           // the kept dimensions, outermost first, then the reduced ones
    uint stride[8];         // in elements
    uint kept_rank;
    uint reduced_rank;
    uint reduced_begin;     // this dispatch reduces elements reduced_begin to reduced_end - 1 of each output
    uint reduced_end;
    uint split_size;        // elements of a split; one invocation, or its lanes, reduce one split
    uint first_output;      // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint element_count;     // elements of an output, in all dispatches together
    uint source_first;      // the bound segment of the input: its first element, and the size of a full segment
    uint source_count;
    uint source_base;       // address + source_base is the place in the buffer, in elements
    uint target_base;       // number of an output + target_base is its place; TO_STATES: where they begin, in words
#ifdef HAS_INDEX
    uint values_base;       // the same for values
#endif
} push;

// The push constants that every output needs, each read once (kernel.glsl).
uint kept_rank, outer_stride, reduced_begin, reduced_end, split_size, split_count, first_output, output_count;
uint source_first, source_count, source_base, target_base, values_base;

void read_push()
{
    kept_rank = push.kept_rank;
    outer_stride = kept_rank == 0 ? 0 : push.stride[0];
    reduced_begin = push.reduced_begin;
    reduced_end = push.reduced_end;
    split_size = push.split_size;
    split_count = TO_STATES ? (reduced_end - reduced_begin - 1) / split_size + 1 : 1;
    first_output = push.first_output;
    output_count = push.output_count;
    source_first = push.source_first;
    source_count = push.source_count;
    source_base = push.source_base;
    target_base = push.target_base;
#ifdef HAS_INDEX
    values_base = push.values_base;
#else
    values_base = target_base;
#endif
}

// The address of element `number`, in row-major order, of dimensions begin to end - 1. Dimension `begin` has the stride
// `outermost_stride`.
uint address_of(uint number, uint begin, uint end, uint outermost_stride)
{
    uint address = 0;
    for (uint i = end - 1; int(i) > int(begin); --i) {
        uint size = push.size[i], next = number / size;
        address += (number - next * size) * push.stride[i];
        number = next;
    }
    return address + number * outermost_stride;
}

// The address of the first element of output `number`, or for columns.comp of row `number` of outputs.
uint address_of_kept(uint number, uint rank)
{
    // FLAT avoids divisions: llvmpipe divides for one invocation after the other, even in a loop of no iterations.
    return FLAT ? number * outer_stride : address_of(number, 0, rank, outer_stride);
}

// Split number `split` has the reduced elements begin to end - 1.
void split_range(uint split, out uint begin, out uint end)
{
    begin = reduced_begin + split * split_size;
    end = begin + min(reduced_end - begin, split_size);
}

// Whether the winner's bits are written, and so loaded again.
const bool RELOADED = TO_STATES || VALUES;

// Takes an element, if it is `taken`.
void take_element(inout State state, Bits bits, uint index, bool taken)
{
    Operand operand = operand_of(bits);
    if (!REPEATABLE)
        operand = or_neutral(operand, taken);
    accumulate(state, operand, index);
}

#ifdef HAS_BIN
#define Stored Long
// The sum of `count` elements that are `step_size` apart, if the bin has all but those that it missed.
Long whole(Bin bin, uint address, uint count, uint step_size)
{
    Long sum = long_of(bin);
    for (uint i = 0; bin.missed != 0 && i < count; ++i)
        add_missed(sum, bin, LOAD(source, address + i * step_size));
    return sum;
}
#else
#define Stored State
#define whole(state, address, count, step_size) (state)
#define has_missed(state) false
#endif

// Writes output number `i` of the dispatch, or the state of one split of its elements.
void write(uint i, uint split, Stored state)
{
    uint number = first_output + i;
    if (TO_STATES)
        STORE_WITH_COUNT(target, (split * output_count + i) * STORED_WORDS + target_base, state, push.element_count)
    else {
        if (INDEX_WORDS != 0)
            STORE_INDEX(target, number + target_base, index_of(state))
        if (VALUES)
            STORE_ELEMENT(values, number + values_base, value_of(state, push.element_count))
    }
}

#ifdef HAS_BIN
// As if the bin has missed none.
void write(uint i, uint split, Bin bin)
{
    if (TO_STATES)
        write(i, split, long_of(bin));
    else
        STORE_ELEMENT(target, first_output + i + target_base, value_of(bin, push.element_count))
}
#endif
