#version 430
// Pooling over windows of any size, along one dimension. Windows with several dimensions need one dispatch per
// dimension, a separable pass: along width, then height, then depth. A pass writes its results for the next one to a
// temporary: a word of bits for each maximum (two for 64 bits), and after all of these an index for each; or the
// state of each sum.
//
// One invocation computes a tile: TILE windows, each STEP elements after the one before. The middle is the elements
// that all windows of a tile share. A window's prefix is its elements up to the end of the middle, and its suffix is
// its elements after the middle. The middle is loaded once, and is the last window's prefix. From there, prefixes grow
// towards the first element, and suffixes towards the last one:
//
//   elements      0    1    2   [ 3   ... middle ...   8 ]   9   10   11       TILE = 4, STEP = 1, a window of 9
//   window 0      <----------------- prefix 0 ---------->
//   window 1           <------------ prefix 1 ----------><--->
//   window 2                <------- prefix 2 ----------><-------->  suffix
//   window 3                     <-- prefix 3 ----------><------------->
//
// So an output needs (window + (TILE - 1) * STEP) / TILE loads. Prefixes and suffixes are those of van Herk (1992), and
// of Gil and Werman (1993), whose tiles are as long as a window.
//
// With SHARES the input is the gradients of a pooling, each divided among the elements of its window. An element's
// gradient is the sum over a window of these: over the windows of the pooling that cover the element. If the pooling
// has a stride, positions count elements of the pooled input: gradients are BASE_DILATION apart, and outputs at this
// distance have windows in common. A window is shorter for some outputs than for others, by one gradient:
//
//   positions            0   1   2   3   4   5   6   7        BASE_DILATION = 2, a window of 5
//   gradients            0       1       2       3
//   output 4           [ 0       1       2 ]                  and outputs 2, 6, ...
//   output 5               [     1       2     ]              and outputs 3, 7, ...
//
// With a dilation, windows share elements only if their distance is a multiple of `spacing` outputs. These windows form
// a residue class, and all windows of a tile belong to one.
//
// No padding is loaded: an element before the input is replaced by the first one of the input, and an element after the
// input by the last one. The window has this element, too, and accumulating it again changes no maximum; to a sum these
// elements add nothing.

#include "core/windows.glsl"
#ifdef SHARES
#include "core/shares.glsl"
#endif

// clang-format off: a table
layout(constant_id = 10) const uint TILE = 1;             // windows that one invocation computes
layout(constant_id = 11) const uint STEP = 1;            // elements, `dilation` apart, from one window to the next
layout(constant_id = 12) const bool COPIES = false;      // a window is one element
layout(constant_id = 13) const bool DILATED = false;     // the dilation or the spacing is not 1
layout(constant_id = 14) const bool FLAT = false;        // rows of the input are one stride apart, and all are loaded
layout(constant_id = 15) const bool TO_OUTPUTS = true;   // the last pass: write outputs, not temporaries
layout(constant_id = 16) const bool INDEXED = false;     // temporaries have indices
layout(constant_id = 17) const bool SIDE_BY_SIDE = false;  // windows of a tile are neighbours in a row, four or more
layout(constant_id = 18) const bool WHOLE = false;       // a row of outputs consists of whole groups
layout(constant_id = 19) const bool SHARED_WORDS = false;  // several invocations write to one word
layout(constant_id = 20) const uint UNROLLED = 1;        // windows of a tile that are unrolled where they are written
#ifdef HAS_INDEX
const uint BASE_DILATION = 1;
#else
layout(constant_id = 21) const uint BASE_DILATION = 1;   // positions from one element to the next, along the pass
#endif
#ifdef SHARES
layout(constant_id = 22) const uint STRIDE_DEPTH = 1;    // of the pooling
layout(constant_id = 23) const uint STRIDE_HEIGHT = 1;
#endif
// clang-format on

