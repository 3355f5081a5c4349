// Lanes are the LANES invocations of a workgroup that share an item. Each lane takes some of the item's elements or
// states; then shared memory combines the lanes' states. LANES_APART is the distance between two lanes of an item.
// With 1, neighbouring lanes read neighbouring memory; with AT_ONCE, the most that is possible, neighbouring items do:
//
//   invocations of a workgroup       0    1    2    3    4    5    6    7        with 2 lanes
//   LANES_APART = 1              items 0    0    1    1    2    2    3    3     lanes 0 1 0 1 0 1 0 1
//   LANES_APART = AT_ONCE        items 0    1    2    3    0    1    2    3     lanes 0 0 0 0 1 1 1 1
//
// Without COOPERATING, an invocation has an item to itself: on a CPU driver barriers cost more than whole rows, and on
// SwiftShader even barriers that are never reached cost time.

#ifdef COOPERATING

layout(constant_id = 11) const uint LANES = 1;  // invocations that share an item: a power of 2 that divides GROUP_SIZE
const uint AT_ONCE = GROUP_SIZE / LANES;  // items that a workgroup works on at a time
const uint IN_FLIGHT = 4;  // blocks or states that an invocation loads before it uses the first

uint lane() { return gl_LocalInvocationID.x / LANES_APART % LANES; }

// As items_of(), but all invocations of a workgroup take the same number of iterations, because barriers require it. So
// in the last iteration `next` may be behind the last item.
Items shared_items_of(uint count)
{
    uint here = LANES_APART == 1 ? gl_LocalInvocationID.x / LANES : gl_LocalInvocationID.x % AT_ONCE;
    return Items(gl_WorkGroupID.x * AT_ONCE + here, (count + AT_ONCE - 1) / AT_ONCE * AT_ONCE);
}
// What `next` grows by from one iteration to the next.
uint item_stride() { return gl_NumWorkGroups.x * AT_ONCE; }

shared State states[GROUP_SIZE];

// Combines the states of an item's lanes, two by two; lane 0 gets the result. All invocations of a workgroup call it.
State of_all_lanes(State state)
{
    if (LANES == 1)
        return state;
    uint here = gl_LocalInvocationID.x;
    states[here] = state;
    for (uint other = LANES / 2; other > 0; other /= 2) {
        barrier();  // all states that this step reads are written
        if (lane() < other) {
            state = combine(state, states[here + other * LANES_APART]);
            states[here] = state;
        }
    }
    barrier();  // the next iteration overwrites what this one reads
    return state;
}

#else

const uint LANES = 1, IN_FLIGHT = 1;
uint lane() { return 0; }
Items shared_items_of(uint count) { return items_of(count); }
uint item_stride() { return BUNDLE; }
State of_all_lanes(State state) { return state; }

#endif
