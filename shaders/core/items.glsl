// The items of an invocation are next, next + BUNDLE, next + 2 * BUNDLE, ... below `end`. A bundle is BUNDLE
// neighbouring invocations: in each turn they work on BUNDLE neighbouring items. Each bundle has a contiguous range of
// turns. The lengths of these ranges differ by 1 at most, and the longer ones are spread evenly, because neighbouring
// bundles run on one core. There are at most 2^16 bundles (limits.py), so that no product passes 2^32.

struct Items {
    uint next;
    uint end;
};

Items items_of(uint count)
{
    uint bundles = gl_NumWorkGroups.x * GROUP_SIZE / BUNDLE, bundle = gl_GlobalInvocationID.x / BUNDLE;
    uint turns = (count + BUNDLE - 1) / BUNDLE, each = turns / bundles, more = turns - each * bundles;
    uint first = bundle * each + (bundle * more + bundles - 1) / bundles;
    uint end = (bundle + 1) * each + ((bundle + 1) * more + bundles - 1) / bundles;
    return Items(first * BUNDLE + gl_GlobalInvocationID.x % BUNDLE, min(count, end * BUNDLE));
}

// Whether a driver ended a loop of this invocation early: the outermost one, which stopped at item `next`, or an inner
// one. llvmpipe counts the turns of all loops together (limits.py), so where it has ended one, it ends this one after its
// first turn. A compiler that knew `none` would take the conditions behind the loops for false.
bool ended_early(uint next, uint end)
{
    uint none = gl_NumWorkGroups.y - 1, turns = 0;
    while (turns < none + 2)
        ++turns;
    return next + none < end || turns < 2 * none + 2;
}

#ifndef NO_STATUS
// Tells the host where a driver ended a loop early. Each invocation ends with this.
void report(uint next, uint end)
{
    if (ended_early(next, end))
        atomicOr(status[0], ENDED_EARLY);
}
#endif
