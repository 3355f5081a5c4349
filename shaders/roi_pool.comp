#version 430
// Maxima of the bins of regions. A row of `rois` has a region's batch entry, and its first and last column and row.
//
// An invocation computes a tile of outputs: a row of bins of a region and channel, or one bin. It accumulates the
// elements of a bin, in row-major order, or with TO_PARTIALS one split of them. All splits of a bin except the last
// ones have the same size:
//
//   bin of 3 x 5, 4 splits     0 0 0 0 1
//                              1 1 1 2 2
//                              2 2 3 3 3
//
// Regions are computed with integers: drivers may round products of floats in either direction.

#define FIRST_MAXIMUM  // of equal elements the first wins (selection.glsl)
#include "core/kernel.glsl"
#include "accumulator.glsl"

layout(set = 0, binding = 2) buffer Target { uint target[]; };
layout(set = 0, binding = 3) readonly buffer Rois { uint rois[]; };

layout(push_constant) uniform Push {
    uint stride[4];        // of the input
    uint batch_count;
    uint channel_count;
    uint size[2];          // height and width of the input
    uint pooled_size[2];
    uint scale_mantissa;   // the scale is scale_mantissa * 2^scale_exponent, with 24 bits
    uint scale_exponent;
    uint roi_stride[2];    // of a region, and of its numbers
    uint rois_base;        // address + rois_base is the offset in the buffer, in elements
    uint first_output;     // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint tile;             // outputs of an item
    uint bin_splits;       // splits of a bin, in all dispatches
    uint split_begin;      // the splits of this dispatch: the first, and how many
    uint split_count;
    uint source_first;     // the bound segment: its first element, and the size of a full segment
    uint source_count;
    uint source_base;
    uint target_base;  // output number + target_base is its offset; TO_PARTIALS: offset of the partials, in words
} push;

// Each read once (kernel.glsl).
uint source_first = push.source_first, source_count = push.source_count, source_base = push.source_base;
uint row_stride = push.stride[2], column_stride = push.stride[3], width = push.size[1];
uint pooled_height = push.pooled_size[0], pooled_width = push.pooled_size[1], channel_count = push.channel_count;
uint first_output = push.first_output, target_base = push.target_base, split_begin = push.split_begin;

const uint MOST = 1u << 30;  // coordinates are clamped to it

// The pattern of the 32-bit float that has the value of an element.
uint widened(Bits bits)
{
    if (BITS == 32)
        return bits;
    uint magnitude = bits & 0x7FFF, sign = (bits & 0x8000) << 16;
    // A denormal is its mantissa * 2^-24. Other exponents differ by 112, those of infinities and NaN by 224.
    uint denormal = floatBitsToUint(float(magnitude)) - (24u << 23);
    uint widened = magnitude >= 0x7C00 ? (magnitude << 13) + 0x70000000 : (magnitude << 13) + 0x38000000;
    widened = magnitude < 0x400 ? denormal : widened;
    return sign | (magnitude == 0 ? 0 : widened);
}

// A coordinate times the scale, as a float; then rounded to an integer, halves away from 0.
int scaled(uint coordinate)
{
    uint magnitude = coordinate & 0x7FFFFFFF, fraction = magnitude & 0x7FFFFF;
    // The coordinate is mantissa * 2^exponent. A mantissa has 24 bits: denormals are shifted to the left.
    int shift = magnitude < 0x800000 ? 23 - findMSB(max(fraction, 1)) : 0;
    uint mantissa = magnitude < 0x800000 ? fraction << shift : fraction | 0x800000;
    int exponent = int(max(magnitude >> 23, 1)) - 150 - shift;
    // The product of both mantissas has 47 or 48 bits. It is rounded to the upper 24, ties to even.
    uint high, low;
    umulExtended(mantissa, push.scale_mantissa, high, low);
    uint upper = high << 8 | low >> 24, missing = upper < 0x800000 ? 1 : 0, lower = low << missing & 0xFFFFFF;
    upper = upper << missing | (low >> 23 & missing);
    upper += lower + (upper & 1) > 0x800000 ? 1 : 0;
    exponent += int(push.scale_exponent + 24 - missing);
    uint left = upper << clamp(exponent, 0, 7), half_unit = 1 << clamp(-1 - exponent, 0, 25);
    uint right = (upper + half_unit) >> clamp(-exponent, 0, 26), number = exponent < 0 ? right : left;
    number = magnitude == 0x7F800000 ? MOST : min(number, MOST);
    number = magnitude == 0 || magnitude > 0x7F800000 ? 0 : number;
    int positive = int(number), negative = -positive;
    return coordinate >= 0x80000000 ? negative : positive;
}

