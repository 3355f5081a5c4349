// What the kernels of ARGMAX and ARGMIN share: bindings, push constants, and which output an invocation works on.

layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 0) readonly buffer SourceBlocks { uvec4 source_blocks[]; };
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

// The address of a flat row-major number in dimensions begin to end.
uint address_of(uint number, uint begin, uint end)
{
    if (begin == end)
        return 0;
    uint address = 0;
    for (uint i = end - 1; i > begin; --i) {
        address += number % push.size[i] * push.stride[i];
        number /= push.size[i];
    }
    return address + number * push.stride[begin];
}

uint stretch_count() { return RECORDS ? (push.reduced_end - push.reduced_begin - 1) / push.stretch + 1 : 1; }

// The reduced elements of stretch number `stretch`.
void stretch_range(uint stretch, out uint begin, out uint end)
{
    begin = push.reduced_begin + stretch * push.stretch;
    end = push.reduced_end - begin > push.stretch ? begin + push.stretch : push.reduced_end;
}

// Writes the winner among a stretch of an output's elements: `i` counts the dispatch's outputs.
void write(uint i, uint stretch, Best best)
{
    if (RECORDS)
        STORE_RECORD(target, (stretch * push.output_count + i) * RECORD_WORDS + push.target_base, best)
    else
        STORE_INDEX(target, push.first_output + i + push.target_base, best.index)
}
