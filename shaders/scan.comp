#version 430
// Cumulative sums and products: each element is combined with those before it in its line. An item is a block of a line
// or, with COLUMNS, the blocks of a vector of neighbouring lines. With COOPERATING, THREADS invocations share a block:
//
//   ROWS      line    [vector][vector] | [vector][vector] | ...      COLUMNS   lines   [vector][vector] ...
//                     |---- item ----|   |---- item ----|                              [vector][vector]
//                                                                                        item    item
//
// An item begins with a state in memory, if there are elements before it: scan_states.comp combines the states of
// blocks, which dispatches with TO_PARTIALS write. A line of one block begins with the state that another dispatch
// wrote.

layout(push_constant) uniform Push {
    uint first_item;     // of this dispatch
    uint item_count;
    uint line_count;     // lines are numbered outer * inner_size + inner
    uint inner_size;
    uint element_count;  // of a line, in this dispatch
    uint block_count;    // of a line
    uint block_size;     // elements; a multiple of a vector's with ROWS
    uint source_outer;   // strides, and the address of the first element
    uint source_inner;
    uint source_step;
    uint source_base;
    uint target_outer;
    uint target_inner;
    uint target_step;
    uint target_base;
    uint reversed;       // whether elements follow each other in descending order: steps are negative, modulo 2^32
    uint exclusive;      // whether the value in an element's place excludes the element
    uint begins;         // whether items begin with states
    uint ends;           // whether items write their last states
    uint state_outer;    // strides of both, in states
    uint state_inner;
    uint begin_base;     // in words
    uint end_base;
    uint partials_base;  // of the buffer
} push;

#include "core/kernel.glsl"
#include "accumulator.glsl"
#define THREAD_STRIDE 1
#include "core/cooperating.glsl"

layout(set = 0, binding = 2) buffer Target { uint target[]; };
layout(set = 0, binding = 2) buffer TargetVectors { uvec4 target_vectors[]; };
layout(set = 0, binding = 3) buffer States { uint stored[]; };

#ifdef COLUMNS
const uint LINES = VECTOR_SIZE;
#else
const uint LINES = 1;
#endif

uint state_inner = push.state_inner * STATE_WORDS;  // read once (kernel.glsl)

// States of the lines of an item, and their last values.
State lines[LINES];
Bits last[LINES];

// Accumulates the next element of a line, and returns the value to write in its place.
Bits next_value(uint line, Bits bits, bool exclusive)
{
    accumulate(lines[line], operand_of(bits), 0);
    Bits before = last[line], value = TO_PARTIALS ? before : value_of(lines[line], 0);  // partials need no value
    last[line] = value;
    return exclusive ? before : value;
}

#if defined(ROWS) || defined(COLUMNS)

#if BITS == 64
uvec4 opposite_of(uvec4 vector) { return vector.zwxy; }
#elif BITS == 32
uvec4 opposite_of(uvec4 vector) { return vector.wzyx; }
#else
uvec4 opposite_of(uvec4 vector) { return vector.wzyx << 16 | vector.wzyx >> 16; }
#endif

// The values to write in the places of a vector's elements.
uvec4 next_values(uvec4 elements, bool exclusive)
{
    uvec4 values = uvec4(0);
    [[unroll]] for (uint k = 0; k < VECTOR_SIZE; ++k) {
        Bits value = next_value(LINES == 1 ? 0 : k, element_of(elements, k), exclusive);
        PUT(values, k, value)
    }
    return values;
}

// Reverses a vector from the order of memory to that of its line, or back, if `flips`.
uvec4 in_order(uvec4 vector, bool flips)
{
    uvec4 opposite = opposite_of(vector);
    return flips ? opposite : vector;
}

#endif

// A block: the number of elements of each line, and the addresses of the first one.
struct Block {
    uint count;
    uint source;
    uint target;
};

#ifdef COOPERATING

// Combines the states of this thread and all threads before it; `total` is the state of all threads.
State scanned(State state, out State total)
{
    uint here = gl_LocalInvocationID.x;
    for (uint distance = 1; distance < THREADS; distance *= 2) {
        states[here] = state;
        barrier();  // all states that this step reads are written
        if (thread() >= distance)
            state = combine(states[here - distance], state);
        barrier();  // the next step overwrites what this one reads
    }
    states[here] = state;
    barrier();
    total = states[here - thread() + THREADS - 1];
    return state;
}

