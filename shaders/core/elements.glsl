// Shared by the kernels over axes except exact_axes.comp: accumulating an element, and writing an output.

// Whether the winner's bits are written, and so loaded again.
const bool RELOADED = TO_PARTIALS || VALUES;

// Accumulates an element. Without `is_element` it is one that was accumulated before: skipped unless REPEATABLE.
void accumulate_element(inout State state, Bits bits, uint index, bool is_element)
{
    Operand operand = operand_of(bits);
    if (!REPEATABLE)
        operand = or_neutral(operand, is_element);
    accumulate(state, operand, index);
}

// Writes output number `i` of the dispatch, or the state of one split of its elements.
void write(uint i, uint split, State state)
{
    uint number = first_output + i;
    if (TO_PARTIALS)
        STORE_PARTIAL(target, (split * output_count + i) * PARTIAL_WORDS + target_base, state, push.element_count)
    else {
        if (INDEX_WORDS != 0)
            STORE_INDEX(target, number + target_base, index_of(state))
        if (VALUES)
            STORE_ELEMENT(values, number + values_base, value_of(state, push.element_count))
    }
}