// A temporary has RESULTS_PER_VECTOR results in a vector. PUT_RESULT sets result `i` of a local array of words;
// GET_RESULT loads result `i` of a vector.
#ifndef HAS_INDEX
const uint RESULT_WORDS = STATE_WORDS;
#define PUT_RESULT(words, i, state) STORE_STATE(words, (i) * STATE_WORDS, state)
#define GET_RESULT(state, vector, i, index) LOAD_STATE(state, vector, (i) * STATE_WORDS)
#else
const uint RESULT_WORDS = WORDS_PER_ELEMENT;
#define PUT_RESULT(words, i, state) STORE_BITS(words, (i) * RESULT_WORDS, value_of(state, 0))
#define GET_RESULT(state, vector, i, index) state = state_of(operand_of(LOAD_BITS(vector, (i) * RESULT_WORDS)), index);
#endif
const uint RESULTS_PER_VECTOR = 4 / RESULT_WORDS;

// COLUMNS: number of neighbouring lines that an invocation computes together: those of a vector, or with WORDS those
// whose outputs share a word. GROUP: number of windows that it stores together.
#ifdef ROWS
const uint COLUMNS = 1, GROUP = SIDE_BY_SIDE ? 4 : 1;
#elif defined(WORDS)
const uint COLUMNS = ELEMENTS_PER_WORD, GROUP = COLUMNS;
#else
const uint COLUMNS = RESULTS_PER_VECTOR, GROUP = COLUMNS;
#endif
const uint COLUMN_WORDS = COLUMNS * RESULT_WORDS;
const uint TEMPORARY_WORDS = GROUP * RESULT_WORDS;  // of a group in a temporary
const uint OUTPUT_WORDS = (GROUP * BITS + 31) / 32;  // of a group in the outputs
layout(set = 0, binding = 2) buffer Values { uint values[]; };  // or the temporary
layout(set = 0, binding = 2) buffer ValueVectors { uvec4 value_vectors[]; };
layout(set = 0, binding = 3) writeonly buffer Indices { uint indices[]; };
layout(set = 0, binding = 3) writeonly buffer IndexVectors { uvec4 index_vectors[]; };

// A pass works on lines: a line is a row of the input, or a column of the temporary along height or depth.
layout(push_constant) uniform Push {
    uint size;           // elements of a line
    uint output_size;    // windows of a line
    uint window_size;    // this and the next four: along the pass's dimension
    uint window_stride;
    uint dilation;
    uint start_padding;
    uint spacing;
    uint width;          // outputs of a row
    uint pitch;          // distance of the rows that this pass writes
    uint outer_count;    // along width the rows of the input; along height the slabs; along depth the planes
    uint first_item;     // tiles of this dispatch: the first, and how many at most
    uint most_items;
#ifdef ROWS
    uint rows[2];        // rows of a plane that the pass loads, along depth and height
    uint plane_stride;   // of the input; strides in elements
    uint stride[3];
#ifdef HAS_INDEX
    uint input_rows[2];  // all rows of a plane, along depth and height
    uint first_index;    // index of the first element
#endif
#else
    uint row_count;      // rows of the temporary at one position of the lines: 1 along height
    uint source_indices; // words of the temporary before its indices
#endif
    uint source_base;    // address + source_base is the offset in the buffer, in elements or words
    uint values_base;
    uint indices_base;
#ifdef SHARES
    // The input has a gradient for each window of a pooling: the first row that the pass loads, the windows, and the
    // range of positions that share the gradients (counted()).
    uint first_row[2];
    uint windows[3];
    uint shares_begin[3];
    uint shares_end[3];
#elif !defined(HAS_INDEX)
    uint counted_begin;  // range of the positions that count for an average: counted()
    uint counted_end;
#ifndef ROWS
    // The windows along height and width; windows of 1 along height if this pass is along height.
    uint window_sizes[2];
    uint window_strides[2];
    uint dilations[2];
    uint counted_begins[2];
    uint counted_ends[2];
#endif
#endif
} push;

