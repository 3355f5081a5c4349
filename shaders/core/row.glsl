// The state of elements that follow each other, a block of them at least.

#ifndef HAS_BLOCKS
// Takes the elements of a block, `skipped` and later; the ones before were taken already.
void take_block(inout State state, uvec4 block, uint skipped, uint index)
{
    [[unroll]] for (uint k = 0; k < BLOCK; ++k)
        if (REPEATABLE || k >= skipped)
            accumulate(state, operand_of(element_of(block, k)), index + k);
}
#endif

// The state of elements begin to end - 1 of a row, or of what one lane looks at: every LANES-th block. A last, partial
// block is read as a full one that ends with it; so is a row of less than a block, of which the elements before `begin`
// may be read too. `next` counts from `begin`, as `end` and some blocks may be more than 2^32.
State state_of_blocks(uint address, uint begin, uint end)
{
    uint first = min(begin, end - BLOCK), last = end - BLOCK - first, next = lane() * BLOCK;
    State state = empty_from(first + min(next, last));
#ifdef COOPERATING
    // Of what would lie behind the last block no element is taken, as none is left.
    for (; next < end - begin; next += LOADS * LANES * BLOCK) {
        uvec4 blocks[LOADS];
        [[unroll]] for (uint i = 0; i < LOADS; ++i)
            blocks[i] = load_block(address + first + min(next + i * LANES * BLOCK, last));
        // Loops over what was loaded are unrolled by GPUs' compilers alone, as in columns.comp.
#ifdef HAS_SHIFT
        Operand greatest = greatest_of(blocks[0]);
        for (uint i = 1; i < LOADS; ++i)
            greatest = greater(greatest, greatest_of(blocks[i]));
        prepare(state, greatest);
#endif
        for (uint i = 0; i < LOADS; ++i) {
            uint at = first + min(next + i * LANES * BLOCK, last);
            take_block(state, blocks[i], begin + next + i * LANES * BLOCK - at, at);
        }
    }
#else
    // The same with one load: a loop of one turn would stay one on SwiftShader, and take a quarter more time.
    for (; next < end - begin; next += BLOCK) {
        uint at = first + min(next, last);
        uvec4 block = load_block(address + at);
        take_block(state, block, begin + next - at, at);
    }
#endif
    return state;
}
