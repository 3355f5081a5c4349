// Shared by exact_axes.comp and exact_pool_direct.comp.

// The element at `address`; 0, if the bound segment does not have it.
Bits element_at(uint address)
{
    Bits element = Bits(0);
    if (!SEGMENTED || address - source_first < source_count)
        element = LOAD(source, address + source_base);
    return element;
}