// The push constants, each read once (kernel.glsl). Without DILATED the dilation and the spacing are 1: llvmpipe
// divides for one invocation after the other, even in a branch that is not taken.
uint size = push.size, output_size = push.output_size, window_size = push.window_size;
uint window_stride = push.window_stride, start_padding = push.start_padding, width = push.width, pitch = push.pitch;
uint dilation = DILATED ? push.dilation : 1, spacing = DILATED ? push.spacing : 1;
uint source_base = push.source_base, values_base = push.values_base, indices_base = push.indices_base;
// `vectors`: vectors of COLUMNS neighbouring lines. line_stride: from one position of a line to the next, in elements
// or in such vectors.
#ifdef ROWS
uvec2 rows = uvec2(push.rows[0], push.rows[1]);
uvec3 stride = all_of(push.stride);
uint plane_stride = push.plane_stride, vectors = 1, line_stride = stride.z;
#ifdef HAS_INDEX
uvec2 input_rows = uvec2(push.input_rows[0], push.input_rows[1]);
uint first_index = push.first_index;
#else
uvec2 input_rows = uvec2(0);
uint first_index = 0;
#endif
#else
uint row_count = push.row_count, row_vectors = pitch / COLUMNS, vectors = row_count * row_vectors;
uint line_stride = vectors, source_indices = push.source_indices + source_base;
#endif

// A tile: its lines and windows. Positions count from the first element of a line, in elements, also for gradients:
// set_windows() has divided by BASE_DILATION.
struct Tile {
    uint outer;
    uint line;        // where its first line begins in the buffer, in elements, or in vectors of COLUMNS
    uint index_base;  // ROWS: the index of this line's first element
    uint vector;      // else: the number of its vector of COLUMNS lines, which begins with this row and column
    uint row;
    uint column;
    // Elements of a window that count for an average, or elements that share a gradient, along the other dimensions.
    uint counts[COLUMNS];
    uint begin;  // the first window; the others are `spacing` apart
    uint elements;  // of each window
    int start;  // the position of its first element, negative in the padding; the others are `dilation` apart
    int first;  // the first and the last of these positions in the input
    int last;
};

#ifdef SHARES
// Number of elements along dimension d that share the gradient of the window that begins at position `at`.
uint shares(uint at, uint d) { return counted(at, push.windows[d], 1, push.shares_begin[d], push.shares_end[d]); }
#elif !defined(HAS_INDEX) && !defined(ROWS)
// Number of elements of window number `at` that count, along height (0) or width (1).
uint counted_across(uint at, uint d)
{
    return counted(at * push.window_strides[d], push.window_sizes[d], push.dilations[d], push.counted_begins[d],
                   push.counted_ends[d]);
}
#endif

// Sets the lines of a tile.
#ifdef ROWS
void set_lines(inout Tile tile, uint vector)
{
    uint slab = FLAT ? 0 : tile.outer / rows.y, height = tile.outer - slab * rows.y;
    uint plane = FLAT ? 0 : slab / rows.x, depth = slab - plane * rows.x;
    tile.line = plane * plane_stride + depth * stride.x + height * stride.y + source_base;
    tile.index_base = ((plane * input_rows.x + depth) * input_rows.y + height) * size + first_index;
    tile.counts[0] = 1;
#ifdef SHARES
    tile.counts[0] = shares((depth + push.first_row[0]) * STRIDE_DEPTH, 0)
        * shares((height + push.first_row[1]) * STRIDE_HEIGHT, 1);
#endif
}
#else
void set_lines(inout Tile tile, uint vector)
{
    tile.line = tile.outer * size * vectors + vector + source_base / COLUMN_WORDS;
    tile.vector = vector;
    tile.row = vector / row_vectors;
    tile.column = (vector - tile.row * row_vectors) * COLUMNS;
#ifndef HAS_INDEX
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
        tile.counts[c] = counted_across(tile.row, 0) * counted_across(tile.column + c, 1);
#endif
}
#endif

// Sets the windows of tile `number` of its lines.
void set_windows(inout Tile tile, uint number, uint residues)
{
    tile.begin = number * TILE;
    if (DILATED) {
        uint in_residue = number / residues;
        tile.begin = in_residue * TILE * spacing + number - in_residue * residues;
    }
    int start = int(tile.begin * window_stride - start_padding);
    tile.elements = window_size;
    if (BASE_DILATION > 1) {
        // The window has positions start to end; its elements are the multiples of BASE_DILATION among them.
        uint end = uint(start) + window_size - 1;
        start = start > 0 ? int((uint(start) - 1) / BASE_DILATION) + 1 : -int(uint(-start) / BASE_DILATION);
        tile.elements = end / BASE_DILATION - uint(start) + 1;
    }
    int first = max(start, 0), last = int(size) - 1;
    if (DILATED && start < 0)
        first = start + int(((0 - uint(start) - 1) / dilation + 1) * dilation);
    tile.start = start;
    tile.first = min(first, last);
    tile.last = DILATED ? last - (last - tile.first) % int(dilation) : last;
}

