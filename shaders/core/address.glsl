layout(constant_id = 10) const bool PACKED = false;  // elements are contiguous, in row-major order

// The address of element `number`, in row-major order, of a 4-D tensor.
uint address_of(uint number, uvec4 size, uvec4 stride)
{
    if (PACKED)
        return number;
    uint address = 0;
    [[unroll]] for (int d = 3; d >= 0; --d) {
        uint next = number / size[d];
        address += (number - next * size[d]) * stride[d];
        number = next;
    }
    return address;
}
uvec4 all_of(uint dimensions[4]) { return uvec4(dimensions[0], dimensions[1], dimensions[2], dimensions[3]); }
