// Shared by reduce.comp and pool_direct.comp.

// Accumulates the element at `address` in the buffer, if the bound segment has it.
void accumulate_at(inout State state, uint address, uint index)
{
    if (!SEGMENTED)
        accumulate(state, operand_of(LOAD(source, address)), index);
    else if (address - source_base - source_first < source_count)
        state = combine(state, state_of(operand_of(LOAD(source, address)), index));
}
