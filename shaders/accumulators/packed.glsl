// The selection in a column of 8- or 16-bit elements. One word has an element's key in its high bits, and in its low
// bits the element's offset, its distance from the first one of the column: the maximum of these words is the winner.
// `Columns.longest_split` keeps offsets below 2^16, so that they fit.

#define Column uint
const uint OFFSET_BITS = 0xFFFFFFFFu >> BITS;  // those below the key
uint first_index;  // of all columns
Column empty_column(uint index)
{
    first_index = index;
    return 0;
}
void accumulate_element(inout Column column, Bits bits, uint index, bool is_element)
{
    uint offset = index - first_index;
    uint reversed = ~offset & OFFSET_BITS;
    column = max(column, radix_key(bits) << (32 - BITS) | (LAST ? offset : reversed));
}
Column combine_columns(Column a, Column b) { return max(a, b); }
// reload_bits() sets the bits.
State state_of_column(Column column)
{
    uint key = column >> (32 - BITS);
    return State(key, Bits(0), first_index + ((LAST ? column : ~column) & OFFSET_BITS));
}
