#version 430
// Exact sums over axes (exact.glsl). An item is OUTPUTS neighbouring outputs, or one split of their elements, and
// THREADS invocations share it. A load has STEP elements of each output:
//
//   ROWS      a vector of an output, whose elements are contiguous
//   COLUMNS   an element of each output of a vector, or of several: as in columns.comp, the elements of neighbouring
//             outputs are side by side, and the last item of a row ends where the row ends
//   else      an element of an output, in any layout; 0, if the bound segment does not have it

#ifdef COLUMNS
#define THREAD_STRIDE AT_ONCE
#else
#define THREAD_STRIDE 1
#endif
#define State Bin
#include "core/axes.glsl"
#include "core/cooperating.glsl"
#include "core/element_at.glsl"

// TOGETHER: loads that an invocation waits for together. One by one, loads take as long as the loop over them. SAMPLES:
// loads that choose the exponents of the bins.
#if defined(ROWS)
const uint OUTPUTS = 1, STEP = VECTOR_SIZE, SAMPLES = 2, TOGETHER = IN_FLIGHT;
#elif defined(COLUMNS)
layout(constant_id = 12) const uint ITEM_VECTORS = 1;
const uint OUTPUTS = ITEM_VECTORS * VECTOR_SIZE, STEP = 1, SAMPLES = 4, TOGETHER = IN_FLIGHT;
#else
const uint OUTPUTS = 1, STEP = 1, SAMPLES = 4, TOGETHER = 4;
#endif
const uint LOADED = OUTPUTS * STEP;  // elements of a load: number k belongs to output k % OUTPUTS
const bool ANY_LAYOUT = LOADED == 1;

Bin bins[OUTPUTS];
// The reduced dimensions.
uint rank = kept_rank + push.reduced_rank, outermost_stride = push.stride[kept_rank];
uint innermost = push.size[rank - 1], step_size = push.stride[rank - 1];
#ifdef COLUMNS
uint row_size = push.size[kept_rank - 1], first_row = first_output / row_size;
uint first_column = first_output - first_row * row_size;
// A dispatch has whole rows of outputs, or a part of one row.
uint width = min(row_size, output_count), items_of_row = (width - 1) / OUTPUTS + 1;
uint items_of_split = items_of_row * (output_count / width);
#else
uint items_of_split = output_count;
#endif

struct Item {
    uint number;   // of its first output, in the dispatch
    uint overlap;  // outputs that the item before has, too
    uint split;
    uint begin;    // of the elements of the split
    uint end;
    uint address;  // of element 0 of the first output
};

// Items are numbered split by split.
Item item_number(uint number)
{
    Item item;
    item.split = TO_PARTIALS ? number / items_of_split : 0;
    number -= item.split * items_of_split;
    split_range(item.split, item.begin, item.end);
#ifdef COLUMNS
    uint row = number / items_of_row, nominal = (number - row * items_of_row) * OUTPUTS;
    uint column = min(nominal, width - OUTPUTS);
    item.number = row * width + column;
    item.overlap = nominal - column;
    item.address = address_of_kept(first_row + row, kept_rank - 1) + first_column + column;
#else
    item.number = number;
    item.overlap = 0;
    item.address = address_of_kept(first_output + number, kept_rank);
#endif
    return item;
}

// The distance of an element from element 0.
uint distance_of(uint index)
{
    if (ANY_LAYOUT)
        return address_of(index, kept_rank, rank, outermost_stride);
    return index * outermost_stride;
}

// The vectors of the loads that an invocation waits for. Global, because GLSL copies array arguments.
const uint LOAD_VECTORS = (LOADED + VECTOR_SIZE - 1) / VECTOR_SIZE;
uvec4 vectors[TOGETHER * LOAD_VECTORS];

// Load number i.
void load(uint i, uint address)
{
    if (ANY_LAYOUT)
        vectors[i].x = element_at(address);
    [[unroll]] for (uint b = 0; b < LOADED / VECTOR_SIZE; ++b)
        vectors[i * LOAD_VECTORS + b] = load_vector(address + source_base + b * VECTOR_SIZE);
}

// Element k of load number i.
Bits element_of_load(uint i, uint k)
{
    return element_of(vectors[i * LOAD_VECTORS + k / VECTOR_SIZE], k % VECTOR_SIZE);
}