// The digits of an item: item = (outer * tiles + number) * vectors + vector.
uvec3 digits_of(uint item, uint tiles)
{
    uint number = item / vectors, outer = number / tiles;
    return uvec3(outer, number - outer * tiles, item - number * vectors);
}

// The digits of a sum, by carrying, not by a division: llvmpipe divides for one invocation after the other.
uvec3 added(uvec3 item, uvec3 distance, uint tiles)
{
    uvec3 sum = item + distance;
    uint carry = uint(sum.z >= vectors);
    sum.yz += uvec2(carry, 0 - carry * vectors);
    carry = uint(sum.y >= tiles);
    sum.xy += uvec2(carry, 0 - carry * tiles);
    return sum;
}

Tile tile_of(uvec3 digits, uint residues)
{
    Tile tile;
    tile.outer = digits.x;
    set_lines(tile, digits.z);
    set_windows(tile, digits.y, residues);
    return tile;
}

// Loads the states at `position` of the tile's COLUMNS lines. They add nothing to a sum unless `counts`.
void load(out State states[COLUMNS], Tile tile, int position, bool counts)
{
    uint inside = uint(clamp(position, tile.first, tile.last)), at = tile.line + inside * line_stride;
    bool is_element = REPEATABLE || counts && uint(position) == inside;
#ifdef ROWS
    Operand operand = operand_of(LOAD(source, at));
#ifdef SHARES
    operand = share_of(operand, tile.counts[0] * shares(inside * BASE_DILATION, 2));
#endif
    states[0] = state_of(or_neutral(operand, is_element), inside);
#else
#ifdef WORDS
    uvec4 vector = uvec4(0);
    [[unroll]] for (uint i = 0; i < COLUMN_WORDS; ++i)
        vector[i] = source[at * COLUMN_WORDS + i];
#else
    uvec4 vector = source_vectors[at];
#endif
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        GET_RESULT(states[c], vector, c, inside)
        if (!is_element)
            states[c] = identity();
    }
#endif
}

// Combines a state with the loaded one before or after it, or a prefix with a suffix.
#ifdef HAS_INDEX
State with_before(State loaded, State state) { return appended(loaded, state); }
State with_after(State state, State loaded) { return appended(state, loaded); }
State window_of(State prefix, State suffix) { return appended(prefix, suffix); }
#else
#if defined(ROWS) && defined(HAS_PAIRWISE_ADD)
State with_after(State state, State loaded) { return combine_one(state, loaded); }
#else
State with_after(State state, State loaded) { return combine(state, loaded); }
#endif
State with_before(State loaded, State state) { return with_after(state, loaded); }
State window_of(State prefix, State suffix) { return combine(prefix, suffix); }
#endif

State prefixes[TILE][COLUMNS];
const uint GROWN = UNROLLED == TILE ? TILE : TILE % 4 == 0 ? 4 : TILE;  // prefixes that grow() computes

// Sets the first GROWN prefixes, the last one first: it is `prefix`, which begins at position `at`. Each one before it
// has STEP elements more. Leaves both for the next call.
void grow(Tile tile, inout State prefix[COLUMNS], inout int at)
{
    State loaded[COLUMNS];
    [[unroll]] for (uint k = GROWN - 1; int(k) >= 0; --k) {
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
            prefixes[k][c] = prefix[c];
        if (k > 0 || GROWN != TILE) {
            [[unroll]] for (uint i = 0; i < STEP; ++i) {
                at -= int(dilation);
                load(loaded, tile, at, true);
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
                    prefix[c] = with_before(loaded[c], prefix[c]);
            }
        }
    }
}

