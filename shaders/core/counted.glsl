// How many elements of a window count for an average, along one dimension: those from `begin` to `end` - 1. All is
// counted from the begin of the padding, as is `at`, where the window begins; so padding that does not count has
// positions before `begin`, or from `end` on. Every window has elements that count.
uint counted(uint at, uint window, uint dilation, uint begin, uint end)
{
    uint before = at < begin ? (begin - at - 1) / dilation + 1 : 0;
    return min(window, (end - 1 - at) / dilation + 1) - before;
}