// A batch entry, rounded toward 0; NONE if there is none.
uint batch_of(uint pattern)
{
    uint none = NONE, batch = uint(uintBitsToFloat(min(pattern, 0x4F7FFFFF)));  // the greatest float below 2^32
    batch = pattern >= 0x4F800000 ? none : batch;
    return pattern >= 0x80000000 && pattern < 0xBF800000 ? 0 : batch;  // between -1 and 0
}

// The bins of a region along a dimension: `count` bins of `least` elements, and `more` elements distributed among them.
// The next bin begins at `begin` + `rest` / count, from `first` on. No product needs more than 32 bits.
struct Bins {
    uint count;
    int first;
    uint least;
    uint more;
    uint begin;
    uint rest;
};

// The bins of a region with elements first to last; the next bin is number `at`.
Bins bins_of(uint count, int first, int last, uint at)
{
    uint size = last < first ? 1 : uint(last - first) + 1, least = size / count, more = size - least * count;
    uint distributed = at * more / count;
    return Bins(count, first, least, more, at * least + distributed, at * more - distributed * count);
}

// The elements of the next bin among `size` elements of the input: begin to end - 1.
struct Range {
    int begin;
    int end;
};
Range next_bin(inout Bins bins, uint size)
{
    int begin = bins.first + int(bins.begin);
    bins.rest += bins.more;
    bool carries = bins.rest >= bins.count;
    bins.begin += bins.least + (carries ? 1 : 0);
    bins.rest -= carries ? bins.count : 0;
    int end = bins.first + int(bins.begin + min(bins.rest, 1));
    return Range(clamp(begin, 0, int(size)), clamp(end, 0, int(size)));
}

// The outputs of an item: the next one is the next bin of `columns`, of `height` rows. The first row begins at
// `origin`.
struct Tile {
    uint height;
    uint origin;
    Bins columns;
};

// The tile that begins with output `number`.
Tile tile_at(uint number)
{
    uint row = number / pooled_width, plane = row / pooled_height, region = plane / channel_count;
    uint roi = region * push.roi_stride[0] + push.rois_base, step = push.roi_stride[1];
    uint batch = batch_of(widened(LOAD(rois, roi)));
    int left = scaled(widened(LOAD(rois, roi + step))), top = scaled(widened(LOAD(rois, roi + 2 * step)));
    int right = scaled(widened(LOAD(rois, roi + 3 * step))), bottom = scaled(widened(LOAD(rois, roi + 4 * step)));
    Bins row_bins = bins_of(pooled_height, top, bottom, row - plane * pooled_height);
    Bins columns = bins_of(pooled_width, left, right, number - row * pooled_width);
    Range rows = next_bin(row_bins, push.size[0]);
    uint height = batch < push.batch_count ? uint(rows.end - rows.begin) : 0;
    uint origin = batch * push.stride[0] + (plane - region * channel_count) * push.stride[1];
    return Tile(height, origin + uint(rows.begin) * row_stride, columns);
}

// The state of the next bin of a tile, or of one split of its elements.
State next_state(inout Tile tile, uint split)
{
    Range columns = next_bin(tile.columns, width);
    uint row_size = uint(columns.end - columns.begin), count = tile.height * row_size;
    uint first = 0, split_end = count, x = 0, address = tile.origin + uint(columns.begin) * column_stride;
    if (TO_PARTIALS) {
        uint last = max(count, 1) - 1, split_size = last / push.bin_splits + 1, at = split + split_begin;
        first = at > last / split_size ? count : at * split_size;
        split_end = first + min(split_size, count - first);
        uint y = first / max(row_size, 1);
        x = first - y * row_size;
        address += y * row_stride + x * column_stride;
    }
    State state = empty_from(first);
    if (count == 0)  // an empty bin has one element, 0
        state = state_of(operand_of(Bits(0)), 0);
    for (uint index = first; index < split_end; ++index) {
        if (!SEGMENTED || address - source_first < source_count)
            accumulate(state, operand_of(LOAD(source, address + source_base)), index);
        bool ends = ++x == row_size;
        x = ends ? 0 : x;
        address += ends ? row_stride - (row_size - 1) * column_stride : column_stride;
    }
    return state;
}

void main()
{
    uint output_count = push.output_count, tile_size = push.tile, tiles = (output_count - 1) / tile_size + 1;
    Items mine = items_of(tiles * push.split_count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint split = TO_PARTIALS ? item / tiles : 0, i = (item - split * tiles) * tile_size;
        uint end = min(output_count, i + tile_size);
        Tile tile = tile_at(first_output + i);
        for (; i < end; ++i) {
            State state = next_state(tile, split);
            if (TO_PARTIALS)
                STORE_PARTIAL(target, (split * output_count + i) * PARTIAL_WORDS + target_base, state, 1)
            else
                STORE_ELEMENT(target, first_output + i + target_base, value_of(state, 1))
        }
    }
    report(item, mine.end);
}