// Computes the prefix of each window of a tile. Mesa 22.3 unrolls a loop only if its counter is compared with a
// constant, and nothing else: if it does not, `prefixes` is in memory, and the kernel takes three times as long.
void grow_prefixes(Tile tile)
{
    State loaded[COLUMNS];
    int next = int(dilation), middle_begin = tile.start + int((TILE - 1) * STEP * dilation);
    if (COPIES) {  // there is no middle: a prefix is the window's one element
        [[unroll]] for (uint k = 0; k < TILE; ++k) {
            load(loaded, tile, tile.start + int(k * STEP) * next, true);
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
                prefixes[k][c] = loaded[c];
        }
    } else {
        State prefix[COLUMNS];
        int at = middle_begin;
        load(prefix, tile, at, true);
        // Two elements per iteration. After the middle the last one is accumulated again.
        int middle_end = tile.start + int(tile.elements - 1) * next;
        while (at < middle_end) {
            [[unroll]] for (uint i = 0; i < 2; ++i) {
                at += next;
                load(loaded, tile, min(at, middle_end), at <= middle_end);
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
                    prefix[c] = with_after(prefix[c], loaded[c]);
            }
        }
        at = middle_begin;
        if (GROWN == TILE)
            grow(tile, prefix, at);
        else {
            [[dont_unroll]] for (uint grown = 0; grown < TILE; grown += GROWN) {
                [[unroll]] for (uint k = 1; k <= TILE - GROWN; ++k) {
                    [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
                        prefixes[TILE - k][c] = prefixes[TILE - k - GROWN][c];
                }
                grow(tile, prefix, at);
            }
        }
    }
}

// Stores a group of windows, and the indices of their winners in the input, or the divisors of their averages. The
// first window is output number `number`, or this element of the temporary; `left` windows are left in its row.
void store(State group[GROUP], uint index_or_divisor[GROUP], uint number, uint left)
{
    if (!TO_OUTPUTS) {
        uint words[TEMPORARY_WORDS], at = number * RESULT_WORDS + values_base;
        [[unroll]] for (uint i = 0; i < GROUP; ++i)
            PUT_RESULT(words, i, group[i])
        [[unroll]] for (uint b = 0; b < TEMPORARY_WORDS / 4; ++b)
            value_vectors[at / 4 + b] = uvec4(words[4 * b], words[4 * b + 1], words[4 * b + 2], words[4 * b + 3]);
        [[unroll]] for (uint i = TEMPORARY_WORDS / 4 * 4; i < TEMPORARY_WORDS; ++i)
            values[at + i] = words[i];
    } else if (VALUES && SHARED_WORDS) {
        [[unroll]] for (uint i = 0; i < GROUP; ++i)
            if (i < left)
                STORE_ELEMENT(values, number + i + values_base, value_of(group[i], index_or_divisor[i]))
    } else if (VALUES) {
        uint words[OUTPUT_WORDS], at = (number + values_base) / ELEMENTS_PER_WORD * WORDS_PER_ELEMENT;
        [[unroll]] for (uint i = 0; i < GROUP; ++i)
            PUT(words, i, value_of(group[i], index_or_divisor[i]))
        if (WHOLE && OUTPUT_WORDS % 4 == 0) {
            [[unroll]] for (uint b = 0; b < OUTPUT_WORDS / 4; ++b)
                value_vectors[at / 4 + b] = uvec4(words[4 * b], words[4 * b + 1], words[4 * b + 2], words[4 * b + 3]);
        } else {
            [[unroll]] for (uint i = 0; i < OUTPUT_WORDS; ++i)
                if (i * ELEMENTS_PER_WORD / WORDS_PER_ELEMENT < left)
                    values[at + i] = words[i];
        }
    }
    if (GROUP == 4 && (TO_OUTPUTS ? WHOLE && INDEX_WORDS == 1 : INDEXED)) {
        index_vectors[(number + indices_base) / 4] = uvec4(index_or_divisor[0], index_or_divisor[1 % GROUP],
                                                           index_or_divisor[2 % GROUP], index_or_divisor[3 % GROUP]);
    } else if (TO_OUTPUTS ? INDEX_WORDS != 0 : INDEXED) {
        [[unroll]] for (uint i = 0; i < GROUP; ++i)
            if (i < left) {
                if (TO_OUTPUTS)
                    STORE_INDEX(indices, number + i + indices_base, index_or_divisor[i])
                else
                    indices[number + i + indices_base] = index_or_divisor[i];
            }
    }
}

// The index of a window's winner in the input, or the divisor of its average.
uint index_or_divisor_of(Tile tile, uint c, uint window, State state)
{
#if defined(HAS_INDEX) && defined(ROWS)
    return tile.index_base + index_of(state);
#elif defined(HAS_INDEX)
    uint index = 0, at = ((tile.outer * size + index_of(state)) * vectors + tile.vector) * COLUMNS + c;
    if (INDEXED)
        index = source[at + source_indices];
    return index;
#elif defined(SHARES)
    return tile.counts[c];
#else
    uint along = counted(window * window_stride, window_size, dilation, push.counted_begin, push.counted_end);
    return tile.counts[c] * (TO_OUTPUTS ? along : 1);
#endif
}

// Computes UNROLLED windows of a tile from the first prefixes, and stores them. The first is window `first`. `suffix`
// ends before position `at`.
void store_windows(Tile tile, uint first, inout State suffix[COLUMNS], inout int at)
{
    State loaded[COLUMNS], group[GROUP];
    uint index_or_divisor[GROUP];
    int next = int(dilation);
    [[unroll]] for (uint k = 0; k < UNROLLED; ++k) {
        if (first + k > 0 && !COPIES) {
            [[unroll]] for (uint i = 0; i < STEP; ++i, at += next) {
                load(loaded, tile, at, true);
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
                    suffix[c] = with_after(suffix[c], loaded[c]);
            }
        }
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
            State state = prefixes[k][c];
            if (!COPIES)
                state = window_of(state, suffix[c]);
            uint i = (k * COLUMNS + c) % GROUP;
            group[i] = state;
            index_or_divisor[i] = index_or_divisor_of(tile, c, tile.begin + (first + k) * spacing, state);
        }
#ifdef ROWS
        uint window = tile.begin + (first + k - (GROUP - 1)) * spacing;  // the first window of the group
        if (k % GROUP == GROUP - 1 && window < output_size)
            store(group, index_or_divisor, tile.outer * pitch + window, output_size - window);
#else
        uint window = tile.begin + (first + k) * spacing;
        uint row = (tile.outer * output_size + window) * row_count + tile.row;
        // A row of the temporary may end with vectors that hold no outputs.
        if (window < output_size && tile.column < width)
            store(group, index_or_divisor, row * (TO_OUTPUTS ? width : pitch) + tile.column, width - tile.column);
#endif
    }
}

