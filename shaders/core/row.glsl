// The state of elements that follow each other, a block of them at least.

#ifndef HAS_BLOCKS
// Takes the elements of a block, `skipped` and later; the ones before were taken already.
void take_block(inout State state, uvec4 block, uint skipped, uint index)
{
    [[unroll]] for (uint k = 0; k < BLOCK; ++k)
        if (REPEATABLE || k >= skipped)
            take(state, operand_of(element_of(block, k)), index + k);
}
#endif

// Of every `step`-th block from number `first` on. A last, partial block is read as a full one that ends with it; so is a
// row of less than a block, `begin` to `end`, of which the elements before it may be read too.
State state_of_blocks(uint address, uint begin, uint end, uint first, uint step)
{
    uint next = begin + first * BLOCK;
    State state = before(min(next, end - BLOCK));
    for (; next < end; next += step * BLOCK) {
        uint at = min(next, end - BLOCK);
        uvec4 block = load_block(address + at);
        take_block(state, block, next - at, at);
    }
    return state;
}
