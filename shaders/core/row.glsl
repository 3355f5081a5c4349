// The state of contiguous elements, of one block at least.

#ifndef HAS_BLOCKS
// Takes elements `skipped` and later of a block; those before were taken already. Element 0 has index `index`.
void take_block(inout State state, uvec4 block, uint skipped, uint index)
{
    [[unroll]] for (uint k = 0; k < BLOCK; ++k)
        take_element(state, element_of(block, k), index + k, k >= skipped);
}
#endif

// The state of elements begin to end - 1 of a row, or with lanes of every LANES-th block of them. If the last block is
// not full, the block that ends at `end` is read instead; it may begin before `begin` if there is less than one block.
// `next` counts from `begin`, because `end` and some blocks may be more than 2^32.
State state_of_blocks(uint address, uint begin, uint end)
{
    uint first = min(begin, end - BLOCK), last = end - BLOCK - first, next = lane() * BLOCK;
    State state = empty_from(first + min(next, last));
#ifdef HAS_BIN
    uvec4 samples[2] = {load_block(address + first), load_block(address + first + last / (2 * BLOCK) * BLOCK)};
    [[unroll]] for (uint i = 0; i < 2; ++i) [[unroll]]
        for (uint k = 0; k < BLOCK; ++k)
            show(state, element_of(samples[i], k));
    place(state);
#endif
#ifdef COOPERATING
    // A block behind the last one is read as the last one, again; all its elements are skipped.
    for (; next < end - begin; next += IN_FLIGHT * LANES * BLOCK) {
        uvec4 blocks[IN_FLIGHT];
        [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i)
            blocks[i] = load_block(address + first + min(next + i * LANES * BLOCK, last));
        // No [[unroll]] for loops over loaded blocks: GPUs' compilers unroll them without it; see columns.comp.
#ifdef HAS_SHIFT
        Operand greatest = greatest_of(blocks[0]);
        for (uint i = 1; i < IN_FLIGHT; ++i)
            greatest = greater(greatest, greatest_of(blocks[i]));
        prepare(state, greatest);
#endif
        for (uint i = 0; i < IN_FLIGHT; ++i) {
            uint at = first + min(next + i * LANES * BLOCK, last);
            take_block(state, blocks[i], begin + next + i * LANES * BLOCK - at, at);
        }
    }
#else
    if (REPEATABLE && ALIGNED_INSIDE) {
        // All blocks but those at the ends of a row begin at multiples of 16 bytes, and elements are taken again. A sum
        // of floats must not even be in this order, which depends on where a row begins.
        //
        //   [ first ]                 [ last ]
        //       [ block ] ... [ block ]
        take_block(state, load_block(address + first), 0, first);
        for (next = BLOCK - (address + first) % BLOCK; next < last; next += BLOCK)
            take_block(state, aligned_block(address + first + next), 0, first + next);
        take_block(state, load_block(address + first + last), 0, first + last);
        return state;
    }
    // The same for one load: SwiftShader keeps a loop of one iteration as a loop, and it takes a quarter more time. Where
    // elements have to be masked, the last block stands outside of the loop.
    uint size = end - begin, looped = REPEATABLE ? size : size / BLOCK * BLOCK;
    for (; next < looped; next += BLOCK) {
        uint at = first + (REPEATABLE ? min(next, last) : next);
        take_block(state, load_block(address + at), 0, at);
    }
    if (!REPEATABLE && next < size)
        take_block(state, load_block(address + first + last), begin + next - first - last, first + last);
#endif
    return state;
}
