#version 450
#extension GL_GOOGLE_include_directive : require
// AVERAGE_POOLING, and LP_POOLING with p = 2.

#include "windows.glsl"

layout(constant_id = 1) const bool NORM = false;

float total = 0;
uint count = 0;

void accumulate(uint element)
{
    float value = source[element];
    total += NORM ? value * value : value;
    ++count;
}

void write(uint at)
{
    target[at] = NORM ? sqrt(total) : total / float(count);
}
