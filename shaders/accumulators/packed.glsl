// The selection in a column of 8- or 16-bit elements. One word has an element's key in its high bits, and the element's
// offset in the column in its low bits: the maximum of these words is the winner. `Columns.longest_split` keeps offsets
// below 2^16, so that they fit.

#define Column uint
const uint OFFSETS = 0xFFFFFFFFu >> BITS;
Column first_of_column() { return 0; }
void take_element(inout Column column, Bits bits, uint offset, bool taken)
{
    uint reversed = ~offset & OFFSETS;
    column = max(column, radix_key(bits) << (32 - BITS) | (LAST ? offset : reversed));
}
Column combine_columns(Column a, Column b) { return max(a, b); }
// Leaves the bits to RELOAD_BITS.
State state_of_column(Column column)
{
    uint key = column >> (32 - BITS);
    return State(key, Bits(0), (LAST ? column : ~column) & OFFSETS);
}
