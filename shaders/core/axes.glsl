// What the kernels over axes share: bindings, push constants, and which output an invocation works on.

#include "core/constants.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/blocks.glsl"
#include "core/stores.glsl"
#include "accumulator.glsl"

layout(constant_id = 10) const bool FLAT = false;  // outputs (columns.comp: rows of them) begin at one stride

layout(set = 0, binding = 1) buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint size[8];           // the kept dimensions, outermost first, then the reduced ones
    uint stride[8];         // in elements
    uint kept_rank;
    uint reduced_rank;
    uint reduced_begin;     // the reduced elements that this dispatch looks at, ...
    uint reduced_end;
    uint split_size;        // ... and how many of them an invocation
    uint first_output;      // the outputs that it computes
    uint output_count;
    uint element_count;     // of an output, in all dispatches
    uint source_first;      // the bound segment of the input: its first element, and how many it has
    uint source_count;
    uint source_base;       // what to add to an address for its place in the buffer, in elements
    uint target_base;       // what to add to an output's number: in indices, or for records in words
} push;

// Those that are needed for every output. read_push() reads them once: wherever a push constant is read, llvmpipe loads
// it for one invocation after the other.
uint kept_rank, outer_stride, reduced_begin, reduced_end, split_size, split_count, first_output, output_count;
uint source_first, source_count, source_base, target_base;

void read_push()
{
    kept_rank = push.kept_rank;
    outer_stride = kept_rank == 0 ? 0 : push.stride[0];
    reduced_begin = push.reduced_begin;
    reduced_end = push.reduced_end;
    split_size = push.split_size;
    split_count = RECORDS ? (reduced_end - reduced_begin - 1) / split_size + 1 : 1;
    first_output = push.first_output;
    output_count = push.output_count;
    source_first = push.source_first;
    source_count = push.source_count;
    source_base = push.source_base;
    target_base = push.target_base;
}

// The address of element `number`, in row-major order, of dimensions begin to end - 1. The outermost has this stride.
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

// The address of the first element of output `number`; of row `number` of outputs, for columns.comp.
uint address_of_kept(uint number, uint rank)
{
    // FLAT: llvmpipe divides for one invocation after the other, even in loops that do not run.
    return FLAT ? number * outer_stride : address_of(number, 0, rank, outer_stride);
}

// The reduced elements of split number `split`.
void split_range(uint split, out uint begin, out uint end)
{
    begin = reduced_begin + split * split_size;
    end = begin + min(reduced_end - begin, split_size);
}

// Whether the bits of a winner are written.
const bool RELOADED = RECORDS || VALUES;

// Writes an output, or the record of a split of its elements; `i` counts the dispatch's outputs.
void write(uint i, uint split, State state)
{
    uint at = first_output + i + target_base;
    if (RECORDS)
        STORE_STATE(target, (split * output_count + i) * STATE_WORDS + target_base, state)
    else if (VALUES)
        STORE_ELEMENT(target, at, value_of(state, push.element_count))
    else
        STORE_INDEX(target, at, index_of(state))
}
