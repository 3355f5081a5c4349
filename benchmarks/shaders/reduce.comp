#version 450
// REDUCE over any axis, the usual way: an invocation per output that reads one element after the other.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 256;
layout(constant_id = 1) const uint FUNCTION = 0;

const uint MAX = 1, AVERAGE = 2, LOG_SUM_EXP = 3;  // 0 is SUM

layout(binding = 0) readonly buffer Source { float source[]; };
layout(binding = 1) writeonly buffer Target { float target[]; };

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
    if (FUNCTION == MAX || FUNCTION == LOG_SUM_EXP)
        for (uint i = 1; i < axis_length; ++i)
            best = max(best, source[first + i * inner]);
    float total = 0;
    if (FUNCTION != MAX)
        for (uint i = 0; i < axis_length; ++i) {
            float value = source[first + i * inner];
            total += FUNCTION == LOG_SUM_EXP ? exp(value - best) : value;
        }
    if (FUNCTION == MAX)
        target[at] = best;
    else if (FUNCTION == LOG_SUM_EXP)
        target[at] = best + log(total);
    else
        target[at] = FUNCTION == AVERAGE ? total / float(axis_length) : total;
}
