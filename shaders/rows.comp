#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// ARGMAX and ARGMIN where the reduced elements of an output follow each other, a block of them at least.
// One invocation owns one output, or a stretch of its elements: it finds the chunk that holds the winner, then the
// winner's place in it. What stands in a last, partial block is read as a full block that ends with it: to look at an
// element twice changes nothing.

#include "reduction.glsl"
#include "row.glsl"

#if BITS == 64

const uint CHUNK = 1;  // blocks; SwiftShader compiles a chain of 64-bit comparisons for a minute

// The highest key of a chunk.
#define Extreme Bits
Extreme none() { return Bits(0); }
void include(inout Extreme extreme, uvec4 block)
{
    Bits a = order_key(block.xy), b = order_key(block.zw);
    Bits higher = is_above(b, a) ? b : a;
    extreme = is_above(higher, extreme) ? higher : extreme;
}
Bits highest_key(Extreme extreme) { return extreme; }

#else

const uint CHUNK = 4;  // blocks

// What the highest key of a chunk follows from, without a key for every element: the ends of the elements' range as
// signed and as unsigned numbers. Elements stand in the high bits of a word; what is below changes no order.
struct Extreme {
    int most;
    int least;
    uint top;
    uint bottom;
};
Extreme none() { return Extreme(int(0x80000000u), 0x7FFFFFFF, 0u, 0xFFFFFFFFu); }
void include(inout Extreme extreme, uvec4 block)
{
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        [[unroll]] for (uint k = 0; k < 32; k += BITS) {
            uint element = block[i] << k;
            extreme.most = max(extreme.most, int(element));
            extreme.least = min(extreme.least, int(element));
            extreme.top = max(extreme.top, element);
            extreme.bottom = min(extreme.bottom, element);
        }
    }
}
Bits highest_key(Extreme extreme)
{
    const uint low = 32 - BITS;
    uint most = uint(extreme.most) >> low, least = uint(extreme.least) >> low;
    uint top = extreme.top >> low, bottom = extreme.bottom >> low;
    if (NUMBER_KIND == UINT)
        return order_key(MINIMUM ? bottom : top);
    if (NUMBER_KIND == INT)
        return order_key(MINIMUM ? least : most);
    // Floats of one sign are ordered as their bits, negative ones the other way round. `most` is the greatest without
    // a sign, or where all have one the least of them; so is `top`, the other way round.
    bool nan = (extreme.most >= 0 && most > INFINITY) || top > (SIGN | INFINITY);
    uint winner = MINIMUM ? (top >= SIGN ? top : bottom) : (extreme.most >= 0 ? most : bottom);
    return nan ? MASK : order_key(winner);
}

#endif

Best reduce_long(uint address, uint begin, uint end)
{
    uint last = end - BLOCK;
    Bits best_key = Bits(0);
    uint best_chunk = begin;
    for (uint chunk = begin; chunk < end; chunk += CHUNK * BLOCK) {
        Extreme extreme = none();
        [[unroll]] for (uint i = 0; i < CHUNK; ++i)
            include(extreme, load_block(address + min(chunk + i * BLOCK, last)));
        Bits key = highest_key(extreme);
        if (LAST ? !is_above(best_key, key) : is_above(key, best_key)) {
            best_key = key;
            best_chunk = chunk;
        }
    }
    uint index = LAST ? begin : end - 1;
    [[unroll]] for (uint i = 0; i < CHUNK; ++i) {
        uint at = min(best_chunk + i * BLOCK, last);
        uvec4 block = load_block(address + at);
        [[unroll]] for (uint k = 0; k < BLOCK; ++k)
            if (order_key(element_of(block, k)) == best_key)
                index = LAST ? max(index, at + k) : min(index, at + k);
    }
    return Best(best_key, best_key, index);
}

Best reduce(uint address, uint begin, uint end)
{
    begin = min(begin, end - BLOCK);  // a last stretch of less than a block also takes what is before it
    Best best = SHORT ? best_of_blocks(address, begin, end, 0, 1) : reduce_long(address, begin, end);
    if (RECORDS)
        best.bits = LOAD(source, address + best.index);
    return best;
}

void main()
{
    read_push();
    Items mine = items_of(output_count * stretch_count);
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint stretch = RECORDS ? item / output_count : 0;
        uint i = item - stretch * output_count;
        uint begin, end;
        stretch_range(stretch, begin, end);
        uint origin = address_of_kept(first_output + i, kept_rank);
        write(i, stretch, reduce(origin + source_base, begin, end));
    }
}