// Computes the windows of a tile, and stores them.
void compute(Tile tile)
{
    State suffix[COLUMNS];
    grow_prefixes(tile);
    int at = tile.start + int(tile.elements * dilation);
    // Suffixes begin with the middle, which changes no window; suffixes of sums begin empty.
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        suffix[c] = identity();
        if (REPEATABLE)
            suffix[c] = prefixes[TILE - 1][c];
    }
    if (UNROLLED == TILE)
        store_windows(tile, 0, suffix, at);
    else {
        [[dont_unroll]] for (uint first = 0; first < TILE; first += UNROLLED) {
            store_windows(tile, first, suffix, at);
            // The prefixes move up: an index that the loop changes would keep the array in memory.
            [[unroll]] for (uint k = UNROLLED; k < TILE; ++k) {
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
                    prefixes[k - UNROLLED][c] = prefixes[k][c];
            }
        }
    }
}

void main()
{
    uint residues = DILATED ? min(spacing, output_size) : 1;
    uint tiles = ((DILATED ? (output_size - 1) / spacing : output_size - 1) / TILE + 1) * residues;
    uint first_item = push.first_item;
    Items mine = items_of(min(push.outer_count * tiles * vectors - first_item, push.most_items));
    uint item = mine.next;
    uvec3 digits = digits_of(first_item + item, tiles), distance = digits_of(ITEM_STRIDE, tiles);
    for (; item < mine.end; item += ITEM_STRIDE) {
        compute(tile_of(digits, residues));
        digits = added(digits, distance, tiles);
    }
    report(item, mine.end);
}