// Adds load number i of `count`, except its elements before number `skipped`.
void add(uint skipped, uint i, uint count)
{
    [[unroll]] for (uint k = 0; k < LOADED; ++k) {
        Bits bits = element_of_load(i, k), zero = 0;
        Bin bin = bin_of(bins[k % OUTPUTS].least, k >= skipped ? bits : zero);
        add(bins[k % OUTPUTS], bin, i * STEP + k / OUTPUTS, count * STEP);
    }
}

// Sets `bins` to the sums of this thread's share of an item.
void add_item(Item item)
{
    uint size = item.end - item.begin, greatest[OUTPUTS];
    [[unroll]] for (uint k = 0; k < OUTPUTS; ++k)
        greatest[k] = 0;
    for (uint i = 0; i < SAMPLES; ++i) {
        uint index = min(item.begin + size / SAMPLES * i, item.end - STEP);
        load(0, item.address + distance_of(index));
        [[unroll]] for (uint k = 0; k < LOADED; ++k) {
            uint exponent = finite_exponent(element_of_load(0, k));
            greatest[k % OUTPUTS] = max(greatest[k % OUTPUTS], exponent);
        }
    }
    [[unroll]] for (uint k = 0; k < OUTPUTS; ++k)
        bins[k] = empty_bin(greatest[k]);

    uint index = item.begin;
    do {
        size = item.end - index;  // of elements that are one step apart
        if (ANY_LAYOUT)
            size = min(size, innermost - index % innermost);
        uint address = item.address + distance_of(index), loads = size / STEP, next = thread();
        uint load_size = STEP > 1 ? STEP : step_size;
        for (; next + (TOGETHER - 1) * THREADS < loads; next += TOGETHER * THREADS) {
            [[unroll]] for (uint i = 0; i < TOGETHER; ++i)
                load(i, address + (next + i * THREADS) * load_size);
            [[unroll]] for (uint i = 0; i < TOGETHER; ++i)
                add(0, i, TOGETHER);
        }
        for (; TOGETHER > 1 && next < loads; next += THREADS) {
            load(0, address + next * load_size);
            add(0, 0, 1);
        }
        if (size % STEP != 0 && thread() == 0) {
            load(0, item.address + item.end - STEP);
            add(STEP - size % STEP, 0, 1);
        }
        index += size;
    } while (ANY_LAYOUT && index < item.end);
}

// The sum of all elements of output k of an item, without a bin.
Long sum_of(Item item, uint k)
{
    Long sum = identity();
    for (uint index = item.begin; index < item.end; ++index)
        add(sum, element_at(item.address + distance_of(index) + k));
    return sum;
}

// Writes output k of an item, or its partial result.
void write(Item item, uint k, Long sum, Bits value)
{
    uint number = item.number + k, at = (item.split * output_count + number) * PARTIAL_WORDS + target_base;
    if (TO_PARTIALS)
        STORE_PARTIAL(target, at, sum, push.element_count)
    else
        STORE_ELEMENT(target, first_output + number + target_base, value)
}

void main()
{
    uint count = items_of_split * split_count;
    Items mine = shared_items_of(count);
    uint next = mine.next;
    while (next < mine.end) {
        uint first = next, missed = 0;  // bit iteration * OUTPUTS + k: the bin of output k has missed an element
        for (uint iteration = 0; iteration < 32 / OUTPUTS && next < mine.end;
             ++iteration, next += shared_item_stride()) {
            Item item = item_number(min(next, count - 1));
            add_item(item);
            // No [[unroll]], and no bins[k], which makes Mesa unroll: drivers take seconds to compile so many results.
            for (uint k = 0; k < OUTPUTS; ++k) {
                Bin bin = bins[0];
                [[unroll]] for (uint other = 1; other < OUTPUTS; ++other)
                    if (k == other)
                        bin = bins[other];
                bin = of_all_threads(bin);
                if (thread() == 0 && next < count && k >= item.overlap) {
                    write(item, k, long_of(bin), value_of(bin, push.element_count));
                    missed |= uint(has_missed(bin)) << (iteration * OUTPUTS + k);
                }
            }
        }
        // After the loop over several items: CPU drivers execute the body of a loop at least once, masked.
        for (; missed != 0; missed &= missed - 1) {
            uint bit = findLSB(missed), k = bit % OUTPUTS;
            Item item = item_number(first + bit / OUTPUTS * shared_item_stride());
            Long sum = sum_of(item, k);
            write(item, k, sum, value_of(sum, push.element_count));
        }
    }
    report(next, mine.end);
}
