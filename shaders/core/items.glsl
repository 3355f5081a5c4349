// Which items of a dispatch an invocation has: those from `next` to `end` - 1, BUNDLE apart. Invocations of a bundle take
// turns, so that they always work on neighbours; bundles have ranges that follow each other, as even as can be. Those that
// have a turn more are spread evenly, too: neighbouring bundles run on one core. There are at most 2^16 bundles
// (kernel.py), so that no product passes 2^32.

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
