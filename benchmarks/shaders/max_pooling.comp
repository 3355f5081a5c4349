#version 450
#extension GL_GOOGLE_include_directive : require
// MAX_POOLING, with or without indices.

#include "windows.glsl"

layout(constant_id = 1) const bool INDICES = false;
layout(binding = 2) writeonly buffer Indices { uint indices[]; };

float best = uintBitsToFloat(0xFF800000u);  // minus infinity
uint index = 0;

void accumulate(uint element)
{
    float value = source[element];
    if (value > best) {
        best = value;
        index = element;
    }
}

void write(uint at)
{
    target[at] = best;
    if (INDICES)
        indices[at] = index;
}
