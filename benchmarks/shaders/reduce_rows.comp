#version 450
// REDUCE over consecutive rows, the usual way: a workgroup per row, a tree in shared memory.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint GROUP_SIZE = 256;
layout(constant_id = 1) const uint FUNCTION = 0;

const uint MAX = 1, AVERAGE = 2, LOG_SUM_EXP = 3;  // 0 is SUM

layout(binding = 0) readonly buffer Source { float source[]; };
layout(binding = 1) writeonly buffer Target { float target[]; };

layout(push_constant) uniform Push {
    uint rows;
    uint row_length;
};

shared float values[GROUP_SIZE];

// The maximum, or the sum, of the invocations' values.
float combined(float value, bool greatest)
{
    uint thread = gl_LocalInvocationID.x;
    values[thread] = value;
    barrier();
    for (uint other = GROUP_SIZE / 2; other > 0; other /= 2) {
        if (thread < other)
            values[thread] =
                greatest ? max(values[thread], values[thread + other]) : values[thread] + values[thread + other];
        barrier();
    }
    float result = values[0];
    barrier();
    return result;
}

void main()
{
    uint row = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (row >= rows)
        return;

    uint thread = gl_LocalInvocationID.x;
    float best = uintBitsToFloat(0xFF800000u);  // minus infinity
    if (FUNCTION == MAX || FUNCTION == LOG_SUM_EXP) {
        for (uint i = thread; i < row_length; i += GROUP_SIZE)
            best = max(best, source[row * row_length + i]);
        best = combined(best, true);
    }
    float total = 0;
    if (FUNCTION != MAX) {
        for (uint i = thread; i < row_length; i += GROUP_SIZE) {
            float value = source[row * row_length + i];
            total += FUNCTION == LOG_SUM_EXP ? exp(value - best) : value;
        }
        total = combined(total, false);
    }
    if (thread > 0)
        return;
    if (FUNCTION == MAX)
        target[row] = best;
    else if (FUNCTION == LOG_SUM_EXP)
        target[row] = best + log(total);
    else
        target[row] = FUNCTION == AVERAGE ? total / float(row_length) : total;
}
