#version 430
// QUANTIZED_LINEAR_AVERAGE_POOLING, the last step: computes outputs from the sums of windows. An item is a word: four
// outputs, or fewer in the last word of a tensor.
//
// Quotients are rounded exactly. They are fractions of integers of 64 bits, times a power of 2. A quotient of floats,
// with an error far below 1/4, chooses the two integers around a fraction: next to an integer it may choose the wrong
// two, but that integer is one of them, and still the nearest. Integer arithmetic chooses the nearer one.

#include "core/windows.glsl"

layout(constant_id = 10) const uint OUTPUT_KIND = 0;  // of the outputs: UINT or INT
layout(constant_id = 11) const bool WHOLE = false;  // every window lies in the input
layout(constant_id = 12) const bool COUNTS_PADDING = false;
layout(constant_id = 13) const bool DILATED = false;

layout(set = 0, binding = 2) readonly buffer Parameters { uint parameters[]; };  // requantize_parameters.comp
layout(set = 0, binding = 3) buffer Values { uint values[]; };

layout(push_constant) uniform Push {
    uint size[3];  // of the input
    uint output_size[3];
    uint window_size[3];
    uint window_stride[3];
    uint dilation[3];
    uint start_padding[3];
    uint counted_end[3];  // end of the positions that count: counted()
    uint channels;      // channels with separate parameters; 1: all share them
    uint first_output;  // the outputs of this dispatch: the first, a multiple of 4, and how many
    uint output_count;
    uint source_base;  // output number + source_base is the offset of its sum
    uint parameters_base;
    uint values_base;  // output number + values_base is the offset of its value, in elements
} push;

// The push constants that every output needs, each read once (kernel.glsl).
uvec3 size = all_of(push.size), output_size = all_of(push.output_size), window_size = all_of(push.window_size);
uvec3 window_stride = all_of(push.window_stride), dilation = all_of(push.dilation);
uvec3 start_padding = all_of(push.start_padding), counted_end = all_of(push.counted_end);
uint channels = push.channels, source_base = push.source_base, parameters_base = push.parameters_base;

// Integers of 64 bits, below 2^63: the low word, and the high one.
uvec2 product(uint a, uint b)
{
    uint low, high;
    umulExtended(a, b, high, low);
    return uvec2(low, high);
}
uvec2 product(uvec2 a, uint b)
{
    uvec2 low = product(a.x, b);
    return uvec2(low.x, low.y + a.y * b);
}
uvec2 shifted(uvec2 a, uint by)
{
    uint bits = by & 31u, zero = 0, low = a.x << bits, high = a.y << bits | a.x >> 1 >> (31u - bits);
    return by < 32u ? uvec2(low, high) : uvec2(zero, low);
}

// sum * x / (count * y) * 2^exponent, rounded to the nearest integer, ties to even. From 1023 on it is any number that
// is not less.
uint rounded_quotient(uint sum, uint count, uint x, uint y, int exponent)
{
    precise float over = float(sum) * float(x), under = float(count) * float(y);
    precise float quotient = over / under * uintBitsToFloat(uint(exponent + 127) << 23);
    quotient = min(quotient, 1023.0);
    // Below 1023 both sides have 60 bits at most: `count` has 24, x and y have as many, and `sum` has 31.
    uint whole = uint(quotient);
    uvec2 twice = shifted(product(sum, x), uint(max(exponent, 0)) + 1u);
    uvec2 middle = product(shifted(product(count, y), uint(max(-exponent, 0))), 2u * whole + 1u);
    bool above = twice.y > middle.y || twice.y == middle.y && twice.x > middle.x;
    bool rounds_up = above || twice == middle && (whole & 1u) == 1u;
    return whole + uint(rounds_up);
}

// A byte as a number of this kind.
int number_of(uint byte, uint kind)
{
    int positive = int(byte & 0xFFu), number = int(byte << 24) >> 24;
    return kind == INT ? number : positive;
}

// The current output: its coordinates, and what it shares with others. Divisions are slow on llvmpipe, so these are
// updated from one output to the next.
uint plane;
uvec3 position;
uvec2 rows;  // of its window along depth and height: elements in the input, and elements that count
uvec4 channel_parameters;  // written by requantize_parameters.comp

// Elements of a window along a dimension: those in the input, and those that count.
uvec2 elements_along(int d)
{
    uint at = position[d] * window_stride[d], elements = window_size[d], step = DILATED ? dilation[d] : 1;
    uint begin = start_padding[d], inside = elements;
    if (!WHOLE)
        inside = counted(at, elements, step, begin, begin + size[d]);
    uint count = inside;
    if (COUNTS_PADDING)
        count = counted(at, elements, step, 0, counted_end[d]);
    return uvec2(inside, count);
}

void begin_row() { rows = elements_along(0) * elements_along(1); }
void begin_plane()
{
    uint channel = 0;
    if (channels > 1)
        channel = plane % channels;
    uint at = channel * 4 + parameters_base;
    channel_parameters = uvec4(parameters[at], parameters[at + 1], parameters[at + 2], parameters[at + 3]);
}

void begin_at(uint number)
{
    uint row = number / output_size.z, slab = row / output_size.y;
    plane = slab / output_size.x;
    position = uvec3(slab - plane * output_size.x, row - slab * output_size.y, number - row * output_size.z);
    begin_plane();
    begin_row();
}

void advance()
{
    if (++position.z < output_size.z)
        return;
    position.z = 0;
    if (++position.y == output_size.y) {
        position.y = 0;
        if (++position.x == output_size.x) {
            position.x = 0;
            ++plane;
            begin_plane();
        }
    }
    begin_row();
}

// The value of the current output, from its sum.
uint output_of(uint sum)
{
    uvec2 elements = rows * elements_along(2);
    uint sign_and_exponent = channel_parameters.z, zero_points = channel_parameters.w;
    int total = int(sum - elements.x * uint(number_of(zero_points, NUMBER_KIND)));
    int exponent = int(sign_and_exponent & 0xFFu) - 12;
    uint rounded = rounded_quotient(uint(abs(total)), elements.y, channel_parameters.x, channel_parameters.y, exponent);
    int quotient = int(rounded), opposite = -quotient, least = OUTPUT_KIND == INT ? -128 : 0;
    quotient = (total < 0) == (int(sign_and_exponent) < 0) ? quotient : opposite;
    return uint(clamp(quotient + number_of(zero_points >> 8, OUTPUT_KIND), least, least + 255)) & 0xFFu;
}

void main()
{
    uint first_output = push.first_output, output_count = push.output_count;
    uint first_word = (first_output + push.values_base) / 4;
    Items mine = items_of((output_count - 1) / 4 + 1);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint outputs = min(4, output_count - item * 4), word = 0, number = first_output + item * 4;
        begin_at(number);
        for (uint k = 0; k < outputs; ++k) {
            word |= output_of(source[number + k + source_base]) << (k * 8);
            advance();
        }
        if (outputs < 4)
            word |= values[first_word + item] & ~0u << (outputs * 8);
        values[first_word + item] = word;
    }
    report(item, mine.end);
}
