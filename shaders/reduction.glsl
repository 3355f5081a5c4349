// What the kernels of ARGMAX and ARGMIN share: bindings, push constants, and which output an invocation works on.

#include "constants.glsl"
#include "items.glsl"
#include "values.glsl"
#include "best.glsl"
#include "blocks.glsl"

layout(set = 0, binding = 1) writeonly buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint size[8];           // the kept dimensions, outermost first, then the reduced ones
    uint stride[8];         // in elements
    uint kept_rank;
    uint reduced_rank;
    uint reduced_begin;     // the reduced elements that this dispatch looks at, ...
    uint reduced_end;
    uint stretch;           // ... and how many of them an invocation
    uint first_output;      // the outputs that it computes
    uint output_count;
    uint source_first;      // the bound segment of the input: its first element, and how many it has
    uint source_count;
    uint source_base;       // what to add to an address for its place in the buffer, in elements
    uint target_base;       // what to add to an output's number: in indices, or for records in words
} push;

// What is read of them for every output, read once by read_push(): llvmpipe gathers a push constant lane by lane wherever
// it is read.
uint kept_rank, outer_stride, reduced_begin, reduced_end, stretch_size, stretch_count, first_output, output_count;
uint source_first, source_count, source_base, target_base;

void read_push()
{
    kept_rank = push.kept_rank;
    outer_stride = kept_rank == 0 ? 0 : push.stride[0];
    reduced_begin = push.reduced_begin;
    reduced_end = push.reduced_end;
    stretch_size = push.stretch;
    stretch_count = RECORDS ? (reduced_end - reduced_begin - 1) / stretch_size + 1 : 1;
    first_output = push.first_output;
    output_count = push.output_count;
    source_first = push.source_first;
    source_count = push.source_count;
    source_base = push.source_base;
    target_base = push.target_base;
}

// The address of a flat row-major number in dimensions begin to end, the outermost of this stride.
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
    // llvmpipe divides lane by lane, in loops that do not run too.
    return FLAT ? number * outer_stride : address_of(number, 0, rank, outer_stride);
}

// The reduced elements of stretch number `stretch`.
void stretch_range(uint stretch, out uint begin, out uint end)
{
    begin = reduced_begin + stretch * stretch_size;
    end = begin + min(reduced_end - begin, stretch_size);
}

// Writes the winner among a stretch of an output's elements: `i` counts the dispatch's outputs.
void write(uint i, uint stretch, Best best)
{
    if (RECORDS)
        STORE_RECORD(target, (stretch * output_count + i) * RECORD_WORDS + target_base, best)
    else
        STORE_INDEX(target, first_output + i + target_base, best.index)
}
