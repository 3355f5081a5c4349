#version 430
// Parameters of each channel for requantize.comp, in four words: the ratio of both scales, as x / y * 2^exponent, and
// both zero points. An item is a channel.
//
//   word 0    x, below 2^24
//   word 1    y, from 1 to 2^24 - 1
//   word 2    exponent + 12, from 0 to 46, and in bit 31 the sign of the ratio
//   word 3    the zero point of the input in byte 0, that of the output in byte 1
//
// Exponents are clamped to -12 and 34. With 34 every average but 0 becomes 512 or more, beyond all outputs: it is more
// than 2^-24, and x / y more than 1/2, as a normal float has x >= 2^23. With -12 every average, at most 255, becomes 0.
// An infinite ratio has the exponent 34; an undefined ratio is 0.
//
// One dispatch loads the scales, and writes zero points of 0; another one loads the zero points. All these, the words
// and the status would be six bindings, and Vulkan guarantees four.

#include "core/kernel.glsl"

layout(constant_id = 10) const bool ZERO_POINTS = false;  // write zero points, not scales

layout(set = 0, binding = 1) readonly buffer Inputs { uint inputs[]; };
layout(set = 0, binding = 2) readonly buffer Outputs { uint outputs[]; };
layout(set = 0, binding = 3) writeonly buffer Parameters { uint parameters[]; };

layout(push_constant) uniform Push {
    uint first_channel;
    uint channel_count;
    uint input_base;   // channel * stride + base is the offset of its scale or zero point, in elements
    uint input_stride;
    uint output_base;
    uint output_stride;
    uint parameters_base;
    uint input_mask;   // of a zero point: 0 if there is none
    uint output_mask;
} push;

uint byte_of(uint word, uint at) { return word >> (at % 4 * 8); }

void write_zero_points(uint first, uint input_at, uint output_at)
{
    uint of_input = byte_of(inputs[input_at / 4], input_at) & push.input_mask;
    uint of_output = byte_of(outputs[output_at / 4], output_at) & push.output_mask;
    parameters[first + 3] = of_input | of_output << 8;
}

const uint INFINITE = 0x7F800000u;

// A float >= 0 is a mantissa times 2^(exponent - 150). Denormals are read exactly.
uint mantissa_of(uint pattern)
{
    uint fraction = pattern & 0x7FFFFFu, normal = fraction | 0x800000u;
    return pattern < 0x800000u ? fraction : normal;
}
int exponent_of(uint pattern) { return max(int(pattern >> 23), 1); }

// Writes the scales, and zero points of 0.
void write_scales(uint first, uint input_at, uint output_at)
{
    uint a = inputs[input_at], b = outputs[output_at], sign = (a ^ b) & 0x80000000u;
    a &= 0x7FFFFFFFu;
    b &= 0x7FFFFFFFu;
    bool is_zero = a == 0 || a > INFINITE || b >= INFINITE, is_infinite = a == INFINITE || b == 0;
    uint x = mantissa_of(a), y = max(mantissa_of(b), 1), zero = 0, one = 1;
    int exponent = clamp(exponent_of(a) - exponent_of(b), -12, 34), highest = 34;
    x = is_infinite ? one : x;
    y = is_infinite ? one : y;
    parameters[first] = is_zero ? zero : x;
    parameters[first + 1] = y;
    parameters[first + 2] = uint((is_infinite ? highest : exponent) + 12) | sign;
    parameters[first + 3] = 0;
}

void main()
{
    Items mine = items_of(push.channel_count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint channel = push.first_channel + item, first = channel * 4 + push.parameters_base;
        uint input_at = channel * push.input_stride + push.input_base;
        uint output_at = channel * push.output_stride + push.output_base;
        if (ZERO_POINTS)
            write_zero_points(first, input_at, output_at);
        else
            write_scales(first, input_at, output_at);
    }
    report(item, mine.end);
}
