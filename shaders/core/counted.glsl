// How many elements of a window count for an average, along one dimension. The window begins at position `at`, and
// positions begin to end - 1 count. Position 0 is the begin of the padding, so padding that does not count lies before
// `begin`, or from `end` on. Every window has an element that counts.
uint counted(uint at, uint window, uint dilation, uint begin, uint end)
{
    uint before = at < begin ? (begin - at - 1) / dilation + 1 : 0;
    return min(window, (end - 1 - at) / dilation + 1) - before;
}
