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

// The state of elements begin to end - 1 of a row, or of what one lane looks at: every LANES-th block. A last, partial block is
// read as a full one that ends with it; so is a row of less than a block, of which the elements before `begin` may be read
// too.
State state_of_blocks(uint address, uint begin, uint end)
{
    uint next = begin + lane() * BLOCK;
    State state = before(min(next, end - BLOCK));
#ifdef COOPERATING
    // Of what would lie behind the last block no element is taken, as none is left.
    for (; next < end; next += LOADS * LANES * BLOCK) {
        uvec4 blocks[LOADS];
        [[unroll]] for (uint i = 0; i < LOADS; ++i)
            blocks[i] = load_block(address + min(next + i * LANES * BLOCK, end - BLOCK));
        [[unroll]] for (uint i = 0; i < LOADS; ++i) {
            uint at = min(next + i * LANES * BLOCK, end - BLOCK);
            take_block(state, blocks[i], next + i * LANES * BLOCK - at, at);
        }
    }
#else
    for (; next < end; next += BLOCK) {
        uint at = min(next, end - BLOCK);
        uvec4 block = load_block(address + at);
        take_block(state, block, next - at, at);
    }
#endif
    return state;
}
