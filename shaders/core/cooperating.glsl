// Several invocations of a workgroup share an item: they are its threads. Each accumulates some of the item's elements
// or states; then they combine their states in shared memory. THREAD_STRIDE is the distance between two threads of an
// item. With 1, neighbouring threads read neighbouring memory; with AT_ONCE, the maximum, neighbouring items do:
//
//   invocations of a workgroup       0    1    2    3    4    5    6    7          with 2 threads
//   THREAD_STRIDE = 1            items 0    0    1    1    2    2    3    3     threads 0 1 0 1 0 1 0 1
//   THREAD_STRIDE = AT_ONCE      items 0    1    2    3    0    1    2    3     threads 0 0 0 0 1 1 1 1
//
// Without COOPERATING, one invocation computes an item: on a CPU driver barriers cost more than whole rows, and on
// SwiftShader even barriers that are never reached cost time.

#ifdef COOPERATING

layout(constant_id = 11) const uint THREADS = 1;  // of an item: a power of 2 that divides GROUP_SIZE
const uint AT_ONCE = GROUP_SIZE / THREADS;  // items that a workgroup works on at a time
const uint IN_FLIGHT = 4;  // vectors or states that an invocation loads before it uses the first

uint thread() { return gl_LocalInvocationID.x / THREAD_STRIDE % THREADS; }

// Like items_of(), but all invocations of a workgroup run the same number of iterations, because barriers require it.
// So in the last iteration `next` may be past the last item.
Items shared_items_of(uint count)
{
    uint here = THREAD_STRIDE == 1 ? gl_LocalInvocationID.x / THREADS : gl_LocalInvocationID.x % AT_ONCE;
    return Items(gl_WorkGroupID.x * AT_ONCE + here, (count + AT_ONCE - 1) / AT_ONCE * AT_ONCE);
}
// Increment of `next` per iteration.
uint shared_item_stride() { return gl_NumWorkGroups.x * AT_ONCE; }

shared State states[GROUP_SIZE];

// Combines the states of an item's threads, two by two, for thread 0. All invocations of a workgroup call this.
State of_all_threads(State state)
{
    if (THREADS == 1)
        return state;
    uint here = gl_LocalInvocationID.x;
    states[here] = state;
    for (uint other = THREADS / 2; other > 0; other /= 2) {
        barrier();  // all states that this step reads are written
        if (thread() < other) {
            state = combine(state, states[here + other * THREAD_STRIDE]);
            states[here] = state;
        }
    }
    barrier();  // the next iteration overwrites what this one reads
    return state;
}

#else

const uint THREADS = 1, IN_FLIGHT = 1;
uint thread() { return 0; }
Items shared_items_of(uint count) { return items_of(count); }
uint shared_item_stride() { return ITEM_STRIDE; }
State of_all_threads(State state) { return state; }

#endif
