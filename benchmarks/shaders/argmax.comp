#version 450
// ARGMAX over any axis, the usual way: an invocation per output that reads one element after the other.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 256;

layout(binding = 0) readonly buffer Source { float source[]; };
layout(binding = 1) writeonly buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint outputs;
    uint axis_length;
    uint inner;  // stride along the axis, in elements
};

void main()
{
    uint at = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * GROUP_SIZE + gl_LocalInvocationID.x;
    if (at >= outputs)
        return;

    uint first = at / inner * axis_length * inner + at % inner;
    float best = source[first];
    uint index = 0;
    for (uint i = 1; i < axis_length; ++i) {
        float value = source[first + i * inner];
        if (value > best) {
            best = value;
            index = i;
        }
    }
    target[at] = index;
}