// In each iteration each thread loads a vector. All blocks run the same number of iterations, because of the barriers.
// If a line is reversed, its first element is the last one of a vector, which begins `back` elements before.
void scan(Block block, bool flips, bool exclusive, bool is_item)
{
    uint source_step = push.source_step, target_step = push.target_step, back = flips ? VECTOR_SIZE - 1 : 0;
    for (uint tile = 0; tile < push.block_size; tile += THREADS * VECTOR_SIZE) {
        uint offset = tile + thread() * VECTOR_SIZE;
        bool in_block = offset < block.count;
        uvec4 elements = in_order(aligned_vector(block.source + (in_block ? offset : 0) * source_step - back), flips);
        State before = lines[0];
        if (!TO_PARTIALS)
            lines[0] = identity();
        if (in_block) {
            [[unroll]] for (uint k = 0; k < VECTOR_SIZE; ++k)
                accumulate(lines[0], operand_of(element_of(elements, k)), 0);
        }
        if (!TO_PARTIALS) {
            State total, state = scanned(lines[0], total);
            lines[0] = before;
            if (thread() > 0)
                lines[0] = combine(before, states[gl_LocalInvocationID.x - 1]);
            last[0] = value_of(lines[0], 0);
            uvec4 values = in_order(next_values(elements, exclusive), flips);
            if (in_block && is_item)
                target_vectors[(block.target + offset * target_step - back) / VECTOR_SIZE] = values;
            lines[0] = combine(before, total);
            barrier();  // the next iteration overwrites what this one reads
        }
    }
    if (TO_PARTIALS)
        lines[0] = of_all_threads(lines[0]);
}

#else

void scan(Block block, bool reversed, bool exclusive, bool is_item)
{
    // STEP: elements of a line in a load. `back`: as above.
#ifdef ROWS
    const uint STEP = VECTOR_SIZE;
    bool flips = reversed;
#else
    const uint STEP = 1;
    const bool flips = false;
#endif
    uint source_step = STEP * push.source_step, target_step = STEP * push.target_step, back = flips ? STEP - 1 : 0;
    uint at = block.source - back, to = block.target - back;
    for (uint offset = 0; offset < block.count; offset += STEP, at += source_step, to += target_step) {
#if defined(ROWS) || defined(COLUMNS)
        uvec4 values = in_order(next_values(in_order(aligned_vector(at), flips), exclusive), flips);
        if (!TO_PARTIALS)
            target_vectors[to / VECTOR_SIZE] = values;
#else
        Bits value = next_value(0, LOAD(source, at), exclusive);
        if (!TO_PARTIALS)
            STORE_ELEMENT(target, to, value)
#endif
    }
}

#endif

// Sets the states of an item's lines: empty, or if elements come before the item, those in memory from word `at` on.
// Loops over states in memory have no constant bounds: drivers unroll others, and take seconds to compile them.
void begin_lines(uint at)
{
    [[unroll]] for (uint i = 0; i < LINES; ++i) {
        lines[i] = identity();
        last[i] = value_of(lines[i], 0);
    }
    for (uint i = 0; i < push.begins * LINES; ++i, at += state_inner) {
        [[unroll]] for (uint k = 1; k < LINES; ++k) {
            lines[k - 1] = lines[k];
            last[k - 1] = last[k];
        }
        LOAD_STATE(lines[LINES - 1], stored, at)
        last[LINES - 1] = value_of(lines[LINES - 1], 0);
    }
}

// Writes the last states of an item's lines, if they are needed.
void store_lines(uint at)
{
    for (uint i = 0; i < push.ends * LINES; ++i, at += state_inner) {
        STORE_STATE(stored, at, lines[0])
        [[unroll]] for (uint k = 1; k < LINES; ++k)
            lines[k - 1] = lines[k];
    }
}

void main()
{
    uint line_items = push.line_count / LINES, inner_size = push.inner_size, item_count = push.item_count;
    uint block_count = push.block_count, block_size = push.block_size;
    bool reversed = push.reversed != 0, exclusive = push.exclusive != 0;
    Items mine = shared_items_of(item_count);
    uint next = mine.next;
    for (; next < mine.end; next += shared_item_stride()) {
        // Neighbouring items have neighbouring lines. Divisions are slow, and mostly not needed.
        uint line = push.first_item + min(next, item_count - 1), block_of_line = 0;
        bool is_item = next < item_count;
        if (block_count != 1) {
            block_of_line = line / line_items;
            line -= block_of_line * line_items;
        }
        uint inner = line * LINES, outer = 0;
        if (inner_size != push.line_count) {
            outer = inner / inner_size;
            inner -= outer * inner_size;
        }
        uint begin = block_of_line * block_size, state_at = (outer * push.state_outer + block_of_line) * STATE_WORDS;
        state_at += push.partials_base + inner * state_inner;
        Block block;
        block.count = min(block_size, push.element_count - begin);
        block.source = outer * push.source_outer + inner * push.source_inner + begin * push.source_step;
        block.target = outer * push.target_outer + inner * push.target_inner + begin * push.target_step;
        block.source += push.source_base;
        block.target += push.target_base;
        begin_lines(push.begin_base + state_at);
        scan(block, reversed, exclusive, is_item);
        if (is_item && thread() == 0)
            store_lines(push.end_base + state_at);
    }
    report(next, mine.end);
}
