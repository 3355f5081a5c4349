// The best of elements that follow each other, a block of them at least, looking at every one.

// Of every `step`-th block from number `first` on; a last, partial block is read as a full one that ends with it.
Best best_of_blocks(uint address, uint begin, uint end, uint first, uint step)
{
    Best best = Best(Bits(0), Bits(0), min(begin + first * BLOCK, end - BLOCK));
    for (uint next = begin + first * BLOCK; next < end; next += step * BLOCK) {
        uint at = min(next, end - BLOCK);
        uvec4 block = load_block(address + at);
        [[unroll]] for (uint k = 0; k < BLOCK; ++k) {
            Bits key = order_key(element_of(block, k));
            // An element that is looked at twice wins nothing: of equal ones the first does, or the last.
            uint place = at + k;
            bool above = is_above(key, best.key), later = place >= best.index, equal = key == best.key;
            bool not_below = equal ? later : above;
            bool wins = LAST ? not_below : above;
            best.key = wins ? key : best.key;
            best.index = wins ? place : best.index;
        }
    }
    return best;
}
