// Lanes: invocations of a workgroup that share an item. Each looks at some of its elements or records, and their states
// are combined through shared memory. Where lanes are 1 apart, neighbouring lanes read neighbouring memory; where they
// are as far apart as possible, neighbouring items do:
//
//   invocations of a workgroup       0    1    2    3    4    5    6    7        with 2 lanes
//   LANES_APART = 1              items 0    0    1    1    2    2    3    3     lanes 0 1 0 1 0 1 0 1
//   LANES_APART = AT_ONCE        items 0    1    2    3    0    1    2    3     lanes 0 0 0 0 1 1 1 1
//
// With COOPERATING kernels declare LANES, a power of 2 that divides GROUP_SIZE. Else an invocation has an item to itself:
// barriers cost more than whole rows on a CPU driver, and SwiftShader pays for those that are never reached, too.

#ifdef COOPERATING

const uint AT_ONCE = GROUP_SIZE / LANES;  // items that a workgroup looks at together
const uint LOADS = 4;  // blocks that an invocation waits for together

uint lane() { return gl_LocalInvocationID.x / LANES_APART % LANES; }

// As items_of(), but the invocations of a workgroup go round equally often, as barriers need. So `next` may be behind the
// last item in the last turn.
Items shared_items_of(uint count)
{
    uint here = LANES_APART == 1 ? gl_LocalInvocationID.x / LANES : gl_LocalInvocationID.x % AT_ONCE;
    return Items(gl_WorkGroupID.x * AT_ONCE + here, (count + AT_ONCE - 1) / AT_ONCE * AT_ONCE);
}
// From one turn to the next.
uint turn() { return gl_NumWorkGroups.x * AT_ONCE; }

shared State states[GROUP_SIZE];

// In lane 0 what all lanes of an item know, two by two. All invocations of a workgroup call it.
State of_all_lanes(State state)
{
    uint here = gl_LocalInvocationID.x;
    states[here] = state;
    for (uint other = LANES / 2; other > 0; other /= 2) {
        barrier();  // what the other half wrote is there, and what it read was read
        if (lane() < other) {
            state = combine(state, states[here + other * LANES_APART]);
            states[here] = state;
        }
    }
    barrier();  // the next turn writes where this one reads
    return state;
}

#else

const uint LANES = 1, LOADS = 1;
uint lane() { return 0; }
Items shared_items_of(uint count) { return items_of(count); }
uint turn() { return BUNDLE; }
State of_all_lanes(State state) { return state; }

#endif
